//! The methods and notifications of the protocol: name, params type and result type.

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

/// A request method: its name, its params and its result.
///
/// Implement it for custom methods. Where the response may be an
/// [`InputRequiredResult`](crate::InputRequiredResult) or a task instead, [`Result`](Self::Result) is the type
/// of the complete result, and the member `resultType` distinguishes them.
///
/// # Examples
///
/// ```
/// use bowline_types::{CallToolRequest, Method};
///
/// assert_eq!(CallToolRequest::NAME, "tools/call");
/// ```
pub trait Method {
    /// The method name.
    const NAME: &'static str;
    /// The params. Absent params are read as `{}`.
    type Params: Serialize + DeserializeOwned + Send + Sync + 'static;
    /// The result.
    type Result: Serialize + DeserializeOwned + Send + Sync + 'static;
}

/// A notification method: its name and its params.
pub trait NotificationMethod {
    /// The method name.
    const NAME: &'static str;
    /// The params. Absent params are read as `{}`.
    type Params: Serialize + DeserializeOwned + Send + Sync + 'static;
}

/// Declares marker types for request methods.
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

/// Declares marker types for notifications.
macro_rules! notification_methods {
    ($($(#[$docs:meta])* $marker:ident = $name:literal: $params:ty;)*) => {$(
        $(#[$docs])*
        #[derive(Clone, Copy, Debug)]
        #[non_exhaustive]
        pub struct $marker;

        impl NotificationMethod for $marker {
            const NAME: &'static str = $name;
            type Params = $params;
        }
    )*};
}

methods! {
    /// Requests the versions and capabilities of a server (from 2026-07-28).
    DiscoverRequest = "server/discover": RequestParams => DiscoverResult;
    /// Negotiates version and capabilities (until 2025-11-25).
    InitializeRequest = "initialize": InitializeRequestParams => InitializeResult;
    /// Checks that the peer responds (until 2025-11-25).
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
    /// Subscribes to updates of a resource (until 2025-11-25).
    SubscribeRequest = "resources/subscribe": SubscribeRequestParams => EmptyResult;
    /// Unsubscribes from updates of a resource (until 2025-11-25).
    UnsubscribeRequest = "resources/unsubscribe": UnsubscribeRequestParams => EmptyResult;

    /// Lists prompts.
    ListPromptsRequest = "prompts/list": PaginatedRequestParams => ListPromptsResult;
    /// Gets a prompt.
    GetPromptRequest = "prompts/get": GetPromptRequestParams => GetPromptResult;

    /// Requests completions for an argument.
    CompleteRequest = "completion/complete": CompleteRequestParams => CompleteResult;
    /// Sets the minimum level of log messages (until 2025-11-25).
    SetLevelRequest = "logging/setLevel": SetLevelRequestParams => EmptyResult;
    /// Subscribes to change notifications (from 2026-07-28).
    SubscriptionsListenRequest = "subscriptions/listen": SubscriptionsListenRequestParams => SubscriptionsListenResult;

    /// Requests a message from the client's model.
    CreateMessageRequest = "sampling/createMessage": CreateMessageRequestParams => CreateMessageResult;
    /// Requests input from the client's user.
    ElicitRequest = "elicitation/create": ElicitRequestParams => ElicitResult;
    /// Lists the client's roots.
    ListRootsRequest = "roots/list": RequestParams => ListRootsResult;

    /// Gets the status of a task (2025-11-25 only).
    GetTaskRequest = "tasks/get": TaskRequestParams => GetTaskResult;
    /// Waits for the result of a task (2025-11-25 only).
    GetTaskPayloadRequest = "tasks/result": TaskRequestParams => GetTaskPayloadResult;
    /// Lists tasks (2025-11-25 only).
    ListTasksRequest = "tasks/list": PaginatedRequestParams => ListTasksResult;
    /// Cancels a task (2025-11-25 only).
    CancelTaskRequest = "tasks/cancel": TaskRequestParams => CancelTaskResult;
}

notification_methods! {
    /// Cancels a request.
    CancelledNotification = "notifications/cancelled": CancelledNotificationParams;
    /// Reports the progress of a request.
    ProgressNotification = "notifications/progress": ProgressNotificationParams;
    /// The client has completed the handshake (until 2025-11-25).
    InitializedNotification = "notifications/initialized": NotificationParams;
    /// A log message.
    LoggingMessageNotification = "notifications/message": LoggingMessageNotificationParams;

    /// The server accepted a subscription (from 2026-07-28).
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

    /// A URL elicitation is complete (2025-11-25 only).
    ElicitationCompleteNotification = "notifications/elicitation/complete": ElicitationCompleteNotificationParams;
    /// The status of a task changed (2025-11-25 only).
    TaskStatusNotification = "notifications/tasks/status": TaskStatusNotificationParams;
}
