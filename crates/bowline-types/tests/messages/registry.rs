//! Maps each definition of the specification to our type.

use bowline_types::legacy_tasks::{
    CancelTaskResult, CreateTaskResult, GetTaskPayloadResult, GetTaskResult, ListTasksResult,
    RelatedTaskMetadata, Task, TaskAugmentedRequestParams, TaskMetadata, TaskStatus,
    TaskStatusNotificationParams, ToolExecution,
};
use bowline_types::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Decodes a message and encodes it again.
pub(crate) type RoundTrip = fn(Value) -> Result<Value, String>;

/// The definitions of all revisions that have a type.
pub(crate) const TYPES: &[(&str, RoundTrip)] = &[
    ("Annotations", plain::<Annotations>),
    ("AudioContent", plain::<AudioContent>),
    ("BlobResourceContents", plain::<BlobResourceContents>),
    ("BooleanSchema", plain::<BooleanSchema>),
    ("CallToolRequest", request::<CallToolRequest>),
    ("CallToolRequestParams", plain::<CallToolRequestParams>),
    ("CallToolResult", plain::<CallToolResult>),
    ("CallToolResultResponse", response::<CallToolRequest>),
    ("CancelTaskRequest", request::<CancelTaskRequest>),
    ("CancelTaskResult", plain::<CancelTaskResult>),
    (
        "CancelledNotification",
        notification::<CancelledNotification>,
    ),
    (
        "CancelledNotificationParams",
        plain::<CancelledNotificationParams>,
    ),
    ("ClientCapabilities", plain::<ClientCapabilities>),
    ("CompleteRequest", request::<CompleteRequest>),
    ("CompleteRequestParams", plain::<CompleteRequestParams>),
    ("CompleteResult", plain::<CompleteResult>),
    ("CompleteResultResponse", response::<CompleteRequest>),
    ("ContentBlock", known_content),
    ("CreateMessageRequest", request::<CreateMessageRequest>),
    (
        "CreateMessageRequestParams",
        plain::<CreateMessageRequestParams>,
    ),
    ("CreateMessageResult", plain::<CreateMessageResult>),
    ("CreateTaskResult", plain::<CreateTaskResult>),
    ("Cursor", plain::<Cursor>),
    ("DiscoverRequest", request::<DiscoverRequest>),
    ("DiscoverResult", plain::<DiscoverResult>),
    ("DiscoverResultResponse", response::<DiscoverRequest>),
    ("ElicitRequest", request::<ElicitRequest>),
    ("ElicitRequestFormParams", plain::<ElicitRequestFormParams>),
    ("ElicitRequestParams", plain::<ElicitRequestParams>),
    ("ElicitRequestURLParams", plain::<ElicitRequestUrlParams>),
    ("ElicitResult", plain::<ElicitResult>),
    (
        "ElicitationCompleteNotification",
        notification::<ElicitationCompleteNotification>,
    ),
    ("EmbeddedResource", plain::<EmbeddedResource>),
    ("EmptyResult", plain::<EmptyResult>),
    ("EnumSchema", plain::<EnumSchema>),
    ("Error", plain::<RpcError>),
    ("GetPromptRequest", request::<GetPromptRequest>),
    ("GetPromptRequestParams", plain::<GetPromptRequestParams>),
    ("GetPromptResult", plain::<GetPromptResult>),
    ("GetPromptResultResponse", response::<GetPromptRequest>),
    ("GetTaskPayloadRequest", request::<GetTaskPayloadRequest>),
    ("GetTaskPayloadResult", plain::<GetTaskPayloadResult>),
    ("GetTaskRequest", request::<GetTaskRequest>),
    ("GetTaskResult", plain::<GetTaskResult>),
    ("HeaderMismatchError", header_mismatch),
    ("Icon", plain::<Icon>),
    ("ImageContent", plain::<ImageContent>),
    ("Implementation", plain::<Implementation>),
    ("InitializeRequest", request::<InitializeRequest>),
    ("InitializeRequestParams", plain::<InitializeRequestParams>),
    ("InitializeResult", plain::<InitializeResult>),
    (
        "InitializedNotification",
        notification::<InitializedNotification>,
    ),
    ("InputRequest", known_question),
    ("InputRequests", plain::<InputRequests>),
    ("InputRequiredResult", plain::<InputRequiredResult>),
    ("InputResponse", plain::<Json>),
    ("InputResponses", plain::<InputResponses>),
    ("InternalError", internal_error),
    ("InvalidParamsError", invalid_params),
    ("InvalidRequestError", invalid_request),
    ("JSONArray", plain::<Json>),
    ("JSONObject", plain::<CapabilitySettings>),
    ("JSONValue", plain::<Json>),
    ("LegacyTitledEnumSchema", plain::<LegacyTitledEnumSchema>),
    ("ListPromptsRequest", request::<ListPromptsRequest>),
    ("ListPromptsResult", plain::<ListPromptsResult>),
    ("ListPromptsResultResponse", response::<ListPromptsRequest>),
    (
        "ListResourceTemplatesRequest",
        request::<ListResourceTemplatesRequest>,
    ),
    (
        "ListResourceTemplatesResult",
        plain::<ListResourceTemplatesResult>,
    ),
    (
        "ListResourceTemplatesResultResponse",
        response::<ListResourceTemplatesRequest>,
    ),
    ("ListResourcesRequest", request::<ListResourcesRequest>),
    ("ListResourcesResult", plain::<ListResourcesResult>),
    (
        "ListResourcesResultResponse",
        response::<ListResourcesRequest>,
    ),
    ("ListRootsRequest", request::<ListRootsRequest>),
    ("ListRootsResult", plain::<ListRootsResult>),
    ("ListTasksRequest", request::<ListTasksRequest>),
    ("ListTasksResult", plain::<ListTasksResult>),
    ("ListToolsRequest", request::<ListToolsRequest>),
    ("ListToolsResult", plain::<ListToolsResult>),
    ("ListToolsResultResponse", response::<ListToolsRequest>),
    ("LoggingLevel", plain::<LoggingLevel>),
    (
        "LoggingMessageNotification",
        notification::<LoggingMessageNotification>,
    ),
    (
        "LoggingMessageNotificationParams",
        plain::<LoggingMessageNotificationParams>,
    ),
    ("MetaObject", meta),
    ("MethodNotFoundError", method_not_found),
    ("MissingRequiredClientCapabilityError", missing_capability),
    ("ModelHint", plain::<ModelHint>),
    ("ModelPreferences", plain::<ModelPreferences>),
    ("MultiSelectEnumSchema", plain::<EnumSchema>),
    ("NotificationMetaObject", meta),
    ("NotificationParams", plain::<NotificationParams>),
    ("NumberSchema", plain::<NumberSchema>),
    ("PaginatedRequestParams", plain::<PaginatedRequestParams>),
    ("ParseError", parse_error),
    ("PingRequest", request::<PingRequest>),
    ("PrimitiveSchemaDefinition", known_field),
    ("ProgressNotification", notification::<ProgressNotification>),
    (
        "ProgressNotificationParams",
        plain::<ProgressNotificationParams>,
    ),
    ("ProgressToken", plain::<ProgressToken>),
    ("Prompt", plain::<Prompt>),
    ("PromptArgument", plain::<PromptArgument>),
    (
        "PromptListChangedNotification",
        notification::<PromptListChangedNotification>,
    ),
    ("PromptMessage", plain::<PromptMessage>),
    ("PromptReference", plain::<PromptReference>),
    ("ReadResourceRequest", request::<ReadResourceRequest>),
    (
        "ReadResourceRequestParams",
        plain::<ReadResourceRequestParams>,
    ),
    ("ReadResourceResult", plain::<ReadResourceResult>),
    (
        "ReadResourceResultResponse",
        response::<ReadResourceRequest>,
    ),
    ("RelatedTaskMetadata", plain::<RelatedTaskMetadata>),
    ("RequestId", plain::<RequestId>),
    ("RequestMetaObject", meta),
    ("RequestParams", plain::<RequestParams>),
    ("Resource", plain::<Resource>),
    ("ResourceContents", plain::<ResourceContents>),
    ("ResourceLink", plain::<ResourceLink>),
    (
        "ResourceListChangedNotification",
        notification::<ResourceListChangedNotification>,
    ),
    ("ResourceReference", plain::<ResourceTemplateReference>),
    ("ResourceTemplate", plain::<ResourceTemplate>),
    (
        "ResourceTemplateReference",
        plain::<ResourceTemplateReference>,
    ),
    (
        "ResourceUpdatedNotification",
        notification::<ResourceUpdatedNotification>,
    ),
    (
        "ResourceUpdatedNotificationParams",
        plain::<ResourceUpdatedNotificationParams>,
    ),
    ("Result", plain::<EmptyResult>),
    ("ResultMetaObject", meta),
    ("ResultType", plain::<ResultType>),
    ("Role", plain::<Role>),
    ("Root", plain::<Root>),
    (
        "RootsListChangedNotification",
        notification::<RootsListChangedNotification>,
    ),
    ("SamplingMessage", plain::<SamplingMessage>),
    ("SamplingMessageContentBlock", known_sampling_content),
    ("ServerCapabilities", plain::<ServerCapabilities>),
    ("SetLevelRequest", request::<SetLevelRequest>),
    ("SetLevelRequestParams", plain::<SetLevelRequestParams>),
    ("SingleSelectEnumSchema", plain::<EnumSchema>),
    ("StringSchema", plain::<StringSchema>),
    ("SubscribeRequest", request::<SubscribeRequest>),
    ("SubscribeRequestParams", plain::<SubscribeRequestParams>),
    ("SubscriptionFilter", plain::<SubscriptionFilter>),
    (
        "SubscriptionsAcknowledgedNotification",
        notification::<SubscriptionsAcknowledgedNotification>,
    ),
    (
        "SubscriptionsAcknowledgedNotificationParams",
        plain::<SubscriptionsAcknowledgedNotificationParams>,
    ),
    (
        "SubscriptionsListenRequest",
        request::<SubscriptionsListenRequest>,
    ),
    (
        "SubscriptionsListenRequestParams",
        plain::<SubscriptionsListenRequestParams>,
    ),
    (
        "SubscriptionsListenResult",
        plain::<SubscriptionsListenResult>,
    ),
    ("SubscriptionsListenResultMetaObject", meta),
    (
        "SubscriptionsListenResultResponse",
        response::<SubscriptionsListenRequest>,
    ),
    ("Task", plain::<Task>),
    (
        "TaskAugmentedRequestParams",
        plain::<TaskAugmentedRequestParams>,
    ),
    ("TaskMetadata", plain::<TaskMetadata>),
    ("TaskStatus", plain::<TaskStatus>),
    (
        "TaskStatusNotification",
        notification::<TaskStatusNotification>,
    ),
    (
        "TaskStatusNotificationParams",
        plain::<TaskStatusNotificationParams>,
    ),
    ("TextContent", plain::<TextContent>),
    ("TextResourceContents", plain::<TextResourceContents>),
    (
        "TitledMultiSelectEnumSchema",
        plain::<TitledMultiSelectEnumSchema>,
    ),
    (
        "TitledSingleSelectEnumSchema",
        plain::<TitledSingleSelectEnumSchema>,
    ),
    ("Tool", plain::<Tool>),
    ("ToolAnnotations", plain::<ToolAnnotations>),
    ("ToolChoice", plain::<ToolChoice>),
    ("ToolExecution", plain::<ToolExecution>),
    (
        "ToolListChangedNotification",
        notification::<ToolListChangedNotification>,
    ),
    ("ToolResultContent", plain::<ToolResultContent>),
    ("ToolUseContent", plain::<ToolUseContent>),
    ("URLElicitationRequiredError", url_elicitation),
    ("UnsubscribeRequest", request::<UnsubscribeRequest>),
    (
        "UnsubscribeRequestParams",
        plain::<UnsubscribeRequestParams>,
    ),
    ("UnsupportedProtocolVersionError", unsupported_version),
    (
        "UntitledMultiSelectEnumSchema",
        plain::<UntitledMultiSelectEnumSchema>,
    ),
    (
        "UntitledSingleSelectEnumSchema",
        plain::<UntitledSingleSelectEnumSchema>,
    ),
];

