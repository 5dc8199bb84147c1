//! `WireState`, the state that the tasks of one legacy wire share: the endpoint, the sessions, and the queue to the
//! engine.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bowline_core::era::{Dialect, VersionHeader};
use bowline_core::http::headers::PROTOCOL_VERSION;
use bowline_core::http::legacy::{LAST_EVENT_ID, SESSION_ID};
use bowline_core::{Message, Response as Answer, shortened};
use bowline_types::{InitializeResult, RequestId};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::sleep;

use super::engine_timeout_control::EngineTimeoutControl;
use super::post_state::AbandonedFlag;
use super::session::{SessionClaim, SessionLifecycle, WireSession};
use crate::exchange::{TimeoutControl, TimeoutPause, timeout_with_pauses};
use crate::http::client::body::ResponseBody;
use crate::http::client::response::{ResponseContent, SseStream, read};
use crate::http::client::send::SendState;
use crate::http::client::{
    Endpoint, OutgoingRequest, RefusalPolicy, message_headers, stream_headers,
};
use crate::wire::{Received, WireEvent};
use crate::{Error, Result};

/// The shared state of one legacy wire.
pub(crate) struct WireState {
    pub(super) endpoint: Endpoint,
    incoming: mpsc::Sender<Delivery>,
    pub(super) sessions: watch::Sender<SessionLifecycle>,
    /// Wakes the requests that wait for a session in FIFO order, which a `watch` does not guarantee.
    session_changed: Notify,
}

/// A queued item for the engine.
pub(super) struct Delivery {
    event: WireEvent,
    /// The request on whose stream a message arrived, and its flag.
    within: Option<(RequestId, AbandonedFlag)>,
    /// The flag of the request that this belongs to; items of a dropped request are skipped.
    abandoned: Option<AbandonedFlag>,
    /// The request that is over once the engine receives this.
    pub(super) settles: Option<RequestId>,
}

impl Delivery {
    /// An item that does not belong to a request.
    pub(super) fn new(event: impl Into<WireEvent>) -> Self {
        Self {
            event: event.into(),
            within: None,
            abandoned: None,
            settles: None,
        }
    }

    /// A message from the stream of the request `id`. It is not skipped if that request was dropped: the server may
    /// wait for an answer.
    fn within(message: Message, id: RequestId, abandoned: &AbandonedFlag) -> Self {
        Self {
            within: Some((id, abandoned.clone())),
            ..Self::new(Received::Message(message))
        }
    }

    /// Returns the event for the engine.
    pub(super) fn into_event(self) -> WireEvent {
        match (self.event, self.within) {
            // The id of a dropped request may belong to another one.
            (WireEvent::Received(Received::Message(message)), Some((request, abandoned)))
                if !abandoned.is_set() =>
            {
                WireEvent::ReceivedWithin { request, message }
            }
            (event, _) => event,
        }
    }

    /// An item of the request that `abandoned` belongs to.
    pub(super) fn for_request(event: impl Into<WireEvent>, abandoned: &AbandonedFlag) -> Self {
        Self {
            abandoned: Some(abandoned.clone()),
            ..Self::new(event)
        }
    }

    /// The last item of a request.
    pub(super) fn end(
        event: impl Into<WireEvent>,
        id: RequestId,
        abandoned: &AbandonedFlag,
    ) -> Self {
        Self {
            settles: Some(id),
            ..Self::for_request(event, abandoned)
        }
    }

    pub(super) fn is_wanted(&self) -> bool {
        !self.abandoned.as_ref().is_some_and(AbandonedFlag::is_set)
    }

    /// Returns whether it belongs to the request of `abandoned`.
    pub(super) fn belongs_to(&self, abandoned: &AbandonedFlag) -> bool {
        self.abandoned
            .as_ref()
            .is_some_and(|own| own.is_same(abandoned))
    }
}

impl WireState {
    pub(super) fn new(endpoint: Endpoint, incoming: mpsc::Sender<Delivery>) -> Self {
        Self {
            endpoint,
            incoming,
            sessions: watch::Sender::default(),
            session_changed: Notify::new(),
        }
    }

    /// Waits until the first GET stream is open, refused or failed.
    pub(super) async fn wait_for_stream(&self) {
        let mut sessions = self.sessions.subscribe();
        let is_decided = sessions.wait_for(|sessions| sessions.is_stream_decided);
        // Fails only when the wire state was dropped, which this borrow prevents.
        drop(is_decided.await);
    }

