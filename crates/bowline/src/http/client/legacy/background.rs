//! `WireState::run_background`, the background task of a legacy wire: receives unsolicited messages on the GET stream,
//! and opens a new session when the server has lost the current one.

use std::future::pending;
use std::sync::Arc;

use bowline_core::era::initialized_notification;
use bowline_core::{Message, shortened};
use bytes::Bytes;
use http::StatusCode;
use tokio::sync::watch;

use super::session::{SessionLifecycle, SessionPhase, WireSession};
use super::stream_backoff::StreamBackoff;
use super::wire_state::{WireState, clone_error};
use crate::exchange::{BoxFuture, TimeoutControl, TimeoutPause, timeout_with_pauses};
use crate::http::client::response::{ResponseContent, message, read};
use crate::http::client::send::SendState;
use crate::http::client::{RefusalPolicy, UnexpectedStatus};
use crate::wire::{Received, WireEvent};
use crate::{Error, Result};

impl WireState {
    /// Runs until the wire is closed.
    pub(super) async fn run_background(&self) {
        let mut sessions = self.sessions.subscribe();
        let mut backoff = StreamBackoff::new();
        let mut stream_support = GetStreamSupport::default();
        loop {
            let phase = sessions.borrow_and_update().phase().clone();
            match phase {
                SessionPhase::Opening | SessionPhase::Initializing(_) => {
                    drop(sessions.changed().await)
                }
                SessionPhase::Open(session) => {
                    backoff = StreamBackoff::new();
                    tokio::select! {
                        biased; // stop listening as soon as the session is over
                        () = session_ended(&mut sessions, session.number) => {}
                        () = self.listen(&session, &mut stream_support) => {}
                    }
                }
                SessionPhase::Reopening { .. } => match self.reopen().await {
                    Ok(session) => self.reopened(session).await,
                    Err(error) => self.failed_to_reopen(Arc::new(error)).await,
                },
                SessionPhase::Failed { error, .. } => {
                    backoff.fail();
                    let pause = async {
                        match is_transient_for_handshake(&error) {
                            true => backoff.pause(None).await,
                            false => pending().await, // until a request claims a session
                        }
                    };
                    tokio::select! {
                        biased; // a request that claims a session ends the pause
                        _ = sessions.changed() => {}
                        () = pause => drop(self.change(SessionLifecycle::retry)),
                    }
                }
            }
        }
    }

    /// Repeats the handshake in a new session.
    async fn reopen(&self) -> Result<Arc<WireSession>> {
        let pause = TimeoutPause::default();
        let timeouts = HandshakeTimeouts {
            state: self,
            pause: &pause,
        };
        let refusal_policy = RefusalPolicy::AuthorizePausing(&timeouts);
        let handshaking = async {
            let Some(handshake) = self.sessions.borrow().handshake() else {
                return Err(Error::Closed);
            };
            // Without session and version headers: what was negotiated before no longer applies.
            let (none, send_state) = (WireSession::default(), SendState::new());
            let posted = self.post(&none, handshake, &send_state, refusal_policy);
            let response = posted.await?;
            let headers = response.headers().clone();
            let answer = match read(&self.endpoint, response).await? {
                ResponseContent::Other(status, body) => {
                    return Err(self.endpoint.missing_response(status, &body));
                }
                ResponseContent::Json(_, body) => message(&body)?,
                ResponseContent::Sse(mut events) => loop {
                    let Some(data) = events.next_message().await? else {
                        return Err(self
                            .endpoint
                            .missing_response(StatusCode::OK, &Bytes::new()));
                    };
                    if let Ok(answer @ Message::Response(_)) = message(&data) {
                        self.endpoint.drain.finish(events.into_body());
                        break answer;
                    }
                },
            };
            let Message::Response(answer) = answer else {
                return Err(Error::protocol("expected the response to `initialize`"));
            };
            let session = self.issue(&headers, &answer);
            answer.outcome.map_err(Error::Rpc)?;
            if let Some(ready) = session.dialect.and_then(initialized_notification) {
                let ready = Message::from(ready).to_frame();
                self.post_quietly(&session, ready, refusal_policy).await;
            }
            Ok(session)
        };
        timeout_with_pauses(super::POST_LIMIT, &pause, handshaking).await
    }

