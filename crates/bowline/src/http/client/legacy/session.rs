//! The session of one legacy wire, without I/O: in which session a request is posted, and when another is opened.
//!
//! ```text
//! Opening ──answered──▶ Greeting ──initialized──▶ Open ──404──▶ Reopening ──reopened──▶ Open
//!                                                                 │   ▲
//!                                                           failed▼   │a request claims a session, or a pause is over
//!                                                               Failed
//! ```
//!
//! One task performs the handshakes (`Link::keep`), so that dropping the call that met the 404 cannot leave half a
//! handshake behind. Requests claim a session and wait while there is none.

use std::sync::Arc;

use bowline_core::era::Dialect;
use bytes::Bytes;
use http::HeaderValue;

use crate::Error;

/// One session. A request, its cancel and the GET that resumes its response are sent in the same one.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// 1 for the first of a wire; 0 for none.
    pub(super) number: u64,
    /// Absent if the server issued none.
    pub(super) id: Option<HeaderValue>,
    pub(super) dialect: Option<&'static Dialect>,
}

/// The current session of a wire, and the way to the next.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    phase: Phase,
    /// The `initialize` request, to be repeated when the server has forgotten the session.
    handshake: Option<Bytes>,
    last_number: u64,
    attempts: u64,
    /// Whether the handshake waits for authorization, which does not count as time of the requests that wait for it.
    pub(super) is_authorizing: bool,
    /// Whether the first GET stream of this wire is open, refused or failed.
    pub(super) is_stream_decided: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) enum Phase {
    /// No handshake was answered yet.
    #[default]
    Opening,
    /// `initialize` was answered, `notifications/initialized` was not posted yet.
    Greeting(Arc<Session>),
    Open(Arc<Session>),
    /// The server has forgotten the session, and a handshake is under way.
    Reopening {
        attempt: u64,
    },
    /// That handshake failed.
    Failed {
        attempt: u64,
        error: Arc<Error>,
    },
}

/// What a request that needs a session does next.
#[derive(Debug)]
pub(super) enum Claim {
    Use(Arc<Session>),
    /// Wait for this attempt to open a session.
    Wait(u64),
    /// Wait for this attempt, which this request has started after one that failed like that.
    Retry(u64, Option<Arc<Error>>),
    /// An attempt failed that began after the request was made.
    Fail(Arc<Error>),
}

impl Sessions {
    pub(super) fn phase(&self) -> &Phase {
        &self.phase
    }

    pub(super) fn handshake(&self) -> Option<Bytes> {
        self.handshake.clone()
    }

    /// The session that is open, if there is one.
    pub(super) fn current(&self) -> Option<&Arc<Session>> {
        match &self.phase {
            Phase::Greeting(session) | Phase::Open(session) => Some(session),
            Phase::Opening | Phase::Reopening { .. } | Phase::Failed { .. } => None,
        }
    }

    /// Whether the server has forgotten the session, and there is no other yet.
    pub(super) fn is_forgotten(&self) -> bool {
        matches!(self.phase, Phase::Reopening { .. } | Phase::Failed { .. })
    }

    /// The application sends `initialize`: earlier sessions no longer count. Returns what the phase was, to be dropped
    /// where no lock is held.
    pub(super) fn begin(&mut self, handshake: Bytes) -> Phase {
        self.handshake = Some(handshake);
        std::mem::take(&mut self.phase)
    }

    /// Numbers the session that the answer to a handshake names.
    pub(super) fn issue(
        &mut self,
        id: Option<HeaderValue>,
        dialect: Option<&'static Dialect>,
    ) -> Arc<Session> {
        self.last_number += 1;
        Arc::new(Session {
            number: self.last_number,
            id,
            dialect,
        })
    }

    /// The application's handshake was answered.
    pub(super) fn greet(&mut self, session: Arc<Session>) {
        if let Phase::Opening = self.phase {
            self.phase = Phase::Greeting(session);
        }
    }

    /// The application's `notifications/initialized` was posted.
    pub(super) fn initialized(&mut self) {
        if let Phase::Greeting(session) = &self.phase {
            self.phase = Phase::Open(session.clone());
        }
    }

    /// The server answered a request of `session` with 404. Returns whether that ends the current session; it does
    /// not if the answer is late, or if there was no session that could be forgotten.
    pub(super) fn forget(&mut self, session: &Session) -> bool {
        let is_current = session.id.is_some()
            && (self.current()).is_some_and(|current| current.number == session.number);
        if is_current {
            self.reopen();
        }
        is_current
    }

