//! `RequestTask`, the task of one legacy request: posts it and delivers the messages of its response.

use std::sync::Arc;
use std::time::Duration;

use bowline_core::{CorrelationKey, Message, decode_batch, is_batch, shortened};
use bowline_types::RequestId;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::background::session_ended;
use super::cancel::ReservedId;
use super::lost_session::may_refuse_session;
use super::post_state::{AbandonedFlag, PostState};
use super::session::WireSession;
use super::stream_backoff::StreamBackoff;
use super::wire_state::WireState;
use crate::exchange::TimeoutControl;
use crate::http::client::RefusalPolicy;
use crate::http::client::response::{ResponseContent, SseStream, read};
use crate::http::client::send::SendState;
use crate::limits::Limits;
use crate::wire::{Received, WireEvent};
use crate::{Error, Result};

/// Posts one request and delivers the messages of its response to the engine.
pub(super) struct RequestTask {
    pub(super) state: Arc<WireState>,
    pub(super) id: RequestId,
    pub(super) post_state: watch::Sender<PostState>,
    /// Whether the caller has dropped the request.
    pub(super) abandoned: AbandonedFlag,
    pub(super) is_opening: bool,
}

/// The response to a request, and the session in which it was posted.
struct PostedResponse {
    session: Arc<WireSession>,
    headers: HeaderMap,
    content: ResponseContent,
}

/// Requests that must be over before this one is posted.
pub(super) struct Predecessors {
    /// A cancelled request with the same id.
    pub(super) same_id: Option<watch::Receiver<Option<ReservedId>>>,
    /// A `resources/subscribe` or `resources/unsubscribe` for the same URI.
    pub(super) same_resource: Option<watch::Receiver<PostState>>,
}

impl Predecessors {
    async fn wait(self, state: &WireState) {
        // `changed` fails when the sender is dropped, which means that the request is over.
        if let Some(mut request) = self.same_resource {
            let ended = async { while request.changed().await.is_ok() {} };
            // A server that does not respond to it must not block the next one for long.
            let _ = timeout(ORDER_LIMIT, ended).await;
        }
        if let Some(mut cancelled) = self.same_id {
            while cancelled.changed().await.is_ok() {}
            let reserved = *cancelled.borrow();
            if let Some(ReservedId { until, session }) = reserved {
                let mut sessions = state.sessions.subscribe();
                // Ends when the reservation expires, or with the session.
                let _ = timeout_at(until, session_ended(&mut sessions, session)).await;
            }
        }
    }
}

impl RequestTask {
    /// Posts the request once its predecessors are over, and delivers its response. Delivers
    /// `WireEvent::RequestFailed` if there is no response.
    pub(super) async fn run(self, frame: Bytes, send_state: SendState, predecessors: Predecessors) {
        predecessors.wait(&self.state).await;
        if let Err(error) = self.post_and_deliver(frame, &send_state).await {
            let id = self.id.clone();
            self.settle(WireEvent::RequestFailed { id, error }).await;
        }
    }

    async fn post_and_deliver(&self, frame: Bytes, send_state: &SendState) -> Result<()> {
        let timeouts = self.state.timeout_control(&self.id, &self.abandoned);
        let Some(posted) = self.post(frame, send_state, &timeouts).await? else {
            return Ok(()); // dropped by the caller, and refused by the server: not processed
        };
        let PostedResponse {
            session,
            headers,
            content,
        } = posted;
        match content {
            ResponseContent::Other(status, body) => {
                Err(self.state.endpoint.missing_response(status, &body))
            }
            ResponseContent::Json(status, body) => {
                if let Some(error) = self.state.endpoint.not_found(status, &body) {
                    return Err(error);
                }
                match self.deliver(&session, &headers, body.clone()).await {
                    Delivered::Answer => Ok(()),
                    Delivered::Other => Err(self.state.endpoint.missing_response(status, &body)),
                }
            }
            ResponseContent::Sse(events) => self.read_events(&session, &headers, events).await,
        }
    }

    /// Posts the request, and posts it once more in a new session if the server has lost the session. Returns `None` if
    /// the caller had dropped the request before that was known.
    async fn post(
        &self,
        frame: Bytes,
        send_state: &SendState,
        timeouts: &dyn TimeoutControl,
    ) -> Result<Option<PostedResponse>> {
        let refusal_policy = RefusalPolicy::AuthorizePausing(timeouts);
        for is_repeated in [false, true] {
            let session = match self.is_opening {
                true => Arc::default(),
                false => self.state.session(Some(timeouts)).await?,
            };
            // Set before a connection can get the body: a cancel must be posted in the same session.
            self.post_state
                .send_replace(PostState::Posted(session.clone()));
            let posted = self
                .state
                .post(&session, frame.clone(), send_state, refusal_policy);
            let response = posted.await.inspect_err(|_| {
                if send_state.is_withdrawn() {
                    self.post_state.send_replace(PostState::Refused);
                }
            })?;
            let (status, headers) = (response.status(), response.headers().clone());
            if status != StatusCode::NOT_FOUND || session.id.is_none() {
                let responded = PostState::Responded(session.clone());
                let may_be_lost =
                    status == StatusCode::BAD_REQUEST && session.id.is_some() && !is_repeated;
                if !may_be_lost {
                    self.post_state.send_replace(responded.clone());
                }
                let content = read(&self.state.endpoint, response).await?;
                let may_be_lost = may_be_lost && may_refuse_session(&content, &self.id);
                if !may_be_lost || !self.state.has_lost(&session).await {
                    self.post_state.send_replace(responded);
                    return Ok(Some(PostedResponse {
                        session,
                        headers,
                        content,
                    }));
                }
            }
            // First, so that a concurrent cancel withdraws the request instead of posting a cancel for a refused one.
            let is_wanted = send_state.reset_for_retry();
            self.post_state.send_replace(PostState::Refused);
            self.state.forget(&session);
            if !is_wanted {
                return Ok(None);
            }
        }
        Err(self
            .state
            .endpoint
            .missing_response(StatusCode::NOT_FOUND, &Bytes::new()))
    }

