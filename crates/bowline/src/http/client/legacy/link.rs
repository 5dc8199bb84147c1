//! What the requests of one legacy wire have in common: how they are posted, and the session they are posted in.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bowline_core::era::{Dialect, VersionHeader};
use bowline_core::http::headers::PROTOCOL_VERSION;
use bowline_core::http::legacy::{LAST_EVENT_ID, SESSION_ID};
use bowline_core::{Response as Answer, shortened};
use bowline_types::{InitializeResult, RequestId};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::sleep;

use super::held::Held;
use super::progress::GivenUp;
use super::session::{Claim, Session, Sessions};
use crate::exchange::{Pause, Stopwatch, within};
use crate::http::client::body::ResponseBody;
use crate::http::client::response::{Events, Reply, no_answer, read};
use crate::http::client::send::Handed;
use crate::http::client::{Endpoint, Outgoing, WhenRefused, message_headers, stream_headers};
use crate::wire::Received;
use crate::{Error, Result};

/// What the requests of one wire share.
pub(crate) struct Link {
    pub(super) endpoint: Endpoint,
    incoming: mpsc::Sender<Delivery>,
    pub(super) sessions: watch::Sender<Sessions>,
    /// Wakes the requests that wait for a session, in the order in which they came. A `watch` wakes in any order.
    session_changed: Notify,
}

/// Something for the engine, on its way there.
pub(super) struct Delivery {
    pub(super) received: Received,
    /// Of the request that it is about, if it is about one.
    given_up: Option<GivenUp>,
    /// The request that is over when this arrives.
    pub(super) settles: Option<RequestId>,
}

impl Delivery {
    /// Something that is about no request in particular.
    pub(super) fn new(received: Received) -> Self {
        let (given_up, settles) = (None, None);
        Self {
            received,
            given_up,
            settles,
        }
    }

    /// Something about the request that `given_up` belongs to.
    pub(super) fn about(received: Received, given_up: &GivenUp) -> Self {
        Self {
            given_up: Some(given_up.clone()),
            ..Self::new(received)
        }
    }

    /// The end of a request.
    pub(super) fn end(received: Received, id: RequestId, given_up: &GivenUp) -> Self {
        Self {
            settles: Some(id),
            ..Self::about(received, given_up)
        }
    }

    pub(super) fn is_wanted(&self) -> bool {
        !self.given_up.as_ref().is_some_and(GivenUp::is_set)
    }

    /// Whether it is about the request that `given_up` belongs to.
    pub(super) fn is_about(&self, given_up: &GivenUp) -> bool {
        self.given_up.as_ref().is_some_and(|own| own.is(given_up))
    }
}

impl Link {
    pub(super) fn new(endpoint: Endpoint, incoming: mpsc::Sender<Delivery>) -> Self {
        Self {
            endpoint,
            incoming,
            sessions: watch::Sender::default(),
            session_changed: Notify::new(),
        }
    }

    /// Waits until it is known whether the current session has a GET stream.
    pub(super) async fn stream_is_decided(&self) {
        let mut sessions = self.sessions.subscribe();
        let is_decided = sessions.wait_for(|sessions| sessions.is_stream_decided);
        // Fails only when the link is gone, and this borrows it.
        drop(is_decided.await);
    }

