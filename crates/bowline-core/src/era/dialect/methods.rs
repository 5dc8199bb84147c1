//! The methods of the requests and notifications that each version defines.

use super::Methods;

/// The modern version, with the tasks extension.
pub(super) const V2026_07_28: Methods = Methods {
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
    ],
    // The tasks extension.
    extension_requests: &["tasks/get", "tasks/update", "tasks/cancel"],
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
};

/// The last legacy version; adds tasks to the core.
pub(super) const V2025_11_25: Methods = Methods {
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
    extension_requests: &[],
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
};

/// Adds `elicitation/create`.
pub(super) const V2025_06_18: Methods = Methods {
    server_requests: &[
        "ping",
        "sampling/createMessage",
        "roots/list",
        "elicitation/create",
    ],
    ..V2024_11_05
};

/// The first version; 2025-03-26 has the same methods.
pub(super) const V2024_11_05: Methods = Methods {
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
    extension_requests: &[],
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
};
