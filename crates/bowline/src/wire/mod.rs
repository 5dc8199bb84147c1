//! Wires: duplex carriers of frames.
//!
//! A wire moves frames and knows nothing of what they say. Outbound it is given messages, which are well
//! formed by construction; inbound it yields whatever bytes the other side sent.

mod child;
pub use child::Command;
pub(crate) use child::Leash;

mod lines;
pub use lines::Lines;

mod memory;
pub use memory::{Memory, memory};

mod stdio;
pub use stdio::stdio;

use std::io;
use std::task::{Context, Poll};

use bowline_core::Message;
use bowline_types::RequestId;
use bytes::Bytes;
use tokio::time::Instant;

use crate::Error;

/// A duplex carrier of frames: a pipe, a socket, a queue in memory.
///
/// The contract is that of a sink and a stream in one: [`Wire::send`] is called only after
/// [`Wire::poll_ready`] was ready, and what was sent may sit in a buffer until [`Wire::poll_flush`].
/// One task uses a wire at a time, so no method blocks another for longer than a poll.
///
/// # Examples
///
/// A wire that counts what goes out:
///
/// ```
///
/// use std::io;
/// use std::task::{Context, Poll};
/// use bowline::wire::{Received, Wire};
/// use bowline_core::Message;
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
    /// The next frame from the other side.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Received>;

    /// Whether there is room for one more message.
    ///
    /// # Errors
    ///
    /// If the other side can no longer be reached.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Takes one message. It counts as sent from here on.
    fn send(&mut self, message: &Message);

    /// Takes one message, which belongs to this request of the other side.
    ///
    /// For wires that have one stream per request; to the others it is a message like any other.
    fn send_within(&mut self, request: &RequestId, message: &Message) {
        let _ = request;
        self.send(message);
    }

    /// Takes note that the other side cancelled its request, so that nothing will be sent for it.
    fn cancelled(&mut self, request: &RequestId) {
        let _ = request;
    }

    /// Moves what was sent on its way.
    ///
    /// # Errors
    ///
    /// If the other side can no longer be reached.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Flushes, and tells the other side that nothing more will come.
    ///
    /// # Errors
    ///
    /// If the other side can no longer be reached.
    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

/// What came out of a wire.
#[derive(Debug)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a driver must handle every one of them"
)]
pub enum Received {
    /// One frame, which may be anything.
    Frame(Bytes),
    /// One message that was read already.
    Message(Message),
    /// A frame was longer than the limit, and was skipped. The wire goes on.
    TooLong {
        /// The limit, in bytes.
        limit: usize,
    },
    /// One request could not be carried, or its answer not brought back. The wire goes on.
    Lost {
        /// Which request.
        id: RequestId,
        /// What became of it.
        error: Error,
    },
    /// One request is held up on this side, because a person has to agree first. Its time does not count.
    Held {
        /// Which request.
        id: RequestId,
    },
    /// A request that was held goes on.
    Released {
        /// Which request.
        id: RequestId,
    },
    /// The server asked to reconnect later (`retry`), so nothing is received for one request until then. A call whose deadline is
    /// earlier fails at once.
    Waiting {
        /// Which request.
        id: RequestId,
        /// When the wire reconnects; `None` if the time overflows.
        until: Option<Instant>,
    },
    /// Notifications that belong to no request may have been lost. The wire goes on.
    Missed,
    /// The other side was restarted, or has forgotten this wire: its own requests, subscriptions and the log level.
    /// The wire goes on, and requests that it carries are not affected.
    Reset,
    /// Nothing that belongs to no request is received any more, unless a [`Received::Reset`] follows. Requests are
    /// still carried.
    StreamLost {
        /// Why.
        error: Error,
    },
    /// The other side closed the wire.
    End,
    /// The wire broke.
    Broken(io::Error),
}
