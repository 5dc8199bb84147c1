//! [`Limits`] on the memory and work that peers can cause, and [`Usage`], the current values.
//!
//! ```text
//! Limits ── configure ──▶ Account: all peers ◀── principal ◀── connection, wire or legacy session
//!                              │                                  │ charge, before allocating
//!                              ▼                                  ▼
//!                            Usage                              Charge ── returned when dropped
//! ```
//!
//! Memory that a peer can cause is charged to an [`Account`] before it is allocated. A charge beyond a limit is refused
//! with an error that names the limit, and counted.

mod account;
pub(crate) use account::{Account, Charge, ChargeKind};

mod read_budget;
pub use read_budget::ReadBudget;
pub(crate) use read_budget::{BudgetExceeded, ReadCharge};

mod semaphore;
pub(crate) use semaphore::LimitSemaphore;

mod usage;
pub use usage::Usage;
pub(crate) use usage::{Gauge, UsageCounters};

use bowline_types::{ErrorCode, Json, RpcError};

/// Limits on the memory and work that peers can cause. With the defaults a server fits into a container of 512 MiB.
///
/// A *peer* is a duplex wire, an HTTP/2 connection or a legacy session over HTTP. A *principal* is an authenticated
/// caller; anonymous callers have only the limits of their peer and those of the whole server.
///
/// Beyond a limit, HTTP requests are refused with status 503 (413 for a long message, 431 for a long head), and
/// requests on duplex wires with the error "overloaded"; its message and `data` name the limit.
/// [`Server::usage`](crate::Server::usage) returns the current usage and the number of refusals.
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
    reason = "users set some fields and use `..Limits::default()`"
)]
pub struct Limits {
    /// Bytes held for all peers: requests, queued output, events stored for resumption. Default: 128 MiB.
    ///
    /// The last quarter is reserved for requests of at most 64 KiB, so that a few large ones cannot block all others.
    pub total_bytes: usize,
    /// Bytes held for one principal. Default: 64 MiB.
    pub principal_bytes: usize,
    /// Bytes held for one peer. Default: 32 MiB.
    pub peer_bytes: usize,
    /// Maximum bytes of the body of an HTTP request. Default: 4 MiB. For lines, see
    /// [`Lines::max_line`](crate::wire::Lines::max_line).
    pub message_bytes: usize,
    /// Maximum bytes of the head of an HTTP request, on connections of `serve_http`; at least 8 KiB. Default: 16 KiB. A
    /// longer one is refused with status 431.
    pub head_bytes: usize,
    /// Output bytes queued for one duplex wire. Default: 4 MiB. Beyond it requests are answered with the short error
    /// "overloaded"; once as many bytes of errors are queued, the wire is closed.
    pub output_bytes: usize,
    /// Requests and notifications of the server queued for one duplex wire. Default: 16,384.
    pub output_messages: usize,
    /// Bytes of notifications queued for one call or subscription. Default: 8 MiB.
    pub unread_bytes: usize,
    /// Notifications queued for one call or subscription. Default: 1,024.
    pub unread_messages: usize,
    /// Requests in progress (being read or answered) for all peers, including subscriptions. Default: 16,384.
    pub requests: usize,
    /// Requests in progress for one principal. Default: 8,192.
    pub principal_requests: usize,
    /// Requests in progress for one peer. Default: 4,096.
    pub peer_requests: usize,
    /// Handlers running for all peers. Default: unlimited.
    pub handlers: usize,
    /// Synchronous handlers running for all peers, including those whose requests were cancelled. Default: 256.
    pub blocking: usize,
    /// Subscriptions of all peers. Default: 16,384. A legacy client has one for the lists and one for each resource.
    pub subscriptions: usize,
    /// Subscriptions of one peer. Default: 1,024.
    pub peer_subscriptions: usize,
    /// HTTP connections of `serve_http`. Default: 4,096. A further one replaces the one that has been idle, or has not
    /// sent a complete request, for longest; at most a quarter have not sent one. The last 64th answer probes only.
    pub connections: usize,
    /// Messages in one JSON-RPC batch (2025-03-26 only). Default: 100.
    pub batch_messages: usize,
    /// Legacy sessions over HTTP. Default: 10,000. A new session ends the one that was idle for longest.
    pub sessions: usize,
    /// Legacy sessions of one principal. Default: 1,000. A new session ends the principal's that was idle for longest.
    pub principal_sessions: usize,
    /// Bytes of events that all legacy sessions store for resumption. Default: 32 MiB. Beyond it the oldest are
    /// dropped.
    pub event_bytes: usize,
    /// Bytes of events that one legacy session stores for resumption. Default: 8 MiB. Beyond it its oldest are dropped.
    pub session_event_bytes: usize,
    /// Events that one legacy session stores for resumption. Default: 1,024. Beyond it its oldest are dropped.
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

    /// Returns the name of the field of [`Limits`].
    #[must_use]
    pub fn name(self) -> &'static str {
        self.description().0
    }

    /// Returns the name of the field, and a description of the unit it counts.
    fn description(self) -> (&'static str, &'static str) {
        match self {
            Self::TotalBytes => ("total_bytes", "bytes held for all peers"),
            Self::PrincipalBytes => ("principal_bytes", "bytes held for this principal"),
            Self::PeerBytes => ("peer_bytes", "bytes held for this peer"),
            Self::MessageBytes => ("message_bytes", "bytes of a message"),
            Self::HeadBytes => ("head_bytes", "bytes of a request's head"),
            Self::OutputBytes => ("output_bytes", "bytes queued for the peer"),
            Self::OutputMessages => ("output_messages", "messages queued for the peer"),
            Self::UnreadBytes => ("unread_bytes", "bytes of queued notifications"),
            Self::UnreadMessages => ("unread_messages", "queued notifications"),
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
            Self::EventBytes => ("event_bytes", "bytes of stored events of all sessions"),
            Self::SessionEventBytes => {
                ("session_event_bytes", "bytes of stored events of a session")
            }
            Self::SessionEvents => ("session_events", "stored events of a session"),
        }
    }

    fn index(self) -> usize {
        self as usize
    }
}

/// The error of a request that was refused because a limit is reached.
///
/// As an [`RpcError`] its message begins with "overloaded", and its `data` is `{"limit": name, "max": number}`. The
/// same request may succeed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("overloaded: {max} {} (limit `{}`)", limit.description().1, limit.name())]
#[non_exhaustive]
pub struct LimitReached {
    /// The limit.
    pub limit: Limit,
    /// Its value.
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
    fn every_limit_has_a_unique_index_and_the_name_of_its_field() {
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
