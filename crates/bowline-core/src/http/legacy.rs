//! The header names that only the legacy era uses.

use ::http::HeaderName;

/// Names the session a request belongs to: `Mcp-Session-Id`.
pub const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");

/// Names the event after which a stream is to be resumed: `Last-Event-ID`.
pub const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
