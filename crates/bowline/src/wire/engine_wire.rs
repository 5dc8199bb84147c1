//! [`EngineWire`], a duplex transport as the driver sees it: any [`Wire`], or legacy HTTP, which needs more.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use bowline_core::mux::OutgoingMessage;
use bowline_types::RequestId;
use tokio::time::Instant;

use super::{Message, Received, Wire};
use crate::Error;
use crate::telemetry::TransportKind;

/// A transport that a driver can run a `Mux` on. Its methods are called in the same order as those of [`Wire`].
///
/// Events must be polled while a write is pending: a wire may report its end as an event only.
pub(crate) trait EngineWire: Send + 'static {
    /// Polls for the next event.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<WireEvent>;

    /// See [`Wire::poll_ready`].
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Accepts one message; see [`Wire::send`].
    fn send(&mut self, outgoing: &OutgoingMessage);

    /// Called when the peer has cancelled its request: no answer will be sent for it.
    fn cancelled(&mut self, request: &RequestId) {
        let _ = request;
    }

    /// Called with a frame that is not a message. Returns a description for the log, if there is a better one than the
    /// decoder's.
    fn malformed(&mut self, frame: &[u8]) -> Option<String> {
        let _ = frame;
        None
    }

    /// See [`Wire::poll_flush`].
    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// See [`Wire::poll_close`].
    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// See [`Wire::transport`].
    fn transport(&self) -> TransportKind;
}

/// An event from an [`EngineWire`].
#[derive(Debug)]
#[allow(
    dead_code,
    reason = "some are constructed with the feature `legacy` only"
)]
pub(crate) enum WireEvent {
    /// An event of any wire.
    Received(Received),
    /// A message that arrived on the stream of the request of ours with this id, which is why the peer sent it.
    ReceivedWithin {
        request: RequestId,
        message: Message,
    },
    /// A request failed to be sent, or its answer to be received. The wire stays open.
    RequestFailed { id: RequestId, error: Error },
    /// A request waits on this side for the user, such as for a consent screen. Its timeouts are paused.
    Paused { id: RequestId },
    /// A paused request continues.
    Resumed { id: RequestId },
    /// The server requested a reconnect delay (SSE `retry`), so no message for one request is received until then. A
    /// call whose deadline is earlier fails immediately.
    ReconnectDelayed {
        id: RequestId,
        /// When the wire reconnects; `None` if the time overflows.
        until: Option<Instant>,
    },
    /// The connection was lost, with the cause, and the wire opens another: every request that was sent fails. The wire
    /// stays open, and is not ready until it is connected again, which is a [`WireEvent::Reset`].
    Disconnected { error: Option<Arc<io::Error>> },
    /// Notifications that belong to no request may have been lost. The wire stays open.
    NotificationsMissed,
    /// The peer was restarted or lost the state of this wire: its own requests, subscriptions and the log level.
    /// The wire stays open, and requests of this side are not affected.
    Reset,
    /// The client can now receive notifications that belong to no request; on a server whose role watches the lists for
    /// such a client only.
    ListenerAttached {
        /// Whether the client may have missed notifications.
        is_after_gap: bool,
    },
    /// Notifications that belong to no request are no longer received, until a [`WireEvent::Reset`]. Requests work.
    StreamLost { error: Error },
}

impl From<Received> for WireEvent {
    fn from(received: Received) -> Self {
        Self::Received(received)
    }
}

impl<W: Wire> EngineWire for W {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<WireEvent> {
        self.poll_receive(cx).map(WireEvent::Received)
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Wire::poll_ready(self, cx)
    }

    fn send(&mut self, outgoing: &OutgoingMessage) {
        Wire::send(self, &outgoing.message);
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Wire::poll_flush(self, cx)
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Wire::poll_close(self, cx)
    }

    fn transport(&self) -> TransportKind {
        Wire::transport(self)
    }
}