/// The definitions without a type, and the reason.
pub(crate) const NO_TYPES: &[(&str, &str)] = &[
    ("Annotated", BASE),
    ("BaseMetadata", BASE),
    ("CacheableResult", BASE),
    ("ClientNotification", BY_METHOD),
    ("ClientRequest", BY_METHOD),
    ("ClientResult", BY_METHOD),
    ("Icons", BASE),
    ("InputResponseRequestParams", BASE),
    ("JSONRPCBatchRequest", FRAME),
    ("JSONRPCBatchResponse", FRAME),
    ("JSONRPCError", FRAME),
    ("JSONRPCErrorResponse", FRAME),
    ("JSONRPCMessage", FRAME),
    ("JSONRPCNotification", FRAME),
    ("JSONRPCRequest", FRAME),
    ("JSONRPCResponse", FRAME),
    ("JSONRPCResultResponse", FRAME),
    ("Notification", FRAME),
    ("PaginatedRequest", BASE),
    ("PaginatedResult", BASE),
    ("Request", FRAME),
    ("ResourceRequestParams", BASE),
    ("ServerNotification", BY_METHOD),
    ("ServerRequest", BY_METHOD),
    ("ServerResult", BY_METHOD),
];

const BASE: &str = "its members are repeated in every type that extends it";
const BY_METHOD: &str = "the method determines the variant of the union";
const FRAME: &str = "bowline-core encodes and decodes messages";

