//! A wire that writes down every frame that passes, in order.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bowline_core::Message;
use serde_json::Value;

use crate::wire::{Received, Wire};

/// A wire that writes down every frame that passes, and that can be cut.
///
/// # Examples
///
/// ```
/// use bowline::testing::{Direction, Tap};
/// use bowline::{Client, Server, wire};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> bowline::Result<()> {
/// let (near, far) = wire::memory();
/// let (tap, tapped) = Tap::new(near);
/// tokio::spawn(Server::new("quiet", "1.0.0").serve(far));
///
/// Client::over(tap).speaking("2025-11-25").await?;
///
/// let first = &tapped.frames()[0];
/// assert_eq!(first.direction, Direction::Sent);
/// assert_eq!(first.json()["method"], "initialize");
/// # Ok(()) }
/// ```
#[must_use = "a wire does nothing until it is served or connected over"]
pub struct Tap {
    wire: Box<dyn Wire>,
    tapped: Tapped,
}

/// What passed through a [`Tap`] so far. Cheap to clone; clones see the same.
#[derive(Clone, Debug, Default)]
pub struct Tapped(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    frames: Vec<TappedFrame>,
    is_cut: bool,
    reader: Option<Waker>,
}

/// One frame that passed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TappedFrame {
    /// Which way it went.
    pub direction: Direction,
    /// What it said.
    pub text: String,
}

/// Which way a frame went, seen from the end that the [`Tap`] is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a wire has two ends, so a frame has two ways to go"
)]
pub enum Direction {
    /// To the other end.
    Sent,
    /// From the other end.
    Received,
}

impl Tap {
    /// Taps a wire.
    pub fn new(wire: impl Wire) -> (Self, Tapped) {
        let (wire, tapped) = (Box::new(wire), Tapped::default());
        (
            Self {
                wire,
                tapped: tapped.clone(),
            },
            tapped,
        )
    }
}

impl Tapped {
    /// Everything that passed, in order.
    #[must_use]
    pub fn frames(&self) -> Vec<TappedFrame> {
        self.lock().frames.clone()
    }

    /// What went to the other end, as JSON.
    #[must_use]
    pub fn sent(&self) -> Vec<Value> {
        self.of(Direction::Sent)
    }

    /// What came from the other end, as JSON.
    #[must_use]
    pub fn received(&self) -> Vec<Value> {
        self.of(Direction::Received)
    }

    /// Forgets what has passed so far.
    pub fn clear(&self) {
        self.lock().frames.clear();
    }

    /// Cuts the wire: the tapped end finds it broken.
    pub fn cut(&self) {
        let mut state = self.lock();
        state.is_cut = true;
        let reader = state.reader.take();
        drop(state);
        reader.into_iter().for_each(Waker::wake);
    }

    fn of(&self, direction: Direction) -> Vec<Value> {
        let state = self.lock();
        let frames = state.frames.iter();
        frames
            .filter(|frame| frame.direction == direction)
            .map(TappedFrame::json)
            .collect()
    }

    fn write_down(&self, direction: Direction, frame: &[u8]) {
        let text = String::from_utf8_lossy(frame).into_owned();
        self.lock().frames.push(TappedFrame { direction, text });
    }

    /// Whether the wire was cut; if not, the reader is woken when it is.
    fn is_cut(&self, cx: &Context<'_>) -> bool {
        let waker = cx.waker().clone();
        let mut state = self.lock();
        let old = state.reader.replace(waker);
        let is_cut = state.is_cut;
        drop(state);
        drop(old);
        is_cut
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // What is under this lock is whole after every statement.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TappedFrame {
    /// What it said; `null` if that is no JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }
}

impl fmt::Display for TappedFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arrow = match self.direction {
            Direction::Sent => '→',
            Direction::Received => '←',
        };
        write!(f, "{arrow} {}", self.text)
    }
}

impl Wire for Tap {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Received> {
        if self.tapped.is_cut(cx) {
            return Poll::Ready(Received::Broken(io::ErrorKind::ConnectionReset.into()));
        }
        let received = self.wire.poll_receive(cx);
        if let Poll::Ready(Received::Frame(frame)) = &received {
            self.tapped.write_down(Direction::Received, frame);
        }
        received
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.poll_ready(cx)
    }

    fn send(&mut self, message: &Message) {
        self.tapped.write_down(Direction::Sent, &message.to_frame());
        self.wire.send(message);
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.poll_flush(cx)
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.poll_close(cx)
    }
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tap")
            .field("tapped", &self.tapped)
            .finish_non_exhaustive()
    }
}