    /// Delivers `WireEvent::Reset` before any request is posted or any message received in the new session.
    async fn reopened(&self, session: Arc<WireSession>) {
        tracing::debug!("the server had ended the session; opened a new one");
        self.deliver(WireEvent::Reset).await;
        self.change(|sessions| sessions.reopened(session));
    }

    async fn failed_to_reopen(&self, error: Arc<Error>) {
        tracing::debug!(error = %shortened(&error), "failed to open a new session");
        if !is_transient_for_handshake(&error) {
            let error = clone_error(&error);
            self.deliver(WireEvent::StreamLost { error }).await;
        }
        self.change(|sessions| sessions.failed(&error));
    }

    /// Receives unsolicited messages on the GET stream of `session`, and reopens the stream when it ends.
    async fn listen(&self, session: &WireSession, stream_support: &mut GetStreamSupport) {
        let mut backoff = StreamBackoff::new();
        let mut last_event = None;
        let mut has_listened = false;
        // Messages sent before this session was open, or while there was no stream, are lost.
        let mut may_have_missed = session.number > 1;
        loop {
            let opening = self.stream(session, last_event.as_deref(), RefusalPolicy::Authorize);
            let opened = opening.await;
            self.stream_decided();
            match opened {
                Ok(Some(mut events)) => {
                    has_listened = true;
                    *stream_support = GetStreamSupport::OFFERED;
                    if std::mem::take(&mut may_have_missed) {
                        self.deliver(WireEvent::NotificationsMissed).await;
                    }
                    backoff.begin();
                    while let Ok(Some(data)) = events.next_message().await {
                        backoff.record_message();
                        self.deliver(Received::Frame(data)).await;
                    }
                    last_event = events.last_event_id().map(str::to_owned).or(last_event);
                    may_have_missed = last_event.is_none();
                    if !backoff.end() {
                        let error = Error::protocol("the server keeps closing its GET stream");
                        return self.report_stream_lost(error).await;
                    }
                    backoff.pause(events.retry()).await;
                }
                Ok(None) if has_listened => {
                    let error = Error::protocol("the server no longer offers a GET stream");
                    return self.report_stream_lost(error).await;
                }
                Ok(None) => return self.continue_without_stream(may_have_missed).await,
                Err(error) if refuses_session(&error, last_event.is_some()) => {
                    let is_404 = UnexpectedStatus::of(&error) == Some(StatusCode::NOT_FOUND);
                    // Some servers without a GET stream respond with 404 instead of 405.
                    let is_certain = is_404 && stream_support.is_offered;
                    if !is_certain {
                        match self.session_exists(session).await {
                            Ok(true) if is_404 => {
                                return self.continue_without_stream(may_have_missed).await;
                            }
                            Ok(true) => return self.report_stream_lost(error).await,
                            Ok(false) => {}
                            Err(_) => {
                                may_have_missed |= last_event.is_none();
                                backoff.fail();
                                backoff.pause(None).await;
                                continue;
                            }
                        }
                    }
                    if stream_support.refused == MAX_REFUSED {
                        return self.report_stream_lost(error).await;
                    }
                    if !has_listened {
                        stream_support.refused += 1;
                        backoff.fail();
                        backoff.pause(None).await;
                    }
                    self.forget(session);
                    return pending().await;
                }
                Err(error) if is_transient(&error) => {
                    tracing::debug!(error = %shortened(&error), "failed to open the GET stream; retrying");
                    may_have_missed |= last_event.is_none();
                    backoff.fail();
                    backoff.pause(None).await;
                }
                // The events after `Last-Event-ID` may have expired: open a new stream for the later ones.
                Err(error) if last_event.take().is_some() => {
                    tracing::debug!(error = %shortened(&error), "failed to resume the GET stream");
                    may_have_missed = true;
                }
                Err(error) => return self.report_stream_lost(error).await,
            }
        }
    }

