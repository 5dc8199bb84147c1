//! [`Wire`], the trait of duplex transports, and its implementations: stdio, child processes, byte streams, memory.
//!
//! A wire carries JSON-RPC messages and does not interpret them. It sends [`Message`]s, which are valid by
//! construction, and receives frames, which may be any bytes.

mod child;
pub(crate) use child::ChildHandle;
pub use child::Command;

mod lines;
pub use lines::Lines;

mod memory;
pub use memory::{Memory, memory};

mod stdio;
pub use stdio::stdio;

use std::io;
use std::task::{Context, Poll};

pub use bowline_core::Message;
use bowline_types::RequestId;
use bytes::Bytes;
use tokio::time::Instant;

use crate::Error;

/// A duplex transport of JSON-RPC messages: a pipe, a socket, an in-memory queue.
///
/// The contract is that of a `Sink` and a `Stream` in one: [`Wire::send`] is called only after [`Wire::poll_ready`]
/// returned ready, and a sent message may stay in a buffer until [`Wire::poll_flush`]. All methods are called from one
/// task and must not block.
///
/// # Examples
///
/// A wire that counts sent messages:
///
/// ```
/// use std::io;
/// use std::task::{Context, Poll};
/// use bowline::wire::{Message, Received, Wire};
///
/// struct Counting<W> {
///     wire: W,
///     sent: u64,
/// }
///
/// impl<W: Wire> Wire for Counting<W> {
///     fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Received> {
///         self.wire.poll_receive(cx)
///     }
///     fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
///         self.wire.poll_ready(cx)
///     }
///     fn send(&mut self, message: &Message) {
///         self.sent += 1;
///         self.wire.send(message);
///     }
///     fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
///         self.wire.poll_flush(cx)
///     }
///     fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
///         self.wire.poll_close(cx)
///     }
/// }
/// ```
pub trait Wire: Send + 'static {
    /// Polls for the next frame or event.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Received>;

    /// Polls until the wire can accept one more message.
    ///
    /// # Errors
    ///
    /// If the peer cannot be reached any more.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Accepts one message. From here on it counts as sent, so that abandoning its call sends a cancel.
    fn send(&mut self, message: &Message);

    /// Like [`Wire::send`], for a message that belongs to this request of the peer.
    ///
    /// For wires with one stream per request; the default calls `send`.
    fn send_within(&mut self, request: &RequestId, message: &Message) {
        let _ = request;
        self.send(message);
    }

    /// Called when the peer has cancelled its request: no answer will be sent for it.
    fn cancelled(&mut self, request: &RequestId) {
        let _ = request;
    }

    /// Writes buffered messages.
    ///
    /// # Errors
    ///
    /// If the peer cannot be reached any more.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Flushes, and closes the sending direction.
    ///
    /// # Errors
    ///
    /// If the peer cannot be reached any more.
    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

/// A frame or an event from a [`Wire`].
#[derive(Debug)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a driver must handle every variant"
)]
pub enum Received {
    /// A frame, which may be any bytes.
    Frame(Bytes),
    /// A decoded message.
    Message(Message),
    /// A frame exceeded the limit and was skipped. The wire stays open.
    TooLong {
        /// The limit, in bytes.
        limit: usize,
    },
    /// A request failed to be sent, or its answer to be received. The wire stays open.
    RequestFailed {
        /// The id of the request.
        id: RequestId,
        /// The cause.
        error: Error,
    },
    /// A request waits on this side for the user, such as for a consent screen. Its timeouts are paused.
    Paused {
        /// The id of the request.
        id: RequestId,
    },
    /// A paused request continues.
    Resumed {
        /// The id of the request.
        id: RequestId,
    },
    /// The server requested a reconnect delay (SSE `retry`), so no message for one request is received until then. A
    /// call whose deadline is earlier fails immediately.
    ReconnectDelayed {
        /// The id of the request.
        id: RequestId,
        /// When the wire reconnects; `None` if the time overflows.
        until: Option<Instant>,
    },
    /// Notifications that belong to no request may have been lost. The wire stays open.
    NotificationsMissed,
    /// The peer was restarted or lost the state of this wire: its own requests, subscriptions and the log level.
    /// The wire stays open, and requests of this side are not affected.
    Reset,
    /// Notifications that belong to no request are no longer received, until a [`Received::Reset`]. Requests work.
    StreamLost {
        /// The cause.
        error: Error,
    },
    /// The peer closed the wire.
    End,
    /// The wire failed.
    Broken(io::Error),
}
