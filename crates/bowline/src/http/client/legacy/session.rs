//! `SessionLifecycle`, the session state of one legacy wire, without I/O: which session to use, and when to open
//! another.
//!
//! ```text
//! Opening ──response──▶ Initializing ──initialized──▶ Open ──lost──▶ Reopening ──reopened──▶ Open
//!                                                                     │   ▲
//!                                                               failed▼   │a request claims a session, or a delay ends
//!                                                                   Failed
//! ```
//!
//! One task performs the handshakes (`WireState::run_background`), so that dropping the call that found the session lost
//! cannot interrupt one. Requests claim a session and wait while there is none.

use std::sync::Arc;

use bowline_core::era::Dialect;
use bytes::Bytes;
use http::HeaderValue;

use crate::Error;

/// One session. A request, its cancel and the GET that resumes its response use the same one.
#[derive(Debug, Default)]
pub(super) struct WireSession {
    /// Counts from 1 for each wire; 0 means no session.
    pub(super) number: u64,
    /// The `Mcp-Session-Id`; `None` if the server issued none.
    pub(super) id: Option<HeaderValue>,
    pub(super) dialect: Option<&'static Dialect>,
}

/// The current session of a wire, and the state of opening the next.
#[derive(Debug, Default)]
pub(super) struct SessionLifecycle {
    phase: SessionPhase,
    /// The `initialize` request, repeated to open a new session.
    handshake: Option<Bytes>,
    last_number: u64,
    attempts: u64,
    /// Whether the handshake waits for user authorization; the timeouts of waiting requests are suspended then.
    pub(super) is_authorizing: bool,
    /// Whether the first GET stream of this wire is open, refused or failed.
    pub(super) is_stream_decided: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) enum SessionPhase {
    /// `initialize` has no response yet.
    #[default]
    Opening,
    /// `initialize` has a response; `notifications/initialized` was not posted yet.
    Initializing(Arc<WireSession>),
    Open(Arc<WireSession>),
    /// The server has lost the session, and a new handshake is under way.
    Reopening {
        attempt: u64,
    },
    /// The new handshake failed.
    Failed {
        attempt: u64,
        error: Arc<Error>,
    },
}

/// What a request that needs a session must do next.
#[derive(Debug)]
pub(super) enum SessionClaim {
    Use(Arc<WireSession>),
    /// Wait for this attempt to open a session.
    Wait(u64),
    /// Wait for this attempt, which this request has started; the error is that of the attempt before.
    Retry(u64, Option<Arc<Error>>),
    /// Fail: an attempt that began after the request was made has failed.
    Fail(Arc<Error>),
}

impl SessionLifecycle {
    pub(super) fn phase(&self) -> &SessionPhase {
        &self.phase
    }

    pub(super) fn handshake(&self) -> Option<Bytes> {
        self.handshake.clone()
    }

    /// Returns the open session, if there is one.
    pub(super) fn current(&self) -> Option<&Arc<WireSession>> {
        match &self.phase {
            SessionPhase::Initializing(session) | SessionPhase::Open(session) => Some(session),
            SessionPhase::Opening
            | SessionPhase::Reopening { .. }
            | SessionPhase::Failed { .. } => None,
        }
    }

    /// Returns whether the session is gone and a new one is not open yet.
    pub(super) fn is_lost(&self) -> bool {
        matches!(
            self.phase,
            SessionPhase::Reopening { .. } | SessionPhase::Failed { .. }
        )
    }

    /// Starts over with an `initialize` request of the application. Returns the previous phase, so that the caller
    /// drops it without holding a lock.
    pub(super) fn begin(&mut self, handshake: Bytes) -> SessionPhase {
        self.handshake = Some(handshake);
        std::mem::take(&mut self.phase)
    }

    /// Creates the session that the response to `initialize` establishes.
    pub(super) fn issue(
        &mut self,
        id: Option<HeaderValue>,
        dialect: Option<&'static Dialect>,
    ) -> Arc<WireSession> {
        self.last_number += 1;
        Arc::new(WireSession {
            number: self.last_number,
            id,
            dialect,
        })
    }

    /// Records the response to the application's `initialize`.
    pub(super) fn record_initialize(&mut self, session: Arc<WireSession>) {
        if let SessionPhase::Opening = self.phase {
            self.phase = SessionPhase::Initializing(session);
        }
    }

    /// Records that the application's `notifications/initialized` was posted.
    pub(super) fn initialized(&mut self) {
        if let SessionPhase::Initializing(session) = &self.phase {
            self.phase = SessionPhase::Open(session.clone());
        }
    }

    /// Records that the server has lost `session`. Returns whether that ends the current session: not if `session` is an
    /// older one, or has no id.
    pub(super) fn forget(&mut self, session: &WireSession) -> bool {
        let is_current = session.id.is_some()
            && (self.current()).is_some_and(|current| current.number == session.number);
        if is_current {
            self.reopen();
        }
        is_current
    }

