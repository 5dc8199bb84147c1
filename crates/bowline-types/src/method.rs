//! The typed methods: each name, with the params it takes and the result it gives.
//!
//! The tables below are the whole protocol on one page. Which revision has which method is not said here.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::legacy_tasks::{
    CancelTaskResult, GetTaskPayloadResult, GetTaskResult, ListTasksResult, TaskRequestParams,
    TaskStatusNotificationParams,
};
use crate::{
    CallToolRequestParams, CallToolResult, CancelledNotificationParams, CompleteRequestParams,
    CompleteResult, CreateMessageRequestParams, CreateMessageResult, DiscoverResult,
    ElicitRequestParams, ElicitResult, ElicitationCompleteNotificationParams, EmptyResult,
    GetPromptRequestParams, GetPromptResult, InitializeRequestParams, InitializeResult,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListRootsResult,
    ListToolsResult, LoggingMessageNotificationParams, NotificationParams, PaginatedRequestParams,
    ProgressNotificationParams, ReadResourceRequestParams, ReadResourceResult, RequestParams,
    ResourceUpdatedNotificationParams, SetLevelRequestParams, SubscribeRequestParams,
    SubscriptionsAcknowledgedNotificationParams, SubscriptionsListenRequestParams,
    SubscriptionsListenResult, UnsubscribeRequestParams,
};

/// A kind of request: its name on the wire, its params, its result.
///
/// A method of one's own is a type that implements this. Where a request may be answered with
/// [`InputRequiredResult`](crate::InputRequiredResult) or a task instead, [`Result`](Self::Result) is the
/// complete shape, and the member `resultType` tells.
///
/// # Examples
///
/// ```
/// use bowline_types::{CallToolRequest, Method};
///
/// assert_eq!(CallToolRequest::NAME, "tools/call");
/// ```
pub trait Method {
    /// The name on the wire.
    const NAME: &'static str;
    /// What it takes. Absent params are read as `{}`.
    type Params: Serialize + DeserializeOwned + Send + Sync + 'static;
    /// What it gives.
    type Result: Serialize + DeserializeOwned + Send + Sync + 'static;
}

/// A kind of notification: its name on the wire and its params.
pub trait Notice {
    /// The name on the wire.
    const NAME: &'static str;
    /// What it says. Absent params are read as `{}`.
    type Params: Serialize + DeserializeOwned + Send + Sync + 'static;
}

