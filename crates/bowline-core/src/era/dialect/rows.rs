//! The table: one row per version, each told by what it changed in the one before.

use bowline_types::ErrorCode;

use super::{
    Dialect, ElicitationModes, HttpFacts, HttpTransport, Methods, Opening, ServerAsksBy,
    StructuredContent, Tasks, VersionHeader,
};

pub(super) static V2026_07_28: Dialect = Dialect {
    version: "2026-07-28",
    opening: Opening::EveryRequest,
    server_asks_by: ServerAsksBy::InputRequired,
    results_are_typed: true,
    cacheable: &[
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
    ],
    may_need_input: &["tools/call", "prompts/get", "resources/read"],
    missing_resource: ErrorCode::INVALID_PARAMS,
    batches: false,
    structured_content: StructuredContent::Any,
    elicitation: ElicitationModes::FormAndUrl,
    tasks: Tasks::Extension,
    http: HttpFacts {
        transport: HttpTransport::Streamable,
        version_header: VersionHeader::Always,
        mirrors_body_in_headers: true,
        remembers_clients: false,
        resumable: false,
        primes_streams: false,
        disconnect_cancels: true,
    },
    methods: Methods {
        client_requests: &[
            "server/discover",
            "tools/list",
            "tools/call",
            "resources/list",
            "resources/templates/list",
            "resources/read",
            "prompts/list",
            "prompts/get",
            "completion/complete",
            "subscriptions/listen",
            // The tasks extension.
            "tasks/get",
            "tasks/update",
            "tasks/cancel",
        ],
        server_requests: &[],
        client_notifications: &["notifications/cancelled"],
        server_notifications: &[
            "notifications/cancelled",
            "notifications/progress",
            "notifications/message",
            "notifications/subscriptions/acknowledged",
            "notifications/tools/list_changed",
            "notifications/prompts/list_changed",
            "notifications/resources/list_changed",
            "notifications/resources/updated",
            // The tasks extension.
            "notifications/tasks",
        ],
    },
};

pub(super) static V2025_11_25: Dialect = Dialect {
    version: "2025-11-25",
    elicitation: ElicitationModes::FormAndUrl,
    tasks: Tasks::Core,
    http: HttpFacts {
        primes_streams: true,
        ..V2025_06_18.http
    },
    methods: Methods {
        client_requests: &[
            "initialize",
            "ping",
            "logging/setLevel",
            "tools/list",
            "tools/call",
            "resources/list",
            "resources/templates/list",
            "resources/read",
            "resources/subscribe",
            "resources/unsubscribe",
            "prompts/list",
            "prompts/get",
            "completion/complete",
            "tasks/get",
            "tasks/result",
            "tasks/list",
            "tasks/cancel",
        ],
        server_requests: &[
            "ping",
            "sampling/createMessage",
            "roots/list",
            "elicitation/create",
            "tasks/get",
            "tasks/result",
            "tasks/list",
            "tasks/cancel",
        ],
        client_notifications: &[
            "notifications/initialized",
            "notifications/cancelled",
            "notifications/progress",
            "notifications/roots/list_changed",
            "notifications/tasks/status",
        ],
        server_notifications: &[
            "notifications/cancelled",
            "notifications/progress",
            "notifications/message",
            "notifications/tools/list_changed",
            "notifications/prompts/list_changed",
            "notifications/resources/list_changed",
            "notifications/resources/updated",
            "notifications/elicitation/complete",
            "notifications/tasks/status",
        ],
    },
    ..V2025_06_18
};

pub(super) static V2025_06_18: Dialect = Dialect {
    version: "2025-06-18",
    batches: false,
    structured_content: StructuredContent::Object,
    elicitation: ElicitationModes::Form,
    http: HttpFacts {
        version_header: VersionHeader::AfterOpening,
        ..V2025_03_26.http
    },
    methods: Methods {
        server_requests: &[
            "ping",
            "sampling/createMessage",
            "roots/list",
            "elicitation/create",
        ],
        ..V2025_03_26.methods
    },
    ..V2025_03_26
};

pub(super) static V2025_03_26: Dialect = Dialect {
    version: "2025-03-26",
    batches: true,
    http: HttpFacts {
        transport: HttpTransport::Streamable,
        remembers_clients: true,
        resumable: true,
        ..V2024_11_05.http
    },
    ..V2024_11_05
};

pub(super) static V2024_11_05: Dialect = Dialect {
    version: "2024-11-05",
    opening: Opening::Handshake,
    server_asks_by: ServerAsksBy::Request,
    results_are_typed: false,
    cacheable: &[],
    may_need_input: &[],
    missing_resource: ErrorCode::RESOURCE_NOT_FOUND,
    batches: false,
    structured_content: StructuredContent::Absent,
    elicitation: ElicitationModes::None,
    tasks: Tasks::None,
    http: HttpFacts {
        transport: HttpTransport::TwoEndpoints,
        version_header: VersionHeader::Never,
        mirrors_body_in_headers: false,
        remembers_clients: false,
        resumable: false,
        primes_streams: false,
        disconnect_cancels: false,
    },
    methods: Methods {
        client_requests: &[
            "initialize",
            "ping",
            "logging/setLevel",
            "tools/list",
            "tools/call",
            "resources/list",
            "resources/templates/list",
            "resources/read",
            "resources/subscribe",
            "resources/unsubscribe",
            "prompts/list",
            "prompts/get",
            "completion/complete",
        ],
        server_requests: &["ping", "sampling/createMessage", "roots/list"],
        client_notifications: &[
            "notifications/initialized",
            "notifications/cancelled",
            "notifications/progress",
            "notifications/roots/list_changed",
        ],
        server_notifications: &[
            "notifications/cancelled",
            "notifications/progress",
            "notifications/message",
            "notifications/tools/list_changed",
            "notifications/prompts/list_changed",
            "notifications/resources/list_changed",
            "notifications/resources/updated",
        ],
    },
};
