//! The types of the Model Context Protocol: params, results and notifications of every revision.
//!
//! This crate only encodes and decodes. Four rules hold throughout:
//!
//! * **One type serves every revision of a definition.** It has the members of all of them; those that a
//!   revision lacks are `Option`s, and `None` is not serialized.
//! * **Open sets stay open.** `_meta`, capabilities, extension settings, subscription filters, result
//!   types, stop reasons, versions and types of content keep unknown values and serialize them again.
//!   Other objects ignore unknown members.
//! * **Application JSON stays text.** Tool schemas, arguments and structured output are [`Json`], so key
//!   order and number spelling survive, and `null` differs from absent where the specification requires it.
//! * **A method has types.** [`Method`] and [`NotificationMethod`] connect each method name to its params and result.
//!
//! JSON-RPC messages themselves are encoded and decoded by [`bowline-core`](https://docs.rs/bowline-core).
//!
//! # Examples
//!
//! ```
//! use bowline_types::{CallToolRequest, CallToolResult, Method};
//!
//! let text = r#"{"content": [{"type": "text", "text": "3"}], "structuredContent": {"sum": 3}}"#;
//! let result: CallToolResult = serde_json::from_str(text)?;
//!
//! assert_eq!(CallToolRequest::NAME, "tools/call");
//! assert_eq!(result.content[0].as_text(), Some("3"));
//! # Ok::<(), serde_json::Error>(())
//! ```

mod json;
pub use json::{Json, JsonObjectWriter};

mod number;
mod open_string_enum;
mod union;

mod id;
pub use id::{ProgressToken, RequestId};

mod version;
pub use version::ProtocolVersion;

mod meta;
pub use meta::{Meta, meta_key};

mod meta_grammar;
pub use meta_grammar::{MetaKeyError, check_extension_id, check_meta_key};

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
    LoggingMessageNotification, Method, NotificationMethod, PingRequest, ProgressNotification,
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
    CapabilitySettings, ClientCapabilities, ElicitationCapability, PromptsCapability,
    ResourcesCapability, RootsCapability, SamplingCapability, ServerCapabilities, ToolsCapability,
};

mod binary;
pub use binary::InvalidBase64;

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
    BooleanSchema, ElicitSchema, FormFields, NumberKind, NumberSchema, PrimitiveSchemaDefinition,
    StringFormat, StringSchema,
};

mod elicitation_enum;
pub use elicitation_enum::{
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

/// Compiles the code block of the README as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