/// Returns the round-trip function of a definition.
pub(crate) fn round_trip(name: &str) -> Option<RoundTrip> {
    TYPES
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, round_trip)| *round_trip)
}

/// Decodes a message from text, from a value, and from our own encoding; all three must agree.
fn plain<T: Serialize + DeserializeOwned>(message: Value) -> Result<Value, String> {
    let text = Json::from(message.clone());
    let from_text: T = text.decode().map_err(|error| error.to_string())?;
    let encoded = Json::encode(&from_text).map_err(|error| error.to_string())?;
    let from_value: T = serde_json::from_value(message).map_err(|error| error.to_string())?;
    let from_ours: T = encoded.decode().map_err(|error| error.to_string())?;

    for other in [&from_value, &from_ours] {
        let other = Json::encode(other).map_err(|error| error.to_string())?;
        if other != encoded {
            return Err(format!("expected {encoded}, got {other}"));
        }
    }
    encoded.decode().map_err(|error| error.to_string())
}

fn request<M: Method>(message: Value) -> Result<Value, String> {
    expect(&message, "/method", &M::NAME.into())?;
    member::<M::Params>(message, "params")
}

fn notification<N: NotificationMethod>(message: Value) -> Result<Value, String> {
    expect(&message, "/method", &N::NAME.into())?;
    member::<N::Params>(message, "params")
}

