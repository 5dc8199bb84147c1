//! The vocabulary of the Model Context Protocol: every message of every revision as a plain type.
//!
//! No behaviour lives here beyond encoding and decoding. Four rules hold throughout:
//!
//! * **One type serves every revision of a shape.** It has the members of all of them; those that a
//!   revision lacks are `Option`s, and what is `None` is not written.
//! * **Open sets stay open.** `_meta`, capabilities, extension settings, subscription filters, result
//!   types, stop reasons, versions and kinds of content keep what they do not know and write it back.
//!   Other objects read past members they do not know.
//! * **Foreign JSON stays text.** Tool schemas, arguments and structured output are [`Json`], so key order
//!   and number spelling survive, and `null` differs from absent where the specification tells them apart.
//! * **A method names its types.** [`Method`] and [`Notice`] tie each name on the wire to its params and
//!   its result.
//!
//! JSON-RPC frames themselves are no vocabulary; `bowline-core` reads and writes them.

mod json;
pub use json::{Json, OpenObject};

mod number;
mod text;
mod union;

mod id;
pub use id::{ProgressToken, RequestId};

mod version;
pub use version::ProtocolVersion;

mod meta;
pub use meta::{Meta, meta_key};

mod meta_grammar;
pub use meta_grammar::{KeyError, check_extension_id, check_meta_key};

mod error;
pub use error::{
    ErrorCode, MissingRequiredClientCapability, RpcError, UnsupportedProtocolVersion,
    UrlElicitationRequired,
};

mod method;
pub use method::{
    CallToolRequest, CancelTaskRequest, CancelledNotification, CompleteRequest,
    CreateMessageRequest, DiscoverRequest, ElicitRequest, ElicitationCompleteNotification,
    GetPromptRequest, GetTaskPayloadRequest, GetTaskRequest, InitializeRequest,
    InitializedNotification, ListPromptsRequest, ListResourceTemplatesRequest,
    ListResourcesRequest, ListRootsRequest, ListTasksRequest, ListToolsRequest,
    LoggingMessageNotification, Method, Notice, PingRequest, ProgressNotification,
    PromptListChangedNotification, ReadResourceRequest, ResourceListChangedNotification,
    ResourceUpdatedNotification, RootsListChangedNotification, SetLevelRequest, SubscribeRequest,
    SubscriptionsAcknowledgedNotification, SubscriptionsListenRequest, TaskStatusNotification,
    ToolListChangedNotification, UnsubscribeRequest,
};

mod request;
pub use request::{
    CacheScope, Cursor, EmptyResult, PaginatedRequestParams, RequestParams, ResultType,
};

mod notification;
pub use notification::{
    CancelledNotificationParams, NotificationParams, ProgressNotificationParams,
};

mod lifecycle;
pub use lifecycle::{
    DiscoverResult, Icon, IconTheme, Implementation, InitializeRequestParams, InitializeResult,
};

mod capabilities;
pub use capabilities::{
    ClientCapabilities, ElicitationCapability, PromptsCapability, ResourcesCapability,
    RootsCapability, SamplingCapability, ServerCapabilities, Settings, ToolsCapability,
};

mod content;
pub use content::{
    Annotations, AudioContent, ContentBlock, EmbeddedResource, ImageContent, ResourceLink, Role,
    TextContent, UnknownContent,
};

mod tools;
pub use tools::{CallToolRequestParams, CallToolResult, ListToolsResult, Tool, ToolAnnotations};

mod resources;
pub use resources::{
    BlobResourceContents, ListResourceTemplatesResult, ListResourcesResult,
    ReadResourceRequestParams, ReadResourceResult, Resource, ResourceContents, ResourceTemplate,
    ResourceUpdatedNotificationParams, SubscribeRequestParams, TextResourceContents,
    UnsubscribeRequestParams,
};

mod prompts;
pub use prompts::{
    GetPromptRequestParams, GetPromptResult, ListPromptsResult, Prompt, PromptArgument,
    PromptMessage,
};

mod completion;
pub use completion::{
    CompleteArgument, CompleteContext, CompleteReference, CompleteRequestParams, CompleteResult,
    Completion, PromptReference, ResourceTemplateReference,
};

mod logging;
pub use logging::{LoggingLevel, LoggingMessageNotificationParams, SetLevelRequestParams};

mod subscriptions;
pub use subscriptions::{
    SubscriptionFilter, SubscriptionsAcknowledgedNotificationParams,
    SubscriptionsListenRequestParams, SubscriptionsListenResult,
};

mod input;
pub use input::{
    InputRequest, InputRequests, InputRequiredResult, InputResponses, UnknownInputRequest,
};

mod elicitation;
pub use elicitation::{
    ElicitAction, ElicitMode, ElicitRequestFormParams, ElicitRequestParams, ElicitRequestUrlParams,
    ElicitResult, ElicitationCompleteNotificationParams,
};

mod elicitation_schema;
pub use elicitation_schema::{
    BooleanSchema, ElicitSchema, Fields, NumberKind, NumberSchema, PrimitiveSchemaDefinition,
    StringFormat, StringSchema,
};

mod elicitation_choice;
pub use elicitation_choice::{
    EnumSchema, LegacyTitledEnumSchema, TitledItems, TitledMultiSelectEnumSchema,
    TitledSingleSelectEnumSchema, TitledValue, UntitledItems, UntitledMultiSelectEnumSchema,
    UntitledSingleSelectEnumSchema,
};

mod sampling;
pub use sampling::{
    CreateMessageRequestParams, CreateMessageResult, IncludeContext, ModelHint, ModelPreferences,
    SamplingContent, SamplingMessage, SamplingMessageContentBlock, StopReason, ToolChoice,
    ToolChoiceMode, ToolResultContent, ToolUseContent,
};

mod roots;
pub use roots::{ListRootsResult, Root};

pub mod legacy_tasks;