    /// Starts another attempt after a failed one; returns the error of that one.
    pub(super) fn retry(&mut self) -> Option<Arc<Error>> {
        match &self.phase {
            SessionPhase::Failed { .. } => self.reopen(),
            _ => None,
        }
    }

    fn reopen(&mut self) -> Option<Arc<Error>> {
        self.attempts += 1;
        let attempt = self.attempts;
        match std::mem::replace(&mut self.phase, SessionPhase::Reopening { attempt }) {
            SessionPhase::Failed { error, .. } => Some(error),
            _ => None,
        }
    }

    /// Records that the new handshake is complete.
    pub(super) fn reopened(&mut self, session: Arc<WireSession>) {
        self.is_authorizing = false;
        if let SessionPhase::Reopening { .. } = self.phase {
            self.phase = SessionPhase::Open(session);
        }
    }

    /// Records that the new handshake failed.
    pub(super) fn failed(&mut self, error: &Arc<Error>) {
        self.is_authorizing = false;
        if let SessionPhase::Reopening { attempt } = self.phase {
            let error = error.clone();
            self.phase = SessionPhase::Failed { attempt, error };
        }
    }

    /// Decides what a request must do next. A failed attempt is an error only for requests made before it began; `own`
    /// is the first such attempt of this request. Later requests start another attempt, because the cause of the
    /// failure may be gone.
    pub(super) fn claim(&mut self, own: Option<u64>) -> SessionClaim {
        match &self.phase {
            SessionPhase::Opening => SessionClaim::Use(Arc::default()),
            SessionPhase::Initializing(session) | SessionPhase::Open(session) => {
                SessionClaim::Use(session.clone())
            }
            SessionPhase::Reopening { attempt } => SessionClaim::Wait(*attempt),
            SessionPhase::Failed { attempt, error } if own.is_some_and(|own| own <= *attempt) => {
                SessionClaim::Fail(error.clone())
            }
            SessionPhase::Failed { .. } => {
                let failed = self.reopen();
                SessionClaim::Retry(self.attempts, failed)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> (SessionLifecycle, Arc<WireSession>) {
        let mut sessions = SessionLifecycle::default();
        sessions.begin(Bytes::from_static(b"{}"));
        let session = sessions.issue(Some(HeaderValue::from_static("s1")), None);
        sessions.record_initialize(session.clone());
        sessions.initialized();
        (sessions, session)
    }

    fn reopen(sessions: &mut SessionLifecycle) -> Arc<WireSession> {
        let next = sessions.issue(Some(HeaderValue::from_static("s2")), None);
        sessions.reopened(next.clone());
        next
    }

    fn used(claim: &SessionClaim) -> Option<u64> {
        match claim {
            SessionClaim::Use(session) => Some(session.number),
            SessionClaim::Wait(_) | SessionClaim::Retry(..) | SessionClaim::Fail(_) => None,
        }
    }

    #[test]
    fn concurrent_404s_end_a_session_once() {
        let (mut sessions, first) = open();

        assert!(sessions.forget(&first));
        assert!(!sessions.forget(&first), "a handshake is under way");
        let second = reopen(&mut sessions);

        assert!(!sessions.forget(&first), "a late 404 of the old session");
        assert!(sessions.forget(&second));
    }

    #[test]
    fn requests_wait_while_the_session_is_reopened() {
        let (mut sessions, first) = open();
        sessions.forget(&first);

        assert!(matches!(sessions.claim(None), SessionClaim::Wait(1)));
        assert!(sessions.current().is_none());
        reopen(&mut sessions);

        assert_eq!(used(&sessions.claim(Some(1))), Some(2));
    }

    #[test]
    fn a_failed_attempt_fails_the_requests_that_waited_for_it_and_the_next_one_tries_again() {
        let (mut sessions, first) = open();
        sessions.forget(&first);

        sessions.failed(&Arc::new(Error::Closed));

        assert!(matches!(sessions.claim(Some(1)), SessionClaim::Fail(_)));
        assert!(matches!(
            sessions.claim(None),
            SessionClaim::Retry(2, Some(_))
        ));
        reopen(&mut sessions);
        assert_eq!(used(&sessions.claim(Some(2))), Some(2));
    }

    #[test]
    fn before_the_first_answer_messages_are_posted_without_a_session() {
        let mut sessions = SessionLifecycle::default();
        sessions.begin(Bytes::from_static(b"{}"));

        assert_eq!(used(&sessions.claim(None)), Some(0));
        assert!(!sessions.is_lost());
    }

    #[test]
    fn a_404_without_a_session_id_ends_no_session() {
        let mut sessions = SessionLifecycle::default();
        sessions.begin(Bytes::from_static(b"{}"));
        let session = sessions.issue(None, None);
        sessions.record_initialize(session.clone());

        assert!(!sessions.forget(&session));
    }
}