fn response<M: Method>(message: Value) -> Result<Value, String> {
    let result_type = message
        .pointer("/result/resultType")
        .and_then(Value::as_str);
    if result_type == Some(ResultType::INPUT_REQUIRED.as_str()) {
        member::<InputRequiredResult>(message, "result")
    } else {
        member::<M::Result>(message, "result")
    }
}

fn error_response<D: Serialize + DeserializeOwned>(
    message: Value,
    code: ErrorCode,
) -> Result<Value, String> {
    let mut message = member::<RpcError>(message, "error")?;
    let error = message["error"].take();
    expect(&error, "/code", &code.0.into())?;
    message["error"] = member::<D>(error, "data")?;
    Ok(message)
}

fn error(message: Value, code: ErrorCode) -> Result<Value, String> {
    expect(&message, "/code", &code.0.into())?;
    plain::<RpcError>(message)
}

/// Round-trips one member of an object and keeps the others.
fn member<T: Serialize + DeserializeOwned>(mut object: Value, name: &str) -> Result<Value, String> {
    if let Some(value) = object.get_mut(name) {
        *value = plain::<T>(value.take())?;
    }
    Ok(object)
}

fn expect(message: &Value, pointer: &str, expected: &Value) -> Result<(), String> {
    match message.pointer(pointer) {
        Some(found) if found == expected => Ok(()),
        found => Err(format!("{pointer} is {found:?}, not {expected}")),
    }
}

