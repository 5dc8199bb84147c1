//! How far one request is: what decides whether, when and in which session it is cancelled.
//!
//! ```text
//! Waiting ──▶ Posted(session) ──head──▶ Answering(session)
//!    ▲             │
//!    └──reopened── Refused (the server did not process it)
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::session::Session;

/// How far a request is. Whether a connection has its body is not told here but by `Handed`, for a connection may be
/// polled by another task.
#[derive(Clone, Debug, Default)]
pub(super) enum Progress {
    /// For a predecessor with the same id, or for a session.
    #[default]
    Waiting,
    /// It is being posted in this session. Set before a connection can have the body.
    Posted(Arc<Session>),
    /// The head of the response is there, so that the server has the request.
    Answering(Arc<Session>),
    /// The server refused it without processing it: there is nothing to cancel.
    Refused,
}

impl Progress {
    /// The session in which the request was posted, and its cancel must be.
    pub(super) fn session(&self) -> Option<&Arc<Session>> {
        match self {
            Self::Posted(session) | Self::Answering(session) => Some(session),
            Self::Waiting | Self::Refused => None,
        }
    }

    /// Whether it is known if the server has the request.
    pub(super) fn is_decided(&self) -> bool {
        matches!(self, Self::Answering(_) | Self::Refused)
    }
}

/// Whether a request was dropped by its caller. Clones share it.
#[derive(Clone, Default)]
pub(super) struct GivenUp(Arc<AtomicBool>);

impl GivenUp {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Whether both are about the same request.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
