//! How much peers can make this process hold and do.
//!
//! ```text
//! Limits ── configure ──▶ Account: all peers ◀── principal ◀── connection, wire or legacy session
//!                              │                                  │ charge, before it is spent
//!                              ▼                                  ▼
//!                            Usage                              Charge ── given back when dropped
//! ```
//!
//! Whatever a peer can make us hold is charged to an [`Account`] first. A charge that does not fit is refused with an
//! error that names the limit, and counted.

mod account;
pub(crate) use account::{Account, Charge, Held};

mod places;
pub(crate) use places::Places;

mod usage;
pub use usage::Usage;
pub(crate) use usage::{Gauge, Meters};

use bowline_types::{ErrorCode, Json, RpcError};

/// How much peers can make a server hold and do. The defaults keep a server within a container of 512 MiB.
///
/// A *peer* is a duplex wire, an HTTP/2 connection or a legacy session over HTTP. A *principal* is an authenticated
/// caller; anonymous callers have only the limits of their peer and those of the whole server.
///
/// Beyond a limit, HTTP requests are refused with status 503 (413 for a long message, 431 for a long head), requests on duplex wires with the
/// error "overloaded"; the message and the `data` of the error name the limit. [`Server::usage`](crate::Server::usage)
/// counts what is held and what was refused.
///
/// # Examples
///
/// ```
/// use bowline::{Limits, Server};
///
/// let server = Server::new("small", "1.0.0").limits(Limits {
///     total_bytes: 16 * 1024 * 1024,
///     requests: 500,
///     ..Limits::default()
/// });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_structs,
    reason = "users name what they choose and leave the rest"
)]
pub struct Limits {
    /// Bytes held for all peers together: requests, queued output, events kept for resumption. 128 MiB.
    ///
    /// The last quarter is kept for small requests, of at most 64 KiB, so that few large ones cannot lock everybody out.
    pub total_bytes: usize,
    /// Bytes held for one principal. 64 MiB.
    pub principal_bytes: usize,
    /// Bytes held for one peer. 32 MiB.
    pub peer_bytes: usize,
    /// The longest body of an HTTP request, in bytes. 4 MiB. The longest line of a duplex wire is that wire's own setting.
    pub message_bytes: usize,
    /// The longest head of an HTTP request over a connection of `serve_http`, in bytes; at least 8 KiB. 16 KiB. A longer one is
    /// refused with status 431.
    pub head_bytes: usize,
    /// Bytes that wait for one duplex wire to be read. 4 MiB. Beyond it requests are answered with the short error
    /// "overloaded"; at twice the limit the wire is closed.
    pub output_bytes: usize,
    /// Messages of our own, calls and notifications, that wait for one duplex wire to be read. 16,384.
    pub output_messages: usize,
    /// Bytes of notifications that wait for a slow listener of one call or subscription. 8 MiB.
    pub unread_bytes: usize,
    /// Notifications that wait for a slow listener of one call or subscription. 1,024.
    pub unread_messages: usize,
    /// Requests being read or answered for all peers together, subscriptions included. 16,384.
    pub requests: usize,
    /// Requests being read or answered for one principal. 8,192.
    pub principal_requests: usize,
    /// Requests being read or answered for one peer. 4,096.
    pub peer_requests: usize,
    /// Handlers that run for all peers together. Unlimited.
    pub handlers: usize,
    /// Synchronous handlers that run for all peers together, including those whose callers gave up. 256.
    pub blocking: usize,
    /// Subscriptions of all peers together. 16,384. A client of the legacy era has one for the lists and one for each resource.
    pub subscriptions: usize,
    /// Subscriptions of one peer. 1,024.
    pub peer_subscriptions: usize,
    /// HTTP connections of `serve_http`. 4,096. More are not accepted until one ends.
    pub connections: usize,
    /// Messages in one JSON-RPC batch (2025-03-26 only). 100.
    pub batch_messages: usize,
    /// Legacy sessions over HTTP. 10,000. To open one more, the one that was idle for longest is ended.
    pub sessions: usize,
    /// Legacy sessions of one principal. 1,000. To open one more, its own that was idle for longest is ended.
    pub principal_sessions: usize,
    /// Bytes of events that all legacy sessions together keep for resumption. 32 MiB. Beyond it the oldest are dropped.
    pub event_bytes: usize,
    /// Bytes of events that one legacy session keeps for resumption. 8 MiB. Beyond it its oldest are dropped.
    pub session_event_bytes: usize,
    /// Events that one legacy session keeps for resumption. 1,024. Beyond it its oldest are dropped.
    pub session_events: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            total_bytes: 128 * MIB,
            principal_bytes: 64 * MIB,
            peer_bytes: 32 * MIB,
            message_bytes: 4 * MIB,
            head_bytes: 16 * 1024,
            output_bytes: 4 * MIB,
            output_messages: 16_384,
            unread_bytes: 8 * MIB,
            unread_messages: 1_024,
            requests: 16_384,
            principal_requests: 8_192,
            peer_requests: 4_096,
            handlers: usize::MAX,
            blocking: 256,
            subscriptions: 16_384,
            peer_subscriptions: 1_024,
            connections: 4_096,
            batch_messages: 100,
            sessions: 10_000,
            principal_sessions: 1_000,
            event_bytes: 32 * MIB,
            session_event_bytes: 8 * MIB,
            session_events: 1_024,
        }
    }
}

