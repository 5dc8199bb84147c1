//! The task that keeps a legacy wire going: it receives unsolicited messages over the GET stream, and opens another
//! session when the server has forgotten the one it had.

use std::future::pending;
use std::sync::Arc;

use bowline_core::era::after_opening;
use bowline_core::{Message, RawRequest, shortened};
use bowline_types::{Method as _, PingRequest, RequestId};
use http::StatusCode;
use tokio::sync::watch;

use super::attempts::Attempts;
use super::link::{Link, share};
use super::session::{Phase, Session, Sessions};
use crate::exchange::{BoxFuture, Pause, Stopwatch, within};
use crate::http::client::response::{Reply, message, no_answer, read};
use crate::http::client::send::Handed;
use crate::http::client::{UnexpectedStatus, WhenRefused};
use crate::wire::Received;
use crate::{Error, Result};

impl Link {
    /// Runs as long as the wire does.
    pub(super) async fn keep(&self) {
        let mut sessions = self.sessions.subscribe();
        let mut attempts = Attempts::new();
        let mut streams = Streams::default();
        loop {
            let phase = sessions.borrow_and_update().phase().clone();
            match phase {
                Phase::Opening | Phase::Greeting(_) => drop(sessions.changed().await),
                Phase::Open(session) => {
                    attempts = Attempts::new();
                    tokio::select! {
                        biased; // a session that is gone is not listened to
                        () = is_over(&mut sessions, session.number) => {}
                        () = self.listen(&session, &mut streams) => {}
                    }
                }
                Phase::Reopening { .. } => match self.reopen().await {
                    Ok(session) => self.reopened(session).await,
                    Err(error) => self.failed_to_reopen(Arc::new(error)).await,
                },
                Phase::Failed { error, .. } => {
                    attempts.fail();
                    let pause = async {
                        match may_come_back(&error) {
                            true => attempts.pause(None).await,
                            false => pending().await, // until a request wants a session
                        }
                    };
                    tokio::select! {
                        biased; // a request does not wait for the pause
                        _ = sessions.changed() => {}
                        () = pause => drop(self.change(Sessions::retry)),
                    }
                }
            }
        }
    }

    /// Performs the handshake again.
    async fn reopen(&self) -> Result<Arc<Session>> {
        let pause = Pause::default();
        let clock = HandshakeClock {
            link: self,
            pause: &pause,
        };
        let when_refused = WhenRefused::AuthorizeWhile(&clock);
        let shaking_hands = async {
            let Some(handshake) = self.sessions.borrow().handshake() else {
                return Err(Error::Closed);
            };
            // In no session, and with no version: what was agreed on before does not count.
            let (none, handed) = (Session::default(), Handed::new());
            let posted = self.post(&none, handshake, &handed, when_refused);
            let response = posted.await?;
            let headers = response.headers().clone();
            let answer = match read(&self.endpoint, response).await? {
                Reply::Bare(status) => return Err(no_answer(status)),
                Reply::Json(_, body) => message(&body)?,
                Reply::Events(mut events) => loop {
                    let Some(data) = events.next_message().await? else {
                        return Err(no_answer(StatusCode::OK));
                    };
                    if let Ok(answer @ Message::Response(_)) = message(&data) {
                        break answer;
                    }
                },
            };
            let Message::Response(answer) = answer else {
                return Err(Error::protocol("expected the answer to `initialize`"));
            };
            let session = self.issue(&headers, &answer);
            answer.outcome.map_err(Error::Peer)?;
            if let Some(ready) = session.dialect.and_then(after_opening) {
                let ready = Message::from(ready).to_frame();
                self.post_quietly(&session, ready, when_refused).await;
            }
            Ok(session)
        };
        within(super::POST_LIMIT, &pause, shaking_hands).await
    }

    /// The engine learns of the new session before any request is posted in it and before anything is received in it.
    async fn reopened(&self, session: Arc<Session>) {
        tracing::debug!("the server had forgotten the session; another is open");
        self.deliver(Received::Reset).await;
        self.change(|sessions| sessions.reopened(session));
    }

    async fn failed_to_reopen(&self, error: Arc<Error>) {
        tracing::debug!(error = %shortened(&error), "failed to open a new session");
        if !may_come_back(&error) {
            let error = share(&error);
            self.deliver(Received::StreamLost { error }).await;
        }
        self.change(|sessions| sessions.failed(&error));
    }