    /// Releases the first messages after the handshake, which wait for the GET stream.
    fn stream_decided(&self) {
        self.sessions.send_if_modified(|sessions| {
            let was_decided = std::mem::replace(&mut sessions.is_stream_decided, true);
            !was_decided
        });
    }

    /// Continues without a GET stream, which servers need not offer, until the session is over.
    async fn continue_without_stream(&self, may_have_missed: bool) {
        if may_have_missed {
            self.deliver(WireEvent::NotificationsMissed).await;
        }
        pending().await
    }

    async fn report_stream_lost(&self, error: Error) {
        tracing::warn!(error = %shortened(&error), "GET stream lost; unsolicited messages are no longer received");
        self.deliver(WireEvent::StreamLost { error }).await;
        pending().await
    }
}

/// What is known of the GET streams of the server.
#[derive(Default)]
struct GetStreamSupport {
    /// Whether at least one was opened.
    is_offered: bool,
    /// The number of consecutive sessions in which the first GET was refused as one of an unknown session.
    refused: u32,
}

impl GetStreamSupport {
    const OFFERED: Self = Self {
        is_offered: true,
        refused: 0,
    };
}

/// Waits until the session with this number is no longer the open one.
pub(super) async fn session_ended(sessions: &mut watch::Receiver<SessionLifecycle>, number: u64) {
    let has_ended = |sessions: &SessionLifecycle| {
        let current = sessions.current();
        current.is_none_or(|current| current.number != number)
    };
    // Fails only when the wire state was dropped, and this task with it.
    drop(sessions.wait_for(has_ended).await);
}

/// Returns whether the server may have refused a GET because it has lost the session. A 400 to a `Last-Event-ID` may
/// concern the event.
fn refuses_session(error: &Error, is_resumption: bool) -> bool {
    match UnexpectedStatus::of(error) {
        Some(StatusCode::NOT_FOUND) => true,
        Some(StatusCode::BAD_REQUEST) => !is_resumption,
        _ => false,
    }
}

/// Returns whether the error is transient: the server is down, overloaded or starting.
fn is_transient(error: &Error) -> bool {
    match (error, UnexpectedStatus::of(error)) {
        (_, Some(status)) => {
            status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED
                || matches!(
                    status,
                    // 409: the server has not noticed the end of the previous stream yet.
                    StatusCode::CONFLICT
                        | StatusCode::REQUEST_TIMEOUT
                        | StatusCode::TOO_EARLY
                        | StatusCode::TOO_MANY_REQUESTS
                )
        }
        (Error::Transport { .. } | Error::Timeout { .. }, None) => true,
        _ => false,
    }
}

/// Like `is_transient`, for a handshake: its URL may return 404 while the server is being redeployed.
fn is_transient_for_handshake(error: &Error) -> bool {
    is_transient(error) || UnexpectedStatus::of(error) == Some(StatusCode::NOT_FOUND)
}

/// Suspends the timeouts of the handshake and of the requests that wait for it, during user authorization.
struct HandshakeTimeouts<'a> {
    state: &'a WireState,
    pause: &'a TimeoutPause,
}

impl HandshakeTimeouts<'_> {
    fn set(&self, is_authorizing: bool) {
        self.state
            .change(|sessions| sessions.is_authorizing = is_authorizing);
    }
}

impl TimeoutControl for HandshakeTimeouts<'_> {
    fn pause(&self) -> BoxFuture<'_, ()> {
        self.set(true);
        self.pause.pause()
    }

    fn resume(&self) -> BoxFuture<'_, ()> {
        self.set(false);
        self.pause.resume()
    }
}

/// How many new sessions are opened for a GET stream that is refused in each of them.
const MAX_REFUSED: u32 = 5;
