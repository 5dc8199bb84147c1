//! [`ReconnectingWire`], a wire that opens another connection when the current one is lost.
//!
//! ```text
//! Connected ──lost──▶ Waiting ──delay over──▶ Opening: connection and handshake
//!     ▲                  ▲                      │     │
//!     │                  └────────failed────────┘     │
//!     └──────────────────succeeded────────────────────┘       Ended after `max_attempts`: the wire is broken
//! ```
//!
//! The engine above keeps its calls. It fails those that were sent ([`WireEvent::Disconnected`]) and keeps the others
//! queued, since the wire is not ready. After the handshake it restores what the server has lost
//! ([`WireEvent::Reset`]).

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bowline_core::mux::OutgoingMessage;
use bowline_core::{Message, Notification, RawRequest, shortened};
use bowline_types::{Json, RequestId};
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::{EngineWire, Received, WireEvent, connection_error};
use crate::backoff::Backoff;
use crate::exchange::BoxFuture;
use crate::sync::Mutex;
use crate::telemetry::TransportKind;
use crate::{Error, Result};

/// A wire that opens another connection when the current one is lost.
///
/// # Cancel safety
///
/// Dropping it closes the connection, and ends an attempt to open one.
pub(crate) struct ReconnectingWire {
    state: ReconnectState,
    open: OpenWireFn,
    policy: ReconnectPolicy,
    control: Arc<ReconnectControl>,
    /// The attempts since the last connection that lasted.
    attempts: u32,
    /// Events of the new connection, which come before those of its wire.
    queued: VecDeque<WireEvent>,
}

/// Opens a new connection.
pub(crate) type OpenWireFn =
    Box<dyn FnMut() -> BoxFuture<'static, Result<Box<dyn EngineWire>>> + Send>;

/// When to reconnect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReconnectPolicy {
    pub(crate) backoff: Backoff,
    pub(crate) max_attempts: Option<u32>,
    /// The timeout of opening a connection with its handshake.
    pub(crate) attempt_timeout: Duration,
}

/// The client's handle to a [`ReconnectingWire`].
#[derive(Default)]
pub(crate) struct ReconnectControl {
    /// Set once the first connection is open. Until then a loss is reported to the client, which is connecting.
    handshake: Mutex<Option<Handshake>>,
    is_stopped: AtomicBool,
    /// How often a connection was lost.
    losses: AtomicU64,
}

/// The first messages on a new connection.
#[derive(Clone)]
pub(crate) struct Handshake {
    /// `initialize`, or `server/discover` where there is no handshake: a server that does not answer it is not ready.
    pub(crate) request: RawRequest,
    /// The version that `initialize` must agree to again.
    pub(crate) version: Option<&'static str>,
    pub(crate) initialized: Option<Notification>,
}

enum ReconnectState {
    Connected {
        wire: Box<dyn EngineWire>,
        since: Instant,
        /// Reported after the last messages were received.
        write_error: Option<io::Error>,
    },
    Waiting(Pin<Box<Sleep>>),
    Opening(BoxFuture<'static, Result<NewConnection>>),
    Ended,
}

/// A connection after its handshake, and what it received before the end of that.
struct NewConnection {
    wire: Box<dyn EngineWire>,
    early: Vec<Message>,
}

impl ReconnectControl {
    /// Makes the wire reconnect from now on.
    pub(crate) fn arm(&self, handshake: Handshake) {
        let replaced = self.handshake.lock().replace(handshake);
        drop(replaced); // not under the lock
    }

    /// Makes the wire end with its current connection. The driver must be woken.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
    }

    pub(crate) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Acquire)
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    fn handshake(&self) -> Option<Handshake> {
        let handshake = self.handshake.lock().clone();
        handshake.filter(|_| !self.is_stopped())
    }
}

impl ReconnectingWire {
    pub(crate) fn new(
        wire: Box<dyn EngineWire>,
        open: OpenWireFn,
        policy: ReconnectPolicy,
    ) -> (Self, Arc<ReconnectControl>) {
        let control = Arc::new(ReconnectControl::default());
        let wire = Self {
            state: ReconnectState::connected(wire),
            open,
            policy,
            control: control.clone(),
            attempts: 0,
            queued: VecDeque::new(),
        };
        (wire, control)
    }

    /// Handles the loss of the connection.
    fn lose(&mut self, since: Instant, error: Option<io::Error>) -> WireEvent {
        self.control.losses.fetch_add(1, Ordering::AcqRel);
        // Reset only after a while: a server that dies at once must not be started in a loop.
        if since.elapsed() >= self.policy.backoff.max.max(MIN_STABLE) {
            self.attempts = 0;
        }
        let error = error.map(Arc::new);
        tracing::warn!(error = ?error.as_deref().map(shortened), "connection lost");
        if self.has_given_up() {
            return self.end(error.map_or(Error::Closed, connection_error));
        }
        // Drops the connection.
        self.state = self.wait();
        WireEvent::Disconnected { error }
    }

