//! [`RecordingWire`], a wire that records every frame.

use std::fmt;
use std::io;
use std::task::{Context, Poll};

use bowline_core::Message;

use super::{Direction, WireRecord};
use crate::telemetry::TransportKind;
use crate::wire::{Received, Wire};

/// A wire that records every frame, and that can be cut.
///
/// # Examples
///
/// ```
/// use bowline::testing::{Direction, RecordingWire};
/// use bowline::{Client, Server, wire};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> bowline::Result<()> {
/// let (client_wire, server_wire) = wire::memory();
/// let (recording, record) = RecordingWire::new(client_wire);
/// tokio::spawn(Server::new("calculator", "1.0.0").serve(server_wire));
///
/// Client::from_wire(recording).protocol_version("2025-11-25").await?;
///
/// let first = &record.frames()[0];
/// assert_eq!(first.direction, Direction::Sent);
/// assert_eq!(first.json()["method"], "initialize");
/// # Ok(()) }
/// ```
#[must_use = "a wire does nothing until it is served or connected over"]
pub struct RecordingWire {
    wire: Box<dyn Wire>,
    record: WireRecord,
}

impl RecordingWire {
    /// Wraps a wire, and returns the record of its frames.
    pub fn new(wire: impl Wire) -> (Self, WireRecord) {
        let record = WireRecord::default();
        (Self::with_record(wire, &record), record)
    }

    /// Wraps a wire whose frames are added to `record`.
    pub fn with_record(wire: impl Wire, record: &WireRecord) -> Self {
        let (wire, record) = (Box::new(wire), record.clone());
        Self { wire, record }
    }
}

impl Wire for RecordingWire {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Received> {
        if self.record.is_cut(cx) {
            return Poll::Ready(Received::Broken(io::ErrorKind::ConnectionReset.into()));
        }
        let received = self.wire.poll_receive(cx);
        if let Poll::Ready(Received::Frame(frame)) = &received {
            self.record.push_frame(Direction::Received, frame);
        }
        received
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.poll_ready(cx)
    }

    fn send(&mut self, message: &Message) {
        self.record.push_frame(Direction::Sent, &message.to_frame());
        self.wire.send(message);
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.poll_flush(cx)
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.poll_close(cx)
    }

    fn transport(&self) -> TransportKind {
        self.wire.transport()
    }
}

impl fmt::Debug for RecordingWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordingWire")
            .field("record", &self.record)
            .finish_non_exhaustive()
    }
}