    /// Receives what the server sends unsolicited in `session`, as long as that lasts.
    async fn listen(&self, session: &Session, streams: &mut Streams) {
        let mut attempts = Attempts::new();
        let mut last_event = None;
        let mut has_listened = false;
        // What the server said before this session was open, or while there was no stream, is lost.
        let mut may_have_missed = session.number > 1;
        loop {
            let opening = self.stream(session, last_event.as_deref(), WhenRefused::Authorize);
            let opened = opening.await;
            self.stream_decided();
            match opened {
                Ok(Some(mut events)) => {
                    has_listened = true;
                    *streams = Streams::Offered { refused: 0 };
                    if std::mem::take(&mut may_have_missed) {
                        self.deliver(Received::Missed).await;
                    }
                    attempts.begin();
                    while let Ok(Some(data)) = events.next_message().await {
                        attempts.hear();
                        self.deliver(Received::Frame(data)).await;
                    }
                    last_event = events.last_event_id().map(str::to_owned).or(last_event);
                    may_have_missed = last_event.is_none();
                    if !attempts.end() {
                        let error = Error::protocol("the server keeps closing its GET stream");
                        return self.give_up(error).await;
                    }
                    attempts.pause(events.retry()).await;
                }
                Ok(None) if has_listened => {
                    let error = Error::protocol("the server no longer offers a GET stream");
                    return self.give_up(error).await;
                }
                Ok(None) => return self.go_without(may_have_missed).await,
                Err(error) if UnexpectedStatus::of(&error) == Some(StatusCode::NOT_FOUND) => {
                    match streams {
                        // Some servers that have no stream answer like this instead of with 405.
                        Streams::Unknown => match self.is_known(session).await {
                            Ok(true) => return self.go_without(may_have_missed).await,
                            Ok(false) => {}
                            Err(_) => {
                                may_have_missed |= last_event.is_none();
                                attempts.fail();
                                attempts.pause(None).await;
                                continue;
                            }
                        },
                        Streams::Offered { refused } if *refused == MAX_REFUSED => {
                            return self.give_up(error).await;
                        }
                        Streams::Offered { refused } if !has_listened => {
                            *refused += 1;
                            attempts.fail();
                            attempts.pause(None).await;
                        }
                        Streams::Offered { .. } => {}
                    }
                    self.forget(session);
                    return pending().await;
                }
                Err(error) if is_passing(&error) => {
                    tracing::debug!(error = %shortened(&error), "failed to open the GET stream; it will be tried again");
                    may_have_missed |= last_event.is_none();
                    attempts.fail();
                    attempts.pause(None).await;
                }
                // The events that followed may have expired; those that are still to come are better than none.
                Err(error) if last_event.take().is_some() => {
                    tracing::debug!(error = %shortened(&error), "failed to resume the GET stream");
                    may_have_missed = true;
                }
                Err(error) => return self.give_up(error).await,
            }
        }
    }

    /// Lets the first message of the wire go.
    fn stream_decided(&self) {
        self.sessions.send_if_modified(|sessions| {
            let was_decided = std::mem::replace(&mut sessions.is_stream_decided, true);
            !was_decided
        });
    }

    /// Finds out by a `ping` whether the server still knows a session.
    async fn is_known(&self, session: &Session) -> Result<bool> {
        let ping = RawRequest {
            id: RequestId::from(PING_ID),
            method: PingRequest::NAME.into(),
            params: None,
        };
        let (pause, handed) = (Pause::default(), Handed::new());
        let frame = Message::from(ping).to_frame();
        let posting = self.post(session, frame, &handed, WhenRefused::GiveUp);
        let response = within(super::POST_LIMIT, &pause, posting).await?;
        Ok(response.status() != StatusCode::NOT_FOUND)
    }

    /// The server has no GET stream. That is allowed, and ends with the session.
    async fn go_without(&self, may_have_missed: bool) {
        if may_have_missed {
            self.deliver(Received::Missed).await;
        }
        pending().await
    }

    async fn give_up(&self, error: Error) {
        tracing::warn!(error = %shortened(&error), "unsolicited messages are no longer received");
        self.deliver(Received::StreamLost { error }).await;
        pending().await
    }
}

/// What is known about the GET streams of a server.
#[derive(Default)]
enum Streams {
    /// It may have none.
    #[default]
    Unknown,
    /// It has had one.
    Offered {
        /// In how many sessions in a row it has answered with 404 from the start.
        refused: u32,
    },
}

/// Waits until the session with this number is no longer the open one.
pub(super) async fn is_over(sessions: &mut watch::Receiver<Sessions>, number: u64) {
    let is_over = |sessions: &Sessions| {
        let current = sessions.current();
        current.is_none_or(|current| current.number != number)
    };
    // Fails only when the link is gone, and this task with it.
    drop(sessions.wait_for(is_over).await);
}

/// Whether the next attempt may succeed: the server is away, overloaded or starting.
fn is_passing(error: &Error) -> bool {
    match (error, UnexpectedStatus::of(error)) {
        (_, Some(status)) => {
            status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED
                || matches!(
                    status,
                    // A stream that the server has not seen end yet.
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

/// The same for a handshake: what has been the server's place before is empty while it is replaced.
fn may_come_back(error: &Error) -> bool {
    is_passing(error) || UnexpectedStatus::of(error) == Some(StatusCode::NOT_FOUND)
}

/// Stops the time of the handshake, and of the requests that wait for it, while a person decides.
struct HandshakeClock<'a> {
    link: &'a Link,
    pause: &'a Pause,
}

impl HandshakeClock<'_> {
    fn set(&self, is_authorizing: bool) {
        self.link
            .change(|sessions| sessions.is_authorizing = is_authorizing);
    }
}

impl Stopwatch for HandshakeClock<'_> {
    fn stop(&self) -> BoxFuture<'_, ()> {
        self.set(true);
        self.pause.stop()
    }

    fn go_on(&self) -> BoxFuture<'_, ()> {
        self.set(false);
        self.pause.go_on()
    }
}

/// Minted ids are numbers, so that this is nobody else's.
const PING_ID: &str = "bowline: is this session known?";
/// How many new sessions are opened for a stream that is answered with 404 in each of them.
const MAX_REFUSED: u32 = 5;