/// One field of [`Limits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Limit {
    /// [`Limits::total_bytes`]
    TotalBytes,
    /// [`Limits::principal_bytes`]
    PrincipalBytes,
    /// [`Limits::peer_bytes`]
    PeerBytes,
    /// [`Limits::message_bytes`]
    MessageBytes,
    /// [`Limits::head_bytes`]
    HeadBytes,
    /// [`Limits::output_bytes`]
    OutputBytes,
    /// [`Limits::output_messages`]
    OutputMessages,
    /// [`Limits::unread_bytes`]
    UnreadBytes,
    /// [`Limits::unread_messages`]
    UnreadMessages,
    /// [`Limits::requests`]
    Requests,
    /// [`Limits::principal_requests`]
    PrincipalRequests,
    /// [`Limits::peer_requests`]
    PeerRequests,
    /// [`Limits::handlers`]
    Handlers,
    /// [`Limits::blocking`]
    Blocking,
    /// [`Limits::subscriptions`]
    Subscriptions,
    /// [`Limits::peer_subscriptions`]
    PeerSubscriptions,
    /// [`Limits::connections`]
    Connections,
    /// [`Limits::batch_messages`]
    BatchMessages,
    /// [`Limits::sessions`]
    Sessions,
    /// [`Limits::principal_sessions`]
    PrincipalSessions,
    /// [`Limits::event_bytes`]
    EventBytes,
    /// [`Limits::session_event_bytes`]
    SessionEventBytes,
    /// [`Limits::session_events`]
    SessionEvents,
}

impl Limit {
    /// Every limit, in the order of the fields of [`Limits`].
    pub const ALL: [Self; 23] = [
        Self::TotalBytes,
        Self::PrincipalBytes,
        Self::PeerBytes,
        Self::MessageBytes,
        Self::HeadBytes,
        Self::OutputBytes,
        Self::OutputMessages,
        Self::UnreadBytes,
        Self::UnreadMessages,
        Self::Requests,
        Self::PrincipalRequests,
        Self::PeerRequests,
        Self::Handlers,
        Self::Blocking,
        Self::Subscriptions,
        Self::PeerSubscriptions,
        Self::Connections,
        Self::BatchMessages,
        Self::Sessions,
        Self::PrincipalSessions,
        Self::EventBytes,
        Self::SessionEventBytes,
        Self::SessionEvents,
    ];