/// Declares marker types that name methods.
macro_rules! methods {
    ($($(#[$docs:meta])* $marker:ident = $name:literal: $params:ty => $result:ty;)*) => {$(
        $(#[$docs])*
        #[derive(Clone, Copy, Debug)]
        #[non_exhaustive]
        pub struct $marker;

        impl Method for $marker {
            const NAME: &'static str = $name;
            type Params = $params;
            type Result = $result;
        }
    )*};
}

/// Declares marker types that name notifications.
macro_rules! notices {
    ($($(#[$docs:meta])* $marker:ident = $name:literal: $params:ty;)*) => {$(
        $(#[$docs])*
        #[derive(Clone, Copy, Debug)]
        #[non_exhaustive]
        pub struct $marker;

        impl Notice for $marker {
            const NAME: &'static str = $name;
            type Params = $params;
        }
    )*};
}

methods! {
    /// Asks a server what it is (from 2026-07-28).
    DiscoverRequest = "server/discover": RequestParams => DiscoverResult;
    /// Opens a conversation (until 2025-11-25).
    InitializeRequest = "initialize": InitializeRequestParams => InitializeResult;
    /// Asks whether the other side is there (until 2025-11-25).
    PingRequest = "ping": RequestParams => EmptyResult;

    /// Lists tools.
    ListToolsRequest = "tools/list": PaginatedRequestParams => ListToolsResult;
    /// Calls a tool.
    CallToolRequest = "tools/call": CallToolRequestParams => CallToolResult;

    /// Lists resources.
    ListResourcesRequest = "resources/list": PaginatedRequestParams => ListResourcesResult;
    /// Lists resource templates.
    ListResourceTemplatesRequest = "resources/templates/list": PaginatedRequestParams => ListResourceTemplatesResult;
    /// Reads a resource.
    ReadResourceRequest = "resources/read": ReadResourceRequestParams => ReadResourceResult;
    /// Asks to hear about a resource (until 2025-11-25).
    SubscribeRequest = "resources/subscribe": SubscribeRequestParams => EmptyResult;
    /// Asks to hear no more about a resource (until 2025-11-25).
    UnsubscribeRequest = "resources/unsubscribe": UnsubscribeRequestParams => EmptyResult;

    /// Lists prompts.
    ListPromptsRequest = "prompts/list": PaginatedRequestParams => ListPromptsResult;
    /// Gets a prompt.
    GetPromptRequest = "prompts/get": GetPromptRequestParams => GetPromptResult;

    /// Completes an argument.
    CompleteRequest = "completion/complete": CompleteRequestParams => CompleteResult;
    /// Asks for log messages from a level on (until 2025-11-25).
    SetLevelRequest = "logging/setLevel": SetLevelRequestParams => EmptyResult;
    /// Asks to hear about changes (from 2026-07-28).
    SubscriptionsListenRequest = "subscriptions/listen": SubscriptionsListenRequestParams => SubscriptionsListenResult;

    /// Has the client's model write something.
    CreateMessageRequest = "sampling/createMessage": CreateMessageRequestParams => CreateMessageResult;
    /// Asks the client's user.
    ElicitRequest = "elicitation/create": ElicitRequestParams => ElicitResult;
    /// Asks which folders the client works on.
    ListRootsRequest = "roots/list": RequestParams => ListRootsResult;

    /// Asks how a task stands (2025-11-25 only).
    GetTaskRequest = "tasks/get": TaskRequestParams => GetTaskResult;
    /// Waits for the result of a task (2025-11-25 only).
    GetTaskPayloadRequest = "tasks/result": TaskRequestParams => GetTaskPayloadResult;
    /// Lists tasks (2025-11-25 only).
    ListTasksRequest = "tasks/list": PaginatedRequestParams => ListTasksResult;
    /// Cancels a task (2025-11-25 only).
    CancelTaskRequest = "tasks/cancel": TaskRequestParams => CancelTaskResult;
}

notices! {
    /// A request is no longer wanted.
    CancelledNotification = "notifications/cancelled": CancelledNotificationParams;
    /// A request has got further.
    ProgressNotification = "notifications/progress": ProgressNotificationParams;
    /// The client is ready (until 2025-11-25).
    InitializedNotification = "notifications/initialized": NotificationParams;
    /// A log message.
    LoggingMessageNotification = "notifications/message": LoggingMessageNotificationParams;

    /// The server will tell these changes (from 2026-07-28).
    SubscriptionsAcknowledgedNotification = "notifications/subscriptions/acknowledged": SubscriptionsAcknowledgedNotificationParams;
    /// The list of tools changed.
    ToolListChangedNotification = "notifications/tools/list_changed": NotificationParams;
    /// The list of prompts changed.
    PromptListChangedNotification = "notifications/prompts/list_changed": NotificationParams;
    /// The list of resources changed.
    ResourceListChangedNotification = "notifications/resources/list_changed": NotificationParams;
    /// A resource changed.
    ResourceUpdatedNotification = "notifications/resources/updated": ResourceUpdatedNotificationParams;
    /// The client's roots changed (until 2025-11-25).
    RootsListChangedNotification = "notifications/roots/list_changed": NotificationParams;

    /// What was asked at a URL is done (2025-11-25 only).
    ElicitationCompleteNotification = "notifications/elicitation/complete": ElicitationCompleteNotificationParams;
    /// A task stands differently now (2025-11-25 only).
    TaskStatusNotification = "notifications/tasks/status": TaskStatusNotificationParams;
}