    /// Makes another attempt after one that failed; returns what that failed with.
    pub(super) fn retry(&mut self) -> Option<Arc<Error>> {
        match &self.phase {
            Phase::Failed { .. } => self.reopen(),
            _ => None,
        }
    }

    fn reopen(&mut self) -> Option<Arc<Error>> {
        self.attempts += 1;
        let attempt = self.attempts;
        match std::mem::replace(&mut self.phase, Phase::Reopening { attempt }) {
            Phase::Failed { error, .. } => Some(error),
            _ => None,
        }
    }

    /// A handshake of our own is complete.
    pub(super) fn reopened(&mut self, session: Arc<Session>) {
        self.is_authorizing = false;
        if let Phase::Reopening { .. } = self.phase {
            self.phase = Phase::Open(session);
        }
    }

    /// A handshake of our own failed.
    pub(super) fn failed(&mut self, error: &Arc<Error>) {
        self.is_authorizing = false;
        if let Phase::Reopening { attempt } = self.phase {
            let error = error.clone();
            self.phase = Phase::Failed { attempt, error };
        }
    }

    /// Decides what a request does next. The failure of an attempt is an error for the requests that were there when it
    /// began, and `own` is the first such attempt of this request. Other requests start another: what one attempt failed
    /// of may have been over before they were made.
    pub(super) fn claim(&mut self, own: Option<u64>) -> Claim {
        match &self.phase {
            Phase::Opening => Claim::Use(Arc::default()),
            Phase::Greeting(session) | Phase::Open(session) => Claim::Use(session.clone()),
            Phase::Reopening { attempt } => Claim::Wait(*attempt),
            Phase::Failed { attempt, error } if own.is_some_and(|own| own <= *attempt) => {
                Claim::Fail(error.clone())
            }
            Phase::Failed { .. } => {
                let failed = self.reopen();
                Claim::Retry(self.attempts, failed)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> (Sessions, Arc<Session>) {
        let mut sessions = Sessions::default();
        sessions.begin(Bytes::from_static(b"{}"));
        let session = sessions.issue(Some(HeaderValue::from_static("s1")), None);
        sessions.greet(session.clone());
        sessions.initialized();
        (sessions, session)
    }

    fn reopen(sessions: &mut Sessions) -> Arc<Session> {
        let next = sessions.issue(Some(HeaderValue::from_static("s2")), None);
        sessions.reopened(next.clone());
        next
    }

    fn used(claim: &Claim) -> Option<u64> {
        match claim {
            Claim::Use(session) => Some(session.number),
            Claim::Wait(_) | Claim::Retry(..) | Claim::Fail(_) => None,
        }
    }

    #[test]
    fn a_session_is_forgotten_once_however_many_requests_met_the_404() {
        let (mut sessions, first) = open();

        assert!(sessions.forget(&first));
        assert!(!sessions.forget(&first), "a handshake is under way");
        let second = reopen(&mut sessions);

        assert!(!sessions.forget(&first), "a late 404 of the old session");
        assert!(sessions.forget(&second));
    }

    #[test]
    fn nothing_is_posted_without_a_session_while_it_is_reopened() {
        let (mut sessions, first) = open();
        sessions.forget(&first);

        assert!(matches!(sessions.claim(None), Claim::Wait(1)));
        assert!(sessions.current().is_none());
        reopen(&mut sessions);

        assert_eq!(used(&sessions.claim(Some(1))), Some(2));
    }

    #[test]
    fn a_failed_attempt_fails_the_requests_that_waited_for_it_and_the_next_one_tries_again() {
        let (mut sessions, first) = open();
        sessions.forget(&first);

        sessions.failed(&Arc::new(Error::Closed));

        assert!(matches!(sessions.claim(Some(1)), Claim::Fail(_)));
        assert!(matches!(sessions.claim(None), Claim::Retry(2, Some(_))));
        reopen(&mut sessions);
        assert_eq!(used(&sessions.claim(Some(2))), Some(2));
    }

    #[test]
    fn before_the_first_answer_messages_are_posted_without_a_session() {
        let mut sessions = Sessions::default();
        sessions.begin(Bytes::from_static(b"{}"));

        assert_eq!(used(&sessions.claim(None)), Some(0));
        assert!(!sessions.is_forgotten());
    }

    #[test]
    fn a_server_that_issues_no_session_has_none_to_forget() {
        let mut sessions = Sessions::default();
        sessions.begin(Bytes::from_static(b"{}"));
        let session = sessions.issue(None, None);
        sessions.greet(session.clone());

        assert!(!sessions.forget(&session));
    }
}