    /// The name of the field of [`Limits`] that sets it.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.in_words().0
    }

    /// The name of its field, and what it counts.
    fn in_words(self) -> (&'static str, &'static str) {
        match self {
            Self::TotalBytes => ("total_bytes", "bytes held for all peers"),
            Self::PrincipalBytes => ("principal_bytes", "bytes held for this principal"),
            Self::PeerBytes => ("peer_bytes", "bytes held for this peer"),
            Self::MessageBytes => ("message_bytes", "bytes of a message"),
            Self::HeadBytes => ("head_bytes", "bytes of a request's head"),
            Self::OutputBytes => ("output_bytes", "bytes that the peer has not read"),
            Self::OutputMessages => ("output_messages", "messages that the peer has not read"),
            Self::UnreadBytes => ("unread_bytes", "bytes of notifications not taken"),
            Self::UnreadMessages => ("unread_messages", "notifications not taken"),
            Self::Requests => ("requests", "requests in progress for all peers"),
            Self::PrincipalRequests => (
                "principal_requests",
                "requests in progress for this principal",
            ),
            Self::PeerRequests => ("peer_requests", "requests in progress for this peer"),
            Self::Handlers => ("handlers", "handlers running"),
            Self::Blocking => ("blocking", "synchronous handlers running"),
            Self::Subscriptions => ("subscriptions", "subscriptions of all peers"),
            Self::PeerSubscriptions => ("peer_subscriptions", "subscriptions of this peer"),
            Self::Connections => ("connections", "connections"),
            Self::BatchMessages => ("batch_messages", "messages in a batch"),
            Self::Sessions => ("sessions", "sessions"),
            Self::PrincipalSessions => ("principal_sessions", "sessions of this principal"),
            Self::EventBytes => ("event_bytes", "bytes of events kept for all sessions"),
            Self::SessionEventBytes => {
                ("session_event_bytes", "bytes of events kept for a session")
            }
            Self::SessionEvents => ("session_events", "events kept for a session"),
        }
    }

    fn index(self) -> usize {
        self as usize
    }
}

/// Something was refused because a limit is reached.
///
/// As an [`RpcError`] its message begins with "overloaded", and its `data` is `{"limit": name, "max": number}`. The same
/// request may succeed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("overloaded: {max} {} (limit `{}`)", limit.in_words().1, limit.name())]
#[non_exhaustive]
pub struct LimitReached {
    /// Which limit.
    pub limit: Limit,
    /// What it is set to.
    pub max: usize,
}

impl LimitReached {
    pub(crate) fn new(limit: Limit, max: usize) -> Self {
        Self { limit, max }
    }
}

impl From<LimitReached> for RpcError {
    fn from(reached: LimitReached) -> Self {
        let mut error = Self::new(ErrorCode::INTERNAL_ERROR, reached.to_string());
        let data = serde_json::json!({"limit": reached.limit.name(), "max": reached.max});
        error.data = Json::encode(&data).ok();
        error
    }
}

const MIB: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_has_an_index_of_its_own_and_names_its_field() {
        let debug = format!("{:?}", Limits::default());

        for (index, limit) in Limit::ALL.into_iter().enumerate() {
            assert_eq!(limit.index(), index);
            let field = format!("{}: ", limit.name());
            assert!(
                debug.contains(&field),
                "`Limits` has no field `{}`",
                limit.name()
            );
        }
        assert_eq!(debug.matches(": ").count(), Limit::ALL.len());
    }

    #[test]
    fn an_error_names_its_limit() {
        let error = RpcError::from(LimitReached::new(Limit::PeerBytes, 7));

        assert_eq!(
            error.message,
            "overloaded: 7 bytes held for this peer (limit `peer_bytes`)"
        );
        assert_eq!(
            error.data.unwrap().as_str(),
            r#"{"limit":"peer_bytes","max":7}"#
        );
    }
}
