//! The names of spans, attributes and metrics: those of the OpenTelemetry semantic conventions for MCP, and ours beside
//! them under `bowline.*`. `tracing` fields have the same names.
//!
//! The conventions have the status *Development*: names may change. They moved from the general conventions (where
//! releases up to 1.44 still list them, as the PyPI package `opentelemetry-semantic-conventions` does) to the
//! conventions for generative AI. `cargo xtask otel` compares this file with the published package.

/// The release of the semantic conventions that these names are taken from.
pub const SEMCONV_VERSION: &str = "1.44.0";

/// The schema URL of the tracer and the meter.
pub const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.44.0";

/// The name of the tracer and the meter (the *instrumentation scope*).
pub const SCOPE: &str = "bowline";

/// Attributes of the conventions.
pub mod attribute {
    /// The method of the request or notification. `_OTHER` in metrics if the receiver does not know it.
    pub const MCP_METHOD_NAME: &str = "mcp.method.name";
    /// The protocol version, such as `2026-07-28`.
    pub const MCP_PROTOCOL_VERSION: &str = "mcp.protocol.version";
    /// The URI of a resource. On spans only: a metric would have one time series for each URI.
    pub const MCP_RESOURCE_URI: &str = "mcp.resource.uri";
    /// The legacy session of the request, over HTTP. Never set for protocol version 2026-07-28, which has none.
    pub const MCP_SESSION_ID: &str = "mcp.session.id";
    /// The JSON-RPC id of the request, as text.
    pub const JSONRPC_REQUEST_ID: &str = "jsonrpc.request.id";
    /// The JSON-RPC error code of the response, as text.
    pub const RPC_RESPONSE_STATUS_CODE: &str = "rpc.response.status_code";
    /// Why the operation failed; see [`error_type`](super::error_type). Absent if it did not.
    pub const ERROR_TYPE: &str = "error.type";
    /// The tool of `tools/call`.
    pub const GEN_AI_TOOL_NAME: &str = "gen_ai.tool.name";
    /// The prompt of `prompts/get`.
    pub const GEN_AI_PROMPT_NAME: &str = "gen_ai.prompt.name";
    /// [`EXECUTE_TOOL`](super::EXECUTE_TOOL) for `tools/call`, and absent otherwise.
    pub const GEN_AI_OPERATION_NAME: &str = "gen_ai.operation.name";
    /// The arguments of a tool call as JSON text. Recorded only if asked for.
    pub const GEN_AI_TOOL_CALL_ARGUMENTS: &str = "gen_ai.tool.call.arguments";
    /// The result of a tool call as JSON text. Recorded only if asked for.
    pub const GEN_AI_TOOL_CALL_RESULT: &str = "gen_ai.tool.call.result";
    /// `pipe`, `tcp`, `unix`, or `inproc` for a call within the process.
    pub const NETWORK_TRANSPORT: &str = "network.transport";
    /// `http` over HTTP, and absent otherwise.
    pub const NETWORK_PROTOCOL_NAME: &str = "network.protocol.name";
    /// The version of HTTP: `1.1` or `2`.
    pub const NETWORK_PROTOCOL_VERSION: &str = "network.protocol.version";
    /// The host that a client connects to.
    pub const SERVER_ADDRESS: &str = "server.address";
    /// The port that a client connects to.
    pub const SERVER_PORT: &str = "server.port";
    /// The name of the authenticated principal. On spans only.
    pub const ENDUSER_ID: &str = "enduser.id";

    /// Every attribute of the conventions in this file.
    pub const ALL: [&str; 18] = [
        MCP_METHOD_NAME,
        MCP_PROTOCOL_VERSION,
        MCP_RESOURCE_URI,
        MCP_SESSION_ID,
        JSONRPC_REQUEST_ID,
        RPC_RESPONSE_STATUS_CODE,
        ERROR_TYPE,
        GEN_AI_TOOL_NAME,
        GEN_AI_PROMPT_NAME,
        GEN_AI_OPERATION_NAME,
        GEN_AI_TOOL_CALL_ARGUMENTS,
        GEN_AI_TOOL_CALL_RESULT,
        NETWORK_TRANSPORT,
        NETWORK_PROTOCOL_NAME,
        NETWORK_PROTOCOL_VERSION,
        SERVER_ADDRESS,
        SERVER_PORT,
        ENDUSER_ID,
    ];
}

