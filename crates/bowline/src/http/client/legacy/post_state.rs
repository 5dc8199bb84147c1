//! `PostState`, the state of the POST of one legacy request, which decides whether, when and in which session it is
//! cancelled; and `AbandonedFlag`, which is set when the caller drops the request.
//!
//! ```text
//! Waiting ──▶ Posted(session) ──response head──▶ Responded(session)
//!               │         ▲
//! lost, or withdrawn      │ new session (after a lost one)
//!               ▼         │
//!              Refused ───┘   (the server did not process the request)
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::session::WireSession;

/// The state of the POST of a request. Whether a connection has got its body is stored in `SendState` instead: the
/// task that polls the connection writes it, and that may be another one.
#[derive(Clone, Debug, Default)]
pub(super) enum PostState {
    /// Waits for an earlier request with the same id or for the same resource, or for a session.
    #[default]
    Waiting,
    /// Being posted in this session. Set before a connection can get the body.
    Posted(Arc<WireSession>),
    /// The response head has arrived, so the server has the request.
    Responded(Arc<WireSession>),
    /// The server did not process the request, so no cancel is needed.
    Refused,
}

impl PostState {
    /// Returns the session in which the request was posted; its cancel must be posted in the same one.
    pub(super) fn session(&self) -> Option<&Arc<WireSession>> {
        match self {
            Self::Posted(session) | Self::Responded(session) => Some(session),
            Self::Waiting | Self::Refused => None,
        }
    }

    /// Returns whether the server is known to have received or refused the request.
    pub(super) fn is_received_or_refused(&self) -> bool {
        matches!(self, Self::Responded(_) | Self::Refused)
    }
}

/// A flag that is set when the caller drops a request. Clones share it.
#[derive(Clone, Default)]
pub(super) struct AbandonedFlag(Arc<AtomicBool>);

impl AbandonedFlag {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Returns whether both belong to the same request.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