    /// Starts the delay before the next attempt.
    fn wait(&self) -> ReconnectState {
        let delay = self.policy.backoff.delay(self.attempts.saturating_add(1));
        tracing::debug!(
            ?delay,
            attempts = self.attempts,
            "reconnecting after a delay"
        );
        ReconnectState::Waiting(Box::pin(sleep(delay)))
    }

    /// Starts an attempt. Returns `None` if the client is closed.
    fn start_attempt(&mut self) -> Option<ReconnectState> {
        let handshake = self.control.handshake()?;
        self.attempts = self.attempts.saturating_add(1);
        let (opening, limit) = ((self.open)(), self.policy.attempt_timeout);
        Some(ReconnectState::Opening(Box::pin(async move {
            let opening = async {
                let mut wire = opening.await?;
                let early = handshake.perform(&mut *wire).await?;
                Ok(NewConnection { wire, early })
            };
            let opened = timeout(limit, opening).await;
            opened.unwrap_or(Err(Error::Timeout { after: limit }))
        })))
    }

    /// Handles a failed attempt. Returns the end of the wire if it gives up.
    fn fail(&mut self, error: Error) -> Option<WireEvent> {
        // A server that speaks another version now, or a user who declined to sign in: trying again would not help.
        let is_final = matches!(
            error,
            Error::Protocol { .. } | Error::Unauthorized { .. } | Error::Misuse { .. }
        );
        if is_final || self.has_given_up() {
            return Some(self.end(error));
        }
        tracing::warn!(error = ?shortened(&error), "failed to reconnect");
        self.state = self.wait();
        None
    }

    fn has_given_up(&self) -> bool {
        let max = self.policy.max_attempts;
        max.is_some_and(|max| self.attempts >= max)
    }

    fn end(&mut self, error: Error) -> WireEvent {
        self.state = ReconnectState::Ended;
        let what = match self.attempts {
            0 => "connection lost".into(),
            1 => "connection lost, and 1 attempt failed".into(),
            attempts => format!("connection lost, and {attempts} attempts failed"),
        };
        let error = Error::Transport {
            what,
            source: Some(Box::new(error)),
        };
        Received::Broken(io::Error::other(error)).into()
    }

    /// Handles a failed write. It is not reported: received messages come first.
    fn write_failed<T>(&mut self, cx: &Context<'_>, error: io::Error) -> Poll<io::Result<T>> {
        match &mut self.state {
            ReconnectState::Connected { write_error, .. } if self.control.handshake().is_some() => {
                if write_error.is_none() {
                    *write_error = Some(error);
                    cx.waker().wake_by_ref();
                }
                Poll::Pending
            }
            _ => Poll::Ready(Err(error)),
        }
    }

    fn connected(&mut self) -> Option<&mut dyn EngineWire> {
        match &mut self.state {
            ReconnectState::Connected { wire, .. } => Some(&mut **wire),
            ReconnectState::Waiting(_) | ReconnectState::Opening(_) | ReconnectState::Ended => None,
        }
    }
}

impl ReconnectState {
    fn connected(wire: Box<dyn EngineWire>) -> Self {
        Self::Connected {
            wire,
            since: Instant::now(),
            write_error: None,
        }
    }
}

impl EngineWire for ReconnectingWire {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<WireEvent> {
        loop {
            if let Some(event) = self.queued.pop_front() {
                return Poll::Ready(event);
            }
            match &mut self.state {
                ReconnectState::Connected {
                    wire,
                    since,
                    write_error,
                } => {
                    let error = match wire.poll_event(cx) {
                        Poll::Ready(WireEvent::Received(Received::End)) => None,
                        Poll::Ready(WireEvent::Received(Received::Broken(error))) => Some(error),
                        Poll::Ready(event) => return Poll::Ready(event),
                        Poll::Pending if write_error.is_some() => write_error.take(),
                        Poll::Pending => return Poll::Pending,
                    };
                    let since = *since;
                    return Poll::Ready(match self.control.handshake() {
                        Some(_) => self.lose(since, error),
                        None => error.map_or(Received::End, Received::Broken).into(),
                    });
                }
                ReconnectState::Waiting(_) | ReconnectState::Opening(_)
                    if self.control.is_stopped() =>
                {
                    self.state = ReconnectState::Ended;
                    return Poll::Ready(Received::End.into());
                }
                ReconnectState::Waiting(delay) => {
                    ready!(delay.as_mut().poll(cx));
                    self.state = self.start_attempt().unwrap_or(ReconnectState::Ended);
                }
                ReconnectState::Opening(attempt) => match ready!(attempt.as_mut().poll(cx)) {
                    Ok(NewConnection { wire, early }) => {
                        tracing::info!("connected again");
                        self.state = ReconnectState::connected(wire);
                        self.queued.push_back(WireEvent::Reset);
                        self.queued.push_back(WireEvent::NotificationsMissed);
                        let early = early.into_iter().map(Received::Message);
                        self.queued.extend(early.map(WireEvent::from));
                    }
                    Err(error) => {
                        if let Some(end) = self.fail(error) {
                            return Poll::Ready(end);
                        }
                    }
                },
                ReconnectState::Ended => return Poll::Pending,
            }
        }
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(wire) = self.connected() else {
            return Poll::Pending;
        };
        match wire.poll_ready(cx) {
            Poll::Ready(Err(error)) => self.write_failed(cx, error),
            other => other,
        }
    }

