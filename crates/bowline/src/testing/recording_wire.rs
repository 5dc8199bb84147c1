//! [`RecordingWire`], a wire that records every frame.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bowline_core::Message;
use serde_json::Value;

use crate::sync::Mutex;
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

/// The frames that a [`RecordingWire`] has recorded. Cheap to clone; clones share the record.
#[derive(Clone, Debug, Default)]
pub struct WireRecord(Arc<Mutex<RecordState>>);

#[derive(Debug, Default)]
struct RecordState {
    frames: Vec<RecordedFrame>,
    is_cut: bool,
    reader: Option<Waker>,
}

/// A recorded frame.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordedFrame {
    /// The direction of the frame.
    pub direction: Direction,
    /// The text of the frame.
    pub text: String,
}

/// The direction of a frame, seen from the end that has the [`RecordingWire`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a wire has two ends, so there are two directions"
)]
pub enum Direction {
    /// To the other end.
    Sent,
    /// From the other end.
    Received,
}

impl RecordingWire {
    /// Wraps a wire, and returns the record of its frames.
    pub fn new(wire: impl Wire) -> (Self, WireRecord) {
        let (wire, record) = (Box::new(wire), WireRecord::default());
        (
            Self {
                wire,
                record: record.clone(),
            },
            record,
        )
    }
}

impl WireRecord {
    /// Returns all frames, in order.
    #[must_use]
    pub fn frames(&self) -> Vec<RecordedFrame> {
        self.0.lock().frames.clone()
    }

    /// Returns the sent frames, as JSON.
    #[must_use]
    pub fn sent(&self) -> Vec<Value> {
        self.frames_in(Direction::Sent)
    }

    /// Returns the received frames, as JSON.
    #[must_use]
    pub fn received(&self) -> Vec<Value> {
        self.frames_in(Direction::Received)
    }

    /// Clears the record.
    pub fn clear(&self) {
        self.0.lock().frames.clear();
    }

    /// Cuts the wire: receiving at the recording end fails with [`Received::Broken`].
    pub fn cut(&self) {
        let mut state = self.0.lock();
        state.is_cut = true;
        let reader = state.reader.take();
        // Woken after unlocking: a waker is foreign code.
        drop(state);
        reader.into_iter().for_each(Waker::wake);
    }

    fn frames_in(&self, direction: Direction) -> Vec<Value> {
        let state = self.0.lock();
        let frames = state.frames.iter();
        frames
            .filter(|frame| frame.direction == direction)
            .map(RecordedFrame::json)
            .collect()
    }

    fn push(&self, direction: Direction, frame: &[u8]) {
        let text = String::from_utf8_lossy(frame).into_owned();
        self.0.lock().frames.push(RecordedFrame { direction, text });
    }

    /// Returns whether the wire was cut, and registers the reader to be woken when it is.
    fn is_cut(&self, cx: &Context<'_>) -> bool {
        let waker = cx.waker().clone();
        let mut state = self.0.lock();
        let old = state.reader.replace(waker);
        let is_cut = state.is_cut;
        drop(state);
        drop(old);
        is_cut
    }
}

impl RecordedFrame {
    /// Parses the frame as JSON; `null` if it is not JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }
}

impl fmt::Display for RecordedFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arrow = match self.direction {
            Direction::Sent => '→',
            Direction::Received => '←',
        };
        write!(f, "{arrow} {}", self.text)
    }
}

impl Wire for RecordingWire {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Received> {
        if self.record.is_cut(cx) {
            return Poll::Ready(Received::Broken(io::ErrorKind::ConnectionReset.into()));
        }
        let received = self.wire.poll_receive(cx);
        if let Poll::Ready(Received::Frame(frame)) = &received {
            self.record.push(Direction::Received, frame);
        }
        received
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.poll_ready(cx)
    }

    fn send(&mut self, message: &Message) {
        self.record.push(Direction::Sent, &message.to_frame());
        self.wire.send(message);
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.poll_flush(cx)
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.poll_close(cx)
    }
}

impl fmt::Debug for RecordingWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordingWire")
            .field("record", &self.record)
            .finish_non_exhaustive()
    }
}
