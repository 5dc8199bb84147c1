//! [`Wire`], the trait of duplex transports, and its implementations: stdio, child processes, byte streams, memory.
//!
//! A wire carries JSON-RPC messages and does not interpret them. It sends [`Message`]s, which are valid by
//! construction, and receives frames, which may be any bytes.

mod child;
pub(crate) use child::ChildHandle;
pub use child::{Command, ProgramNotFound};

mod engine_wire;
pub(crate) use engine_wire::{EngineWire, WireEvent};

mod lines;
pub use lines::Lines;

mod long_line;

mod memory;
pub use memory::{Memory, memory};

mod reconnecting_wire;
pub(crate) use reconnecting_wire::{
    Handshake, OpenWireFn, ReconnectControl, ReconnectPolicy, ReconnectingWire,
};

mod stdio;
pub use stdio::stdio;

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

pub use bowline_core::Message;
use bytes::Bytes;

use crate::telemetry::TransportKind;
use crate::{Error, RequestId};

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
    /// Polls for the next frame, or the end of the wire.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Received>;

    /// Polls until the wire can accept one more message.
    ///
    /// # Errors
    ///
    /// If the peer cannot be reached any more.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Accepts one message. From here on it counts as sent, so that abandoning its call sends a cancel.
    fn send(&mut self, message: &Message);

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

    /// Returns what carries the messages, for telemetry. Not known by default.
    fn transport(&self) -> TransportKind {
        TransportKind::Other
    }
}

/// A frame from a [`Wire`], or its end.
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
        /// The id of the request that the frame answers, if it is known. Its call fails.
        response_to: Option<RequestId>,
    },
    /// The peer closed the wire.
    End,
    /// The wire failed.
    Broken(io::Error),
}

/// Returns the error of calls whose wire has failed.
pub(crate) fn connection_error(failure: Arc<io::Error>) -> Error {
    Error::Transport {
        // An error of the operating system, such as `Broken pipe`, does not name what failed.
        what: match failure.get_ref() {
            Some(described) => described.to_string(),
            None => "connection failed".into(),
        },
        source: Some(Box::new(failure)),
    }
}