    fn send(&mut self, outgoing: &OutgoingMessage) {
        if let Some(wire) = self.connected() {
            wire.send(outgoing);
        }
    }

    fn cancelled(&mut self, request: &RequestId) {
        if let Some(wire) = self.connected() {
            wire.cancelled(request);
        }
    }

    fn malformed(&mut self, frame: &[u8]) -> Option<String> {
        self.connected().and_then(|wire| wire.malformed(frame))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(wire) = self.connected() else {
            return Poll::Ready(Ok(()));
        };
        match wire.poll_flush(cx) {
            Poll::Ready(Err(error)) => self.write_failed(cx, error),
            other => other,
        }
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.connected() {
            Some(wire) => wire.poll_close(cx),
            None => Poll::Ready(Ok(())),
        }
    }

    fn transport(&self) -> TransportKind {
        match &self.state {
            ReconnectState::Connected { wire, .. } => wire.transport(),
            ReconnectState::Waiting(_) | ReconnectState::Opening(_) | ReconnectState::Ended => {
                TransportKind::Other
            }
        }
    }
}

impl Handshake {
    /// Performs the handshake. Returns the messages that were received before its end.
    async fn perform(&self, wire: &mut dyn EngineWire) -> Result<Vec<Message>> {
        let mut connection = HandshakeIo {
            wire,
            request: &self.request.id,
            unsent: None,
            is_writing: false,
            early: Vec::new(),
        };
        let result = connection.request(self.request.clone()).await?;
        if let Some(expected) = self.version {
            #[derive(serde::Deserialize)]
            struct Initialized {
                #[serde(rename = "protocolVersion")]
                version: String,
            }
            let Initialized { version } = (result.decode()).map_err(|error| {
                Error::undecodable("the `initialize` result is malformed", error)
            })?;
            if version != expected {
                let version = shortened(version);
                return Err(Error::protocol(format!(
                    "the protocol version was {expected}, and is {version} after a reconnect"
                )));
            }
        }
        if let Some(initialized) = &self.initialized {
            connection.notify(initialized.clone()).await?;
        }
        Ok(connection.early)
    }
}

/// The messages of a handshake. It receives while it writes: a wire may report only as an event that it is lost, and
/// never be ready again. The wire of a child process does that, since its error has the exit status.
struct HandshakeIo<'a> {
    wire: &'a mut dyn EngineWire,
    request: &'a RequestId,
    /// The message that the wire has not accepted yet.
    unsent: Option<OutgoingMessage>,
    /// Whether a message is to be sent or flushed.
    is_writing: bool,
    /// Received messages that are not of the handshake.
    early: Vec<Message>,
}