/// Round-trips a `_meta` object, whose reserved keys must decode to their types.
fn meta(message: Value) -> Result<Value, String> {
    let meta: Meta = serde_json::from_value(message.clone()).map_err(|error| error.to_string())?;
    [
        meta.protocol_version().map(drop),
        meta.client_info().map(drop),
        meta.client_capabilities().map(drop),
        meta.log_level().map(drop),
        meta.progress_token().map(drop),
        meta.server_info().map(drop),
        meta.subscription_id().map(drop),
        meta.traceparent().map(drop),
        meta.tracestate().map(drop),
        meta.baggage().map(drop),
    ]
    .into_iter()
    .collect::<Result<(), _>>()
    .map_err(|error| error.to_string())?;
    plain::<Meta>(message)
}

fn known_content(message: Value) -> Result<Value, String> {
    match serde_json::from_value(message.clone()) {
        Ok(ContentBlock::Unknown(unknown)) => Err(format!("{} is not known", unknown.kind)),
        _ => plain::<ContentBlock>(message),
    }
}

fn known_sampling_content(message: Value) -> Result<Value, String> {
    match serde_json::from_value(message.clone()) {
        Ok(SamplingMessageContentBlock::Unknown(unknown)) => {
            Err(format!("{} is not known", unknown.kind))
        }
        _ => plain::<SamplingMessageContentBlock>(message),
    }
}

fn known_question(message: Value) -> Result<Value, String> {
    match serde_json::from_value(message.clone()) {
        Ok(InputRequest::Unknown(unknown)) => Err(format!("{} is not known", unknown.method)),
        _ => plain::<InputRequest>(message),
    }
}

fn known_field(message: Value) -> Result<Value, String> {
    match serde_json::from_value(message.clone()) {
        Ok(PrimitiveSchemaDefinition::Unknown(unknown)) => Err(format!("{unknown} is not known")),
        _ => plain::<PrimitiveSchemaDefinition>(message),
    }
}

fn parse_error(message: Value) -> Result<Value, String> {
    error(message, ErrorCode::PARSE_ERROR)
}

fn invalid_request(message: Value) -> Result<Value, String> {
    error(message, ErrorCode::INVALID_REQUEST)
}

fn method_not_found(message: Value) -> Result<Value, String> {
    error(message, ErrorCode::METHOD_NOT_FOUND)
}

fn invalid_params(message: Value) -> Result<Value, String> {
    error(message, ErrorCode::INVALID_PARAMS)
}

fn internal_error(message: Value) -> Result<Value, String> {
    error(message, ErrorCode::INTERNAL_ERROR)
}

fn header_mismatch(message: Value) -> Result<Value, String> {
    error_response::<Json>(message, ErrorCode::HEADER_MISMATCH)
}

fn missing_capability(message: Value) -> Result<Value, String> {
    error_response::<MissingRequiredClientCapability>(message, ErrorCode::MISSING_CLIENT_CAPABILITY)
}

fn unsupported_version(message: Value) -> Result<Value, String> {
    error_response::<UnsupportedProtocolVersion>(message, ErrorCode::UNSUPPORTED_PROTOCOL_VERSION)
}

fn url_elicitation(message: Value) -> Result<Value, String> {
    error_response::<UrlElicitationRequired>(message, ErrorCode::URL_ELICITATION_REQUIRED)
}
