//! A child process as a wire: its input and output, what it says on stderr, and how it ends.
//!
//! ```text
//! Leash ──────── how to end ───────┐
//!                                  ▼
//! Child (the wire) ──dropped──▶ Keeper ──▶ the process, and its group
//!        ▲                         │
//!        └── exit, last words ─────┘
//! ```
//!
//! The wire belongs to a driver and knows how to read and write. The keeper is a task that owns the
//! process: it waits for it, and ends it once the wire is gone. The leash is for whoever wants to know
//! that it has ended.

mod command;
pub use command::Command;

mod keeper;
pub(crate) use keeper::Leash;
use keeper::{Exit, Keeper};

mod last_words;
use last_words::LastWords;

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bowline_core::Message;
use tokio::io::AsyncWrite;
use tokio::process::ChildStdin;
use tokio::sync::oneshot;
use tokio::time::Sleep;

use super::{Lines, Received, Wire};

/// The input and output of a child process.
///
/// However the child goes, the wire breaks with an error that tells how: what it exited with, and what it
/// last said on stderr.
pub(super) struct Child {
    lines: Lines,
    ending: Ending,
    /// Resolves when the process was reaped; `None` if nobody could wait for it.
    exited: Pin<Box<dyn Future<Output = Option<Exit>> + Send>>,
    last_words: Arc<LastWords>,
    /// Dropped with the wire, which tells the keeper to end the process.
    _held: oneshot::Sender<()>,
}

/// Which signs of the end were seen. The first one sets the timer, since the others may never come: a
/// child can close its output and live on, or leave a grandchild behind that keeps it open.
#[derive(Default)]
struct Ending {
    output_ended: bool,
    input_failed: bool,
    exit: Option<Option<Exit>>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Ending {
    fn is_in_sight(&self) -> bool {
        self.output_ended || self.input_failed || self.exit.is_some()
    }

    fn is_complete(&self) -> bool {
        self.output_ended && self.exit.is_some()
    }
}

impl Child {
    /// Whether all is known of how the child ended, or will not be known in time.
    fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.ending.exit.is_none()
            && let Poll::Ready(exit) = self.exited.as_mut().poll(cx)
        {
            self.ending.exit = Some(exit);
        }
        if self.ending.is_complete() {
            return Poll::Ready(());
        }
        if !self.ending.is_in_sight() {
            return Poll::Pending;
        }
        let timer = self.ending.timer.get_or_insert_with(|| {
            Box::pin(tokio::time::sleep(LINGER)) // for the other signs
        });
        timer.as_mut().poll(cx)
    }

    fn epitaph(&self) -> Epitaph {
        Epitaph {
            exit: self.ending.exit.clone().flatten(),
            last_words: self.last_words.to_string(),
        }
    }

    /// A child that takes in nothing any more is about to end; how it ends says more than the pipe does.
    fn input_failed<T>(&mut self, cx: &Context<'_>, error: &io::Error) -> Poll<T> {
        if !std::mem::replace(&mut self.ending.input_failed, true) {
            tracing::debug!(%error, "the child closed its input");
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl Wire for Child {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Received> {
        if !self.ending.output_ended {
            match self.lines.poll_receive(cx) {
                Poll::Ready(Received::End) => self.ending.output_ended = true,
                Poll::Ready(Received::Broken(error)) => {
                    tracing::debug!(%error, "the child's output cannot be read");
                    self.ending.output_ended = true;
                }
                Poll::Ready(received) => return Poll::Ready(received),
                Poll::Pending => {}
            }
        }
        self.poll_ended(cx)
            .map(|()| Received::Broken(io::Error::other(self.epitaph())))
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.ending.input_failed {
            return Poll::Pending;
        }
        match self.lines.poll_ready(cx) {
            Poll::Ready(Err(error)) => self.input_failed(cx, &error),
            other => other,
        }
    }

    fn send(&mut self, message: &Message) {
        self.lines.send(message);
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.ending.input_failed {
            return Poll::Pending;
        }
        match self.lines.poll_flush(cx) {
            Poll::Ready(Err(error)) => self.input_failed(cx, &error),
            other => other,
        }
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.lines.poll_close(cx)
    }
}

/// How a child ended.
#[derive(Debug)]
struct Epitaph {
    exit: Option<Exit>,
    last_words: String,
}

impl fmt::Display for Epitaph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.exit {
            Some(exit) => write!(f, "the server's process ended with {exit}")?,
            None => f.write_str("the server's process closed its input or output")?,
        }
        if !self.last_words.is_empty() {
            write!(f, "; its last words:\n{}", self.last_words)?;
        }
        Ok(())
    }
}

impl std::error::Error for Epitaph {}

/// The child's input; shutting it down closes it, which is how a child learns that nothing more comes.
struct Input(Option<ChildStdin>);

impl AsyncWrite for Input {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.0 {
            Some(input) => Pin::new(input).poll_write(cx, bytes),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Some(input) => Pin::new(input).poll_flush(cx),
            None => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0 = None;
        Poll::Ready(Ok(()))
    }
}

/// How long the signs of a child's end may be apart.
const LINGER: Duration = Duration::from_secs(1);