impl HandshakeIo<'_> {
    async fn request(&mut self, request: RawRequest) -> Result<Json> {
        self.write(request);
        loop {
            match self.next_message().await? {
                Some(Message::Response(response)) if response.id.as_ref() == Some(self.request) => {
                    return Ok(response.outcome?);
                }
                Some(message) => self.keep(message),
                None => {} // the request is sent
            }
        }
    }

    async fn notify(&mut self, notification: Notification) -> Result<()> {
        self.write(notification);
        while let Some(message) = self.next_message().await? {
            self.keep(message);
        }
        Ok(())
    }

    fn write(&mut self, message: impl Into<Message>) {
        self.unsent = Some(OutgoingMessage::from(message.into()));
        self.is_writing = true;
    }

    fn keep(&mut self, message: Message) {
        match message {
            Message::Response(_) => {}
            message if self.early.len() < MAX_EARLY => self.early.push(message),
            _ => tracing::warn!("dropped a message before the handshake"),
        }
    }

    /// Returns the next message, or `None` when writing is complete; an error if the connection is lost, or the request
    /// cannot be sent.
    async fn next_message(&mut self) -> Result<Option<Message>> {
        loop {
            let Some(event) = poll_fn(|cx| self.poll_next(cx)).await else {
                return Ok(None);
            };
            match event {
                WireEvent::Received(Received::Message(message)) => return Ok(Some(message)),
                WireEvent::Received(Received::Frame(frame)) => match Message::decode(&frame) {
                    Ok(message) => return Ok(Some(message)),
                    Err(error) => {
                        let what = self.wire.malformed(&frame);
                        let what = what.unwrap_or_else(|| shortened(error).to_string());
                        tracing::warn!(malformed = what, "received a malformed message");
                    }
                },
                WireEvent::Received(Received::End) => return Err(Error::Closed),
                WireEvent::Received(Received::Broken(error)) => {
                    return Err(connection_error(Arc::new(error)));
                }
                WireEvent::RequestFailed { id, error } if id == *self.request => return Err(error),
                _ => {}
            }
        }
    }

    /// Polls for the next event, or `None` when writing is complete.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<WireEvent>> {
        if self.is_writing
            && let Poll::Ready(written) = self.poll_write(cx)
        {
            self.is_writing = false;
            return Poll::Ready(written.err().map(|error| Received::Broken(error).into()));
        }
        self.wire.poll_event(cx).map(Some)
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.unsent.is_some() {
            ready!(self.wire.poll_ready(cx))?;
        }
        if let Some(message) = self.unsent.take() {
            self.wire.send(&message);
        }
        self.wire.poll_flush(cx)
    }
}

/// How long a connection lasts at least until the attempts are counted anew, whatever the back-off.
const MIN_STABLE: Duration = Duration::from_secs(1);

/// The maximum number of messages that are kept until the handshake is complete.
const MAX_EARLY: usize = 64;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A wire whose writes never complete from a stage on. It then reports its end as an event, like a child's wire.
    struct WriteFails {
        stage: Stage,
        sent: Vec<&'static str>,
        has_answered: bool,
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Stage {
        ReadyForRequest,
        FlushOfRequest,
        ReadyForNotification,
        FlushOfNotification,
    }
    use Stage::{FlushOfNotification, FlushOfRequest, ReadyForNotification, ReadyForRequest};

    impl WriteFails {
        fn poll_write(&self, stages: [Stage; 2]) -> Poll<io::Result<()>> {
            let stage = if self.has_answered {
                stages[1]
            } else {
                stages[0]
            };
            match stage == self.stage {
                true => Poll::Pending,
                false => Poll::Ready(Ok(())),
            }
        }
    }

    impl EngineWire for WriteFails {
        fn poll_event(&mut self, _: &mut Context<'_>) -> Poll<WireEvent> {
            let is_late = matches!(self.stage, ReadyForNotification | FlushOfNotification);
            if is_late && !self.has_answered {
                self.has_answered = true;
                let answer = json!({"jsonrpc": "2.0", "id": "again", "result": {}});
                return Poll::Ready(Received::Frame(answer.to_string().into()).into());
            }
            Poll::Ready(Received::Broken(io::Error::other("ended with exit status: 3")).into())
        }

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.poll_write([ReadyForRequest, ReadyForNotification])
        }

        fn send(&mut self, outgoing: &OutgoingMessage) {
            self.sent.push(match &outgoing.message {
                Message::Request(_) => "request",
                _ => "notification",
            });
        }

        fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.poll_write([FlushOfRequest, FlushOfNotification])
        }

        fn poll_close(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn transport(&self) -> TransportKind {
            TransportKind::Other
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_wire_that_ends_while_the_handshake_is_written_fails_it_at_once() {
        let cases = [
            (ReadyForRequest, &[][..]),
            (FlushOfRequest, &["request"]),
            (ReadyForNotification, &["request"]),
            (FlushOfNotification, &["request", "notification"]),
        ];
        for (stage, sent) in cases {
            let handshake = Handshake {
                request: RawRequest {
                    id: RequestId::from("again"),
                    method: "initialize".into(),
                    params: None,
                },
                version: None,
                initialized: Some(Notification {
                    method: "notifications/initialized".into(),
                    params: None,
                }),
            };
            let mut wire = WriteFails {
                stage,
                sent: Vec::new(),
                has_answered: false,
            };

            let performed = handshake.perform(&mut wire);
            let performed = timeout(Duration::from_secs(30), performed).await;

            let error = performed.expect("no timeout").unwrap_err();
            assert_eq!(error.to_string(), "ended with exit status: 3", "{stage:?}");
            assert_eq!(wire.sent, sent, "{stage:?}");
        }
    }
}
