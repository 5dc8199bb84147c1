//! The codes of findings about sessions and HTTP+SSE, which only revisions before 2026-07-28 have.

use super::codes::Code;
use super::report::Severity::{Error, Warning};

pub(crate) static SESSION_LOST: Code = Code::new(
    "session-lost",
    Error,
    "Clients of legacy revisions must begin again in the middle of their work, or fail.",
    "Route all requests of a session to one replica (by the header Mcp-Session-Id), share sessions between replicas, \
     or serve without sessions.",
);

pub(crate) static SESSION_ID_INVALID: Code = Code::new(
    "session-id-invalid",
    Error,
    "Clients cannot send the id back in a header.",
    "Use visible ASCII characters only, for example a UUID.",
);

pub(crate) static SESSION_END_STATUS: Code = Code::new(
    "session-end-status",
    Warning,
    "Clients open a new session only after status 404, so that they fail for ever when a session has ended.",
    "Answer requests of a session that has ended with status 404.",
);

pub(crate) static MODERN_SESSION: Code = Code::new(
    "modern-session",
    Warning,
    "The modern era has no sessions; a client may keep an id that means nothing, and a proxy may route by it.",
    "Send Mcp-Session-Id only in answers to `initialize`.",
);

pub(crate) static NOTIFICATION_STATUS: Code = Code::new(
    "notification-status",
    Warning,
    "Strict clients expect status 202 for a notification, and wait for a message after any other.",
    "Answer accepted notifications with status 202 and no body.",
);

pub(crate) static SSE_ENDPOINT: Code = Code::new(
    "sse-endpoint",
    Error,
    "Clients refuse to post messages to another origin than that of the stream, because messages may contain a token.",
    "Name the endpoint by its path only, such as `/messages?session=…`; behind a proxy, do not insert the inner address.",
);

/// The codes of this file.
#[cfg(test)]
pub(crate) static CODES: &[&Code] = &[
    &SESSION_LOST,
    &SESSION_ID_INVALID,
    &SESSION_END_STATUS,
    &MODERN_SESSION,
    &NOTIFICATION_STATUS,
    &SSE_ENDPOINT,
];