/// Metrics of the conventions: histograms in seconds, with the buckets of the conventions.
pub mod metric {
    /// From the request that a client sends until its answer.
    pub const CLIENT_OPERATION_DURATION: &str = "mcp.client.operation.duration";
    /// From the request that a server receives until its answer.
    pub const SERVER_OPERATION_DURATION: &str = "mcp.server.operation.duration";
    /// The life of a legacy connection, as a client sees it.
    pub const CLIENT_SESSION_DURATION: &str = "mcp.client.session.duration";
    /// The life of a legacy connection, as a server sees it.
    pub const SERVER_SESSION_DURATION: &str = "mcp.server.session.duration";

    /// Every metric of the conventions in this file.
    pub const ALL: [&str; 4] = [
        CLIENT_OPERATION_DURATION,
        SERVER_OPERATION_DURATION,
        CLIENT_SESSION_DURATION,
        SERVER_SESSION_DURATION,
    ];
}

/// The bucket boundaries that the conventions recommend, in seconds.
pub const DURATION_BUCKETS: [f64; 14] = [
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
];

/// The value of [`attribute::GEN_AI_OPERATION_NAME`] for `tools/call`.
pub const EXECUTE_TOOL: &str = "execute_tool";

/// The value of [`attribute::MCP_METHOD_NAME`] in metrics for a method that the receiver does not know, so that a peer
/// cannot create time series.
pub const OTHER: &str = "_OTHER";

/// Values of [`attribute::ERROR_TYPE`] besides JSON-RPC error codes.
pub mod error_type {
    /// A tool result with `isError`.
    pub const TOOL_ERROR: &str = "tool_error";
    /// The client's timeout elapsed.
    pub const TIMEOUT: &str = "timeout";
    /// The caller dropped or cancelled its call. On clients only: for a server it is no failure.
    pub const CANCELLED: &str = "cancelled";
    /// The transport failed.
    pub const TRANSPORT: &str = "transport";
    /// The peer violated the protocol.
    pub const PROTOCOL: &str = "protocol";
    /// The connection was closed.
    pub const CLOSED: &str = "closed";
    /// The server requires authorization.
    pub const UNAUTHORIZED: &str = "unauthorized";
    /// The handler panicked.
    pub const PANIC: &str = "panic";
    /// Any other failure.
    pub const OTHER: &str = super::OTHER;
}

/// JSON-RPC error codes that are no failure of the server that answers with them: the client sent what the server could
/// not serve. For the client that receives them they are errors like all others.
pub const CALLER_FAULTS: [i64; 5] = [
    -32700, // parse error
    -32600, // invalid request
    -32601, // method not found
    -32602, // invalid params, and unknown tools
    -32002, // resource not found, before 2026-07-28
];

/// The keys of `params._meta` in which the trace context travels, without a prefix (SEP-414).
pub const META_KEYS: [&str; 3] = ["traceparent", "tracestate", "baggage"];

/// Names of ours. No convention defines them.
pub mod bowline {
    /// The `resultType` of a result that is not complete: `input_required`, `task`.
    pub const RESULT_TYPE: &str = "bowline.result.type";
    /// Who cancelled a request: `peer`, `disconnect`, `shutdown` on a server, `caller`, `timeout` on a client.
    pub const CANCELLED_BY: &str = "bowline.cancelled.by";
    /// What the handler of a cancelled request did: `dropped`, or `returned` if it ran on to its end.
    pub const CANCELLED_HANDLER: &str = "bowline.cancelled.handler";
    /// The name of a field of [`Limits`](crate::Limits).
    pub const LIMIT: &str = "bowline.limit";
    /// What queued bytes belong to: `request`, `output`, `event`.
    pub const QUEUE: &str = "bowline.queue";
    /// The final status of a task: `completed`, `failed`, `cancelled`.
    pub const TASK_STATUS: &str = "bowline.task.status";