    /// Changes the session state and wakes the tasks that wait for it.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut SessionLifecycle) -> T) -> T {
        let mut changed = None;
        self.sessions
            .send_modify(|sessions| changed = Some(change(sessions)));
        self.session_changed.notify_waiters();
        changed.expect("`send_modify` calls the closure")
    }

    /// Creates the session that the response to `initialize` establishes.
    pub(super) fn issue(&self, headers: &HeaderMap, answer: &Answer) -> Arc<WireSession> {
        let result: Option<InitializeResult> = answer
            .outcome
            .as_ref()
            .ok()
            .and_then(|result| result.decode().ok());
        let dialect = result.and_then(|result| Dialect::of(result.protocol_version.as_str()));
        self.change(|sessions| sessions.issue(headers.get(SESSION_ID).cloned(), dialect))
    }

    /// Returns the open session, if there is one.
    pub(super) fn current(&self) -> Option<Arc<WireSession>> {
        self.sessions.borrow().current().cloned()
    }

    /// Returns the session to post in; waits while a new one is being opened. The timeouts of the request are suspended
    /// while that handshake waits for user authorization.
    pub(super) async fn session(
        &self,
        timeouts: Option<&dyn TimeoutControl>,
    ) -> Result<Arc<WireSession>> {
        let (mut own, mut is_paused) = (None, false);
        let claimed = loop {
            let mut changed = pin!(self.session_changed.notified());
            changed.as_mut().enable(); // before the state is read, or a change in between would be missed
            let is_authorizing = self.sessions.borrow().is_authorizing;
            if let Some(timeouts) = timeouts
                && is_authorizing != is_paused
            {
                is_paused = is_authorizing;
                match is_paused {
                    true => timeouts.pause().await,
                    false => timeouts.resume().await,
                }
            }
            match self.claim(own) {
                SessionClaim::Use(session) => break Ok(session),
                SessionClaim::Fail(error) => break Err(clone_error(&error)),
                // This attempt may have begun before the request was made, so its failure is not ours.
                SessionClaim::Wait(attempt) => {
                    own.get_or_insert(attempt + 1);
                }
                SessionClaim::Retry(attempt, earlier) => {
                    own.get_or_insert(attempt);
                    drop(earlier); // here, because no lock is held
                }
            }
            changed.await;
        };
        if let (Some(timeouts), true) = (timeouts, is_paused) {
            timeouts.resume().await;
        }
        claimed
    }

    /// Claims a session. Wakes other tasks only if that starts an attempt to open one.
    fn claim(&self, own: Option<u64>) -> SessionClaim {
        let mut claim = None;
        let is_changed = self.sessions.send_if_modified(|sessions| {
            let claimed = claim.insert(sessions.claim(own));
            matches!(claimed, SessionClaim::Retry(..))
        });
        if is_changed {
            self.session_changed.notify_waiters();
        }
        claim.expect("`send_if_modified` calls the closure")
    }

    /// Handles that the server has lost `session`: starts to open a new one if it is the current one.
    pub(super) fn forget(&self, session: &WireSession) {
        let forget = |sessions: &mut SessionLifecycle| sessions.forget(session);
        if self.sessions.send_if_modified(forget) {
            self.session_changed.notify_waiters();
        }
    }

    pub(super) async fn post(
        &self,
        session: &WireSession,
        frame: Bytes,
        send_state: &SendState,
        refusal_policy: RefusalPolicy<'_>,
    ) -> Result<Response<ResponseBody>> {
        let outgoing = OutgoingRequest {
            method: Method::POST,
            headers: &|| Ok(headers(session, message_headers())),
            frame,
            send_state,
            refusal_policy,
        };
        self.endpoint.request(&outgoing).await
    }

    /// Posts a message that has no response. Failures are only logged, because no caller waits.
    pub(super) async fn post_quietly(
        &self,
        session: &WireSession,
        frame: Bytes,
        refusal_policy: RefusalPolicy<'_>,
    ) {
        for attempt in 0..MAX_POSTS {
            if attempt > 0 {
                sleep(FIRST_DELAY * 2_u32.pow(attempt - 1)).await;
            }
            let send_state = SendState::new();
            let posted = self.post(session, frame.clone(), &send_state, refusal_policy);
            let posted = posted.await;
            let error = match posted.map(|response| self.endpoint.drain_response(response)) {
                Ok(status) if status.is_success() => return,
                Ok(status) => {
                    if status == StatusCode::NOT_FOUND {
                        self.forget(session);
                    }
                    tracing::debug!(%status, "server did not accept a message");
                    return;
                }
                Err(error) => error,
            };
            tracing::debug!(error = %shortened(&error), "failed to post a message");
            // Retry: the server may wait for this message, and a duplicate is harmless.
            if !matches!(error, Error::Transport { .. }) {
                return;
            }
        }
    }

    /// Like `post_quietly`, with a timeout that is suspended during user authorization.
    pub(super) async fn post_with_timeout(&self, session: &WireSession, frame: Bytes) {
        let pause = TimeoutPause::default();
        let posting = async {
            let refusal_policy = RefusalPolicy::AuthorizePausing(&pause);
            self.post_quietly(session, frame, refusal_policy).await;
            Ok(())
        };
        if timeout_with_pauses(super::POST_LIMIT, &pause, posting)
            .await
            .is_err()
        {
            tracing::debug!("timed out posting a message");
        }
    }

    /// Returns the control of the timeouts of a request. It has no effect after the request is dropped: the id may have
    /// been reused.
    pub(super) fn timeout_control<'a>(
        &'a self,
        id: &'a RequestId,
        abandoned: &'a AbandonedFlag,
    ) -> EngineTimeoutControl<'a> {
        EngineTimeoutControl {
            incoming: &self.incoming,
            id,
            abandoned,
        }
    }

    /// Sends an item to the engine.
    pub(super) async fn deliver(&self, event: impl Into<WireEvent>) {
        self.send(Delivery::new(event)).await;
    }

    /// Sends a message from the stream of the request `id` to the engine.
    pub(super) async fn deliver_within(
        &self,
        message: Message,
        id: &RequestId,
        abandoned: &AbandonedFlag,
    ) {
        self.send(Delivery::within(message, id.clone(), abandoned))
            .await;
    }

    /// Sends an item of a request to the engine, which skips it if the request was dropped by then.
    pub(super) async fn deliver_for(&self, event: WireEvent, abandoned: &AbandonedFlag) {
        self.send(Delivery::for_request(event, abandoned)).await;
    }

    /// Sends the last item of a request to the engine, which skips it if the request was dropped by then.
    pub(super) async fn settle(
        &self,
        event: impl Into<WireEvent>,
        id: &RequestId,
        abandoned: &AbandonedFlag,
    ) {
        self.send(Delivery::end(event, id.clone(), abandoned)).await;
    }

    async fn send(&self, delivery: Delivery) {
        // Fails only when the wire was dropped, and the engine with it.
        let _ = self.incoming.send(delivery).await;
    }

    /// Opens a GET stream; `None` if the server responds with 405.
    pub(super) async fn stream(
        &self,
        session: &WireSession,
        last_event: Option<&str>,
        refusal_policy: RefusalPolicy<'_>,
    ) -> Result<Option<SseStream>> {
        let mut headers = headers(session, stream_headers());
        if let Some(id) = last_event.and_then(|id| HeaderValue::from_str(id).ok()) {
            headers.insert(LAST_EVENT_ID, id);
        }
        let outgoing = OutgoingRequest {
            method: Method::GET,
            headers: &|| Ok(headers.clone()),
            frame: Bytes::new(),
            send_state: &SendState::new(),
            refusal_policy,
        };
        let response = self.endpoint.request(&outgoing).await?;
        match read(&self.endpoint, response).await? {
            ResponseContent::Sse(events) => Ok(Some(events)),
            ResponseContent::Other(StatusCode::METHOD_NOT_ALLOWED, _)
            | ResponseContent::Json(StatusCode::METHOD_NOT_ALLOWED, _) => Ok(None),
            ResponseContent::Other(status, body) | ResponseContent::Json(status, body) => {
                Err(self.endpoint.missing_response(status, &body))
            }
        }
    }

    /// Ends the session at the server with a DELETE, if there is one.
    pub(super) async fn end(&self) {
        let session = self.current().filter(|session| session.id.is_some());
        if let Some(session) = session {
            let outgoing = OutgoingRequest {
                method: Method::DELETE,
                headers: &|| Ok(headers(&session, HeaderMap::new())),
                frame: Bytes::new(),
                send_state: &SendState::new(),
                refusal_policy: RefusalPolicy::Fail,
            };
            if let Err(error) = self.endpoint.request(&outgoing).await {
                tracing::debug!(error = %shortened(&error), "failed to end the session");
            }
        }
    }
}

/// Maximum number of attempts to post a message that has no response, and the delay after the first.
const MAX_POSTS: u32 = 5;
const FIRST_DELAY: Duration = Duration::from_millis(100);

/// Adds `Mcp-Session-Id` and `MCP-Protocol-Version`.
pub(super) fn headers(session: &WireSession, mut headers: HeaderMap) -> HeaderMap {
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

/// Returns an error of the same kind for each request that waited for the failed attempt.
pub(super) fn clone_error(error: &Arc<Error>) -> Error {
    match &**error {
        Error::Rpc(refusal) => Error::Rpc(refusal.clone()),
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