    /// Changes the state of the session, and wakes the tasks that wait for it.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Sessions) -> T) -> T {
        let mut changed = None;
        self.sessions
            .send_modify(|sessions| changed = Some(change(sessions)));
        self.session_changed.notify_waiters();
        changed.expect("the state was just changed")
    }

    /// Takes note of what the answer to a handshake says.
    pub(super) fn issue(&self, headers: &HeaderMap, answer: &Answer) -> Arc<Session> {
        let result: Option<InitializeResult> = answer
            .outcome
            .as_ref()
            .ok()
            .and_then(|result| result.decode().ok());
        let dialect = result.and_then(|result| Dialect::of(result.protocol_version.as_str()));
        self.change(|sessions| sessions.issue(headers.get(SESSION_ID).cloned(), dialect))
    }

    /// The session that is open, if there is one.
    pub(super) fn current(&self) -> Option<Arc<Session>> {
        self.sessions.borrow().current().cloned()
    }

    /// The session to post in. While it is being reopened this waits; if that takes a person's decision, the time
    /// does not count for the request.
    pub(super) async fn session(&self, stopwatch: Option<&dyn Stopwatch>) -> Result<Arc<Session>> {
        let (mut own, mut is_stopped) = (None, false);
        let claimed = loop {
            let mut changed = pin!(self.session_changed.notified());
            changed.as_mut().enable(); // before the state is looked at
            let is_authorizing = self.sessions.borrow().is_authorizing;
            if let Some(stopwatch) = stopwatch
                && is_authorizing != is_stopped
            {
                is_stopped = is_authorizing;
                match is_stopped {
                    true => stopwatch.stop().await,
                    false => stopwatch.go_on().await,
                }
            }
            match self.claim(own) {
                Claim::Use(session) => break Ok(session),
                Claim::Fail(error) => break Err(share(&error)),
                // It may have begun before the request was made.
                Claim::Wait(attempt) => {
                    own.get_or_insert(attempt + 1);
                }
                Claim::Retry(attempt, earlier) => {
                    own.get_or_insert(attempt);
                    drop(earlier); // here, where no lock is held
                }
            }
            changed.await;
        };
        if let (Some(stopwatch), true) = (stopwatch, is_stopped) {
            stopwatch.go_on().await;
        }
        claimed
    }

    /// Claims a session, and wakes others only if that starts an attempt to open one.
    fn claim(&self, own: Option<u64>) -> Claim {
        let mut claim = None;
        let is_changed = self.sessions.send_if_modified(|sessions| {
            let claimed = claim.insert(sessions.claim(own));
            matches!(claimed, Claim::Retry(..))
        });
        if is_changed {
            self.session_changed.notify_waiters();
        }
        claim.expect("a session was just claimed")
    }

    /// Takes note of a 404 to something that was posted in `session`.
    pub(super) fn forget(&self, session: &Session) {
        let forget = |sessions: &mut Sessions| sessions.forget(session);
        if self.sessions.send_if_modified(forget) {
            self.session_changed.notify_waiters();
        }
    }

    pub(super) async fn post(
        &self,
        session: &Session,
        frame: Bytes,
        handed: &Handed,
        when_refused: WhenRefused<'_>,
    ) -> Result<Response<ResponseBody>> {
        let outgoing = Outgoing {
            method: Method::POST,
            headers: &|| Ok(headers(session, message_headers())),
            frame,
            handed,
            when_refused,
        };
        self.endpoint.request(&outgoing).await
    }

    /// Posts something that has no answer. If it fails, nobody can be told.
    pub(super) async fn post_quietly(
        &self,
        session: &Session,
        frame: Bytes,
        when_refused: WhenRefused<'_>,
    ) {
        for attempt in 0..MAX_POSTS {
            if attempt > 0 {
                sleep(FIRST_PAUSE * 2_u32.pow(attempt - 1)).await;
            }
            let handed = Handed::new();
            let posted = self.post(session, frame.clone(), &handed, when_refused);
            let error = match posted.await {
                Ok(response) if response.status().is_success() => return,
                Ok(response) => {
                    if response.status() == StatusCode::NOT_FOUND {
                        self.forget(session);
                    }
                    tracing::debug!(status = %response.status(), "a message was not accepted");
                    return;
                }
                Err(error) => error,
            };
            tracing::debug!(error = %shortened(&error), "failed to post a message");
            // The server may wait for it. If it has arrived after all, it does no harm to say it twice.
            if !matches!(error, Error::Transport { .. }) {
                return;
            }
        }
    }

    /// The same, within a time limit in which a person's decision does not count.
    pub(super) async fn post_in_time(&self, session: &Session, frame: Bytes) {
        let pause = Pause::default();
        let posting = async {
            let when_refused = WhenRefused::AuthorizeWhile(&pause);
            self.post_quietly(session, frame, when_refused).await;
            Ok(())
        };
        if within(super::POST_LIMIT, &pause, posting).await.is_err() {
            tracing::debug!("a message was not accepted in time");
        }
    }

    /// The clock of a request. Once the request is dropped it has no effect: the id may be that of another by then.
    pub(super) fn stopwatch<'a>(
        &'a self,
        id: &'a RequestId,
        given_up: &'a GivenUp,
    ) -> impl Stopwatch + 'a {
        Held::new(&self.incoming, id, |received| {
            Delivery::about(received, given_up)
        })
    }

    /// Hands something to the engine.
    pub(super) async fn deliver(&self, received: Received) {
        self.send(Delivery::new(received)).await;
    }

    /// Hands something about a request to the engine, unless the request was dropped when it gets there.
    pub(super) async fn tell_of(&self, received: Received, given_up: &GivenUp) {
        self.send(Delivery::about(received, given_up)).await;
    }

    /// Hands the end of a request to the engine, unless the request was dropped when it gets there.
    pub(super) async fn settle(&self, received: Received, id: &RequestId, given_up: &GivenUp) {
        self.send(Delivery::end(received, id.clone(), given_up))
            .await;
    }

    async fn send(&self, delivery: Delivery) {
        // Fails only when the wire is gone, and then nobody waits.
        let _ = self.incoming.send(delivery).await;
    }

    /// Opens a GET stream; `None` if the server has none.
    pub(super) async fn stream(
        &self,
        session: &Session,
        last_event: Option<&str>,
        when_refused: WhenRefused<'_>,
    ) -> Result<Option<Events>> {
        let mut headers = headers(session, stream_headers());
        if let Some(id) = last_event.and_then(|id| HeaderValue::from_str(id).ok()) {
            headers.insert(LAST_EVENT_ID, id);
        }
        let outgoing = Outgoing {
            method: Method::GET,
            headers: &|| Ok(headers.clone()),
            frame: Bytes::new(),
            handed: &Handed::new(),
            when_refused,
        };
        let response = self.endpoint.request(&outgoing).await?;
        match read(&self.endpoint, response).await? {
            Reply::Events(events) => Ok(Some(events)),
            Reply::Bare(StatusCode::METHOD_NOT_ALLOWED)
            | Reply::Json(StatusCode::METHOD_NOT_ALLOWED, _) => Ok(None),
            Reply::Bare(status) | Reply::Json(status, _) => Err(no_answer(status)),
        }
    }

    /// Tells the server that the session is over, if there is one.
    pub(super) async fn end(&self) {
        let session = self.current().filter(|session| session.id.is_some());
        if let Some(session) = session {
            let outgoing = Outgoing {
                method: Method::DELETE,
                headers: &|| Ok(headers(&session, HeaderMap::new())),
                frame: Bytes::new(),
                handed: &Handed::new(),
                when_refused: WhenRefused::GiveUp,
            };
            if let Err(error) = self.endpoint.request(&outgoing).await {
                tracing::debug!(error = %shortened(&error), "failed to end the session");
            }
        }
    }
}

/// How often something that has no answer is posted, if connections fail, and the pause after the first time.
const MAX_POSTS: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Adds what a request of `session` is known by.
pub(super) fn headers(session: &Session, mut headers: HeaderMap) -> HeaderMap {
    if let Some(id) = &session.id {
        headers.insert(SESSION_ID, id.clone());
    }
    if let Some(dialect) = session.dialect
        && dialect.http.version_header != VersionHeader::Never
    {
        headers.insert(PROTOCOL_VERSION, HeaderValue::from_static(dialect.version));
    }
    headers
}

/// The same error for each request that waited for what failed; its kind stays.
pub(super) fn share(error: &Arc<Error>) -> Error {
    match &**error {
        Error::Peer(refusal) => Error::Peer(refusal.clone()),
        Error::Timeout { after } => Error::Timeout { after: *after },
        Error::Protocol { what, .. } => Error::Protocol {
            what: what.clone(),
            source: Some(Box::new(error.clone())),
        },
        Error::Unauthorized { challenges, .. } => Error::Unauthorized {
            challenges: challenges.clone(),
            source: Some(Box::new(error.clone())),
        },
        _ => Error::Transport {
            what: "failed to open a new session".into(),
            source: Some(Box::new(error.clone())),
        },
    }
}