    /// Histogram, seconds: how long requests ran on the server before they were cancelled. Its count is the number of
    /// cancelled requests.
    pub const SERVER_CANCELLED_DURATION: &str = "bowline.server.cancelled.duration";
    /// Histogram, seconds: how long a client waited for requests that it cancelled, or that timed out.
    pub const CLIENT_CANCELLED_DURATION: &str = "bowline.client.cancelled.duration";
    /// Histogram: the number of requests that one call of a client took, because the server asked for input.
    pub const CLIENT_CALL_LEGS: &str = "bowline.client.call.legs";
    /// Up-down counter: requests that a server is answering.
    pub const SERVER_ACTIVE_REQUESTS: &str = "bowline.server.active_requests";
    /// Up-down counter: requests of clients without an answer yet.
    pub const CLIENT_ACTIVE_REQUESTS: &str = "bowline.client.active_requests";
    /// Up-down counter, bytes: what a server holds for its peers, by [`QUEUE`].
    pub const SERVER_QUEUED: &str = "bowline.server.queued";
    /// Up-down counter: HTTP connections of `serve_http`.
    pub const SERVER_CONNECTIONS: &str = "bowline.server.connections";
    /// Up-down counter: legacy sessions over HTTP.
    pub const SERVER_SESSIONS: &str = "bowline.server.sessions";
    /// Counter: refusals, dropped messages and closed connections, by [`LIMIT`].
    pub const SERVER_LIMIT_REACHED: &str = "bowline.server.limit.reached";
    /// Up-down counter: servers that drain.
    pub const SERVER_DRAINING: &str = "bowline.server.draining";
    /// Counter: requests that were refused because the server drains. They were not executed.
    pub const SERVER_DRAIN_REFUSED: &str = "bowline.server.drain.refused";
    /// Counter: requests that were cancelled because they did not finish within the grace period of a drain.
    pub const SERVER_DRAIN_CANCELLED: &str = "bowline.server.drain.cancelled";
    /// Up-down counter: tasks that this process runs.
    pub const SERVER_ACTIVE_TASKS: &str = "bowline.server.active_tasks";
    /// Histogram, seconds: from the creation of a task until its end, by [`TASK_STATUS`].
    pub const SERVER_TASK_DURATION: &str = "bowline.server.task.duration";

    /// Counter: messages to groups of replicas, such as changes, that the engine has taken.
    pub const CLUSTER_TOLD: &str = "bowline.cluster.told";
    /// Counter: messages to groups of replicas that could not be sent, because the engine is away or too many wait.
    pub const CLUSTER_LOST: &str = "bowline.cluster.lost";
    /// Counter: messages to groups of replicas that were received.
    pub const CLUSTER_DELIVERED: &str = "bowline.cluster.delivered";
    /// Counter: how many times messages to this replica may have been lost.
    pub const CLUSTER_MISSED: &str = "bowline.cluster.missed";

    /// Every metric of ours.
    pub const METRICS: [&str; 18] = [
        SERVER_CANCELLED_DURATION,
        CLIENT_CANCELLED_DURATION,
        CLIENT_CALL_LEGS,
        SERVER_ACTIVE_REQUESTS,
        CLIENT_ACTIVE_REQUESTS,
        SERVER_QUEUED,
        SERVER_CONNECTIONS,
        SERVER_SESSIONS,
        SERVER_LIMIT_REACHED,
        SERVER_DRAINING,
        SERVER_DRAIN_REFUSED,
        SERVER_DRAIN_CANCELLED,
        SERVER_ACTIVE_TASKS,
        SERVER_TASK_DURATION,
        CLUSTER_TOLD,
        CLUSTER_LOST,
        CLUSTER_DELIVERED,
        CLUSTER_MISSED,
    ];
}