    /// Delivers an SSE stream up to the response. Resumes it with `Last-Event-ID` if it breaks and has event ids.
    async fn read_events(
        &self,
        session: &WireSession,
        headers: &HeaderMap,
        mut events: SseStream,
    ) -> Result<()> {
        let mut backoff = StreamBackoff::new();
        let mut last_event = None;
        loop {
            backoff.begin();
            let cut = loop {
                match events.next_message().await {
                    Ok(Some(data)) => {
                        backoff.record_message();
                        if let Delivered::Answer = self.deliver(session, headers, data).await {
                            self.state.endpoint.drain.finish(events.into_body());
                            return Ok(());
                        }
                    }
                    Ok(None) => break None,
                    Err(error) => break Some(error),
                }
            };
            let lost = || Error::Transport {
                what: "the response stream ended without a JSON-RPC response".into(),
                source: None,
            };
            // A resumed stream without events leaves the last event id unchanged.
            last_event = events.last_event_id().map(str::to_owned).or(last_event);
            let Some(last_event) = &last_event else {
                return Err(cut.unwrap_or_else(lost));
            };
            if !backoff.end() {
                return Err(cut.unwrap_or_else(lost));
            }
            let wait = backoff.wait(events.retry());
            let id = self.id.clone();
            let until = Instant::now().checked_add(wait);
            let waiting = WireEvent::ReconnectDelayed { id, until };
            self.state.deliver_for(waiting, &self.abandoned).await;
            sleep(wait).await;
            if self.abandoned.is_set() {
                return Ok(()); // the caller dropped the request
            }
            let timeouts = self.state.timeout_control(&self.id, &self.abandoned);
            let refusal_policy = RefusalPolicy::AuthorizePausing(&timeouts);
            let resuming = self.state.stream(session, Some(last_event), refusal_policy);
            let Some(resumed) = resuming.await? else {
                return Err(cut.unwrap_or_else(lost));
            };
            events = resumed;
        }
    }

    /// Delivers a message, or each message of a batch if the protocol version has batches.
    async fn deliver(&self, session: &WireSession, headers: &HeaderMap, frame: Bytes) -> Delivered {
        let takes_batches = session.dialect.is_some_and(|dialect| dialect.batches);
        if !takes_batches || !is_batch(&frame) {
            return match Message::decode(&frame) {
                Ok(message) => self.deliver_one(headers, message).await,
                Err(_) => self.deliver_malformed(frame).await,
            };
        }
        let Ok(parts) = decode_batch(&frame, Limits::default().batch_messages) else {
            return self.deliver_malformed(frame).await;
        };
        let mut delivered = Delivered::Other;
        for part in parts {
            match part {
                Ok(part) => {
                    if let Delivered::Answer = self.deliver_one(headers, part).await {
                        delivered = Delivered::Answer;
                    }
                }
                Err(malformed) => {
                    let malformed = shortened(malformed);
                    tracing::warn!(%malformed, "received a malformed message in a batch");
                }
            }
        }
        delivered
    }

    async fn deliver_one(&self, headers: &HeaderMap, message: Message) -> Delivered {
        let mut answer = match message {
            Message::Response(answer) if self.is_ours(answer.id.as_ref()) => answer,
            other => {
                let within = self.state.deliver_within(other, &self.id, &self.abandoned);
                within.await;
                return Delivered::Other;
            }
        };
        if self.is_opening {
            let session = self.state.issue(headers, &answer);
            self.state
                .change(|sessions| sessions.record_initialize(session));
        }
        // An error without an id can only refer to the posted request.
        answer.id.get_or_insert_with(|| self.id.clone());
        self.settle(Received::Message(answer.into())).await;
        Delivered::Answer
    }

    /// Delivers a frame that the engine rejects.
    async fn deliver_malformed(&self, frame: Bytes) -> Delivered {
        self.state.deliver(Received::Frame(frame)).await;
        Delivered::Other
    }

    /// Delivers the end of the request. Ignored if the caller has dropped the request by the time the engine receives
    /// it: the id may belong to another request by then.
    async fn settle(&self, end: impl Into<WireEvent>) {
        self.state.settle(end, &self.id, &self.abandoned).await;
    }

    fn is_ours(&self, id: Option<&RequestId>) -> bool {
        id.is_none_or(|id| CorrelationKey::from(id) == CorrelationKey::from(&self.id))
    }
}

enum Delivered {
    Answer,
    Other,
}

/// How long a request waits for its predecessor for the same resource.
const ORDER_LIMIT: Duration = Duration::from_secs(5);
