//! A wire over the stdin and stdout of a child process.
//!
//! ```text
//! ChildHandle ── requests SIGTERM ──┐
//!                                   ▼
//! ChildWire ──────dropped──────▶ Reaper ──▶ the process and its group
//!     ▲                             │
//!     └──── exit status, stderr ────┘
//! ```
//!
//! [`ChildWire`] is owned by the driver of the connection. [`Reaper`] is a task that owns the process: it terminates
//! the process when the wire is dropped, and reaps it. [`ChildHandle`] is the client's handle, to wait for the exit.

mod command;
pub use command::Command;

mod reaper;
pub(crate) use reaper::ChildHandle;
use reaper::{ExitOutcome, Reaper};

mod stderr_tail;
use stderr_tail::StderrTail;

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

/// A wire over the stdin and stdout of a child process.
///
/// When the child exits, the wire fails with an error that contains its exit status and its last lines of stderr.
pub(super) struct ChildWire {
    lines: Lines,
    exit_signs: ExitSigns,
    /// Resolves when the process is reaped; `None` if the task that waits for it was dropped.
    exited: Pin<Box<dyn Future<Output = Option<ExitOutcome>> + Send>>,
    stderr_tail: Arc<StderrTail>,
    /// Dropped with the wire, which makes the `Reaper` terminate the process.
    _alive: oneshot::Sender<()>,
}

/// The signs of the child's exit that were seen. The first one starts a timer, since the others may never come: a child
/// can close its stdout and run on, or leave a grandchild that keeps it open.
#[derive(Default)]
struct ExitSigns {
    output_ended: bool,
    input_failed: bool,
    exit: Option<Option<ExitOutcome>>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl ExitSigns {
    fn has_any(&self) -> bool {
        self.output_ended || self.input_failed || self.exit.is_some()
    }

    fn is_complete(&self) -> bool {
        self.output_ended && self.exit.is_some()
    }
}

impl ChildWire {
    /// Polls until all signs of the exit were seen, or the timer has elapsed.
    fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.exit_signs.exit.is_none()
            && let Poll::Ready(exit) = self.exited.as_mut().poll(cx)
        {
            self.exit_signs.exit = Some(exit);
        }
        if self.exit_signs.is_complete() {
            return Poll::Ready(());
        }
        if !self.exit_signs.has_any() {
            return Poll::Pending;
        }
        let timer = self.exit_signs.timer.get_or_insert_with(|| {
            Box::pin(tokio::time::sleep(LINGER)) // for the other signs
        });
        timer.as_mut().poll(cx)
    }

    fn exit_report(&self) -> ExitReport {
        ExitReport {
            exit: self.exit_signs.exit.clone().flatten(),
            stderr_tail: self.stderr_tail.to_string(),
        }
    }

    /// Handles a failed write. It is not reported: the child is probably exiting, and `poll_receive` then fails with
    /// the exit status and stderr, a better error than a broken pipe.
    fn input_failed<T>(&mut self, cx: &Context<'_>, error: &io::Error) -> Poll<T> {
        if !std::mem::replace(&mut self.exit_signs.input_failed, true) {
            tracing::debug!(%error, "failed to write to the child's stdin");
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl Wire for ChildWire {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Received> {
        if !self.exit_signs.output_ended {
            match self.lines.poll_receive(cx) {
                Poll::Ready(Received::End) => self.exit_signs.output_ended = true,
                Poll::Ready(Received::Broken(error)) => {
                    tracing::debug!(%error, "failed to read the child's stdout");
                    self.exit_signs.output_ended = true;
                }
                Poll::Ready(received) => return Poll::Ready(received),
                Poll::Pending => {}
            }
        }
        self.poll_ended(cx)
            .map(|()| Received::Broken(io::Error::other(self.exit_report())))
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.exit_signs.input_failed {
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
        if self.exit_signs.input_failed {
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

/// The error of a wire whose child has exited.
#[derive(Debug)]
struct ExitReport {
    exit: Option<ExitOutcome>,
    stderr_tail: String,
}

impl fmt::Display for ExitReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.exit {
            Some(exit) => write!(f, "the server process ended with {exit}")?,
            None => f.write_str("the server process closed its stdin or stdout")?,
        }
        if !self.stderr_tail.is_empty() {
            write!(f, "; last lines of stderr:\n{}", self.stderr_tail)?;
        }
        Ok(())
    }
}

impl std::error::Error for ExitReport {}

/// The child's stdin. Shutting it down drops the pipe, since `ChildStdin::poll_shutdown` does not close it.
struct ClosableStdin(Option<ChildStdin>);

impl AsyncWrite for ClosableStdin {
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

/// How long to wait for the other signs of the exit after the first one.
const LINGER: Duration = Duration::from_secs(1);
