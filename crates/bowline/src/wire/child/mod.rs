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
//! the process when the wire is dropped, and reaps it. [`ChildHandle`] is the client's handle: it waits for the exit,
//! and describes a child that does not answer.

mod command;
pub use command::{Command, ProgramNotFound};

mod reaper;
use reaper::{ExitOutcome, ProcessHandle, Reaper};

mod output;
use output::ChildOutput;

mod stdin;
use stdin::{InputMonitor, StdinPipe};

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bowline_core::mux::OutgoingMessage;
use bowline_core::shortened;
use tokio::sync::oneshot;
use tokio::time::Sleep;

use super::{EngineWire, Lines, Received, WireEvent};
use crate::telemetry::TransportKind;

/// A wire over the stdin and stdout of a child process.
///
/// When the child exits, the wire fails with an error that contains its exit status and the lines that it printed.
/// Lines on stdout that are not messages, such as a banner, are skipped: servers must not print them, but many do.
pub(super) struct ChildWire {
    lines: Lines,
    exit_signs: ExitSigns,
    /// Resolves when the process is reaped; `None` if the task that waits for it was dropped.
    exited: Pin<Box<dyn Future<Output = Option<ExitOutcome>> + Send>>,
    output: Arc<ChildOutput>,
    /// The number of frames that were received, and of those that are not messages.
    received: u64,
    malformed: u64,
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

    fn report(&self, end: ChildEnd) -> WireEvent {
        let output = self.output.clone();
        Received::Broken(io::Error::other(EndReport { end, output })).into()
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

impl EngineWire for ChildWire {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<WireEvent> {
        if self.malformed == self.received && self.malformed > MAX_LINES_BEFORE_MESSAGE {
            return Poll::Ready(self.report(ChildEnd::NotAServer));
        }
        if !self.exit_signs.output_ended {
            match self.lines.poll_event(cx) {
                Poll::Ready(WireEvent::Received(Received::End)) => {
                    self.exit_signs.output_ended = true;
                }
                Poll::Ready(WireEvent::Received(Received::Broken(error))) => {
                    tracing::debug!(%error, "failed to read the child's stdout");
                    self.exit_signs.output_ended = true;
                }
                Poll::Ready(event) => {
                    self.received += 1;
                    return Poll::Ready(event);
                }
                Poll::Pending => {}
            }
        }
        self.poll_ended(cx)
            .map(|()| self.report(ChildEnd::Exited(self.exit_signs.exit.clone().flatten())))
    }

    fn malformed(&mut self, frame: &[u8]) -> Option<String> {
        self.malformed += 1;
        let line = self.output.record_stdout(frame);
        let (program, line) = (self.output.program(), shortened(line));
        Some(format!(
            "`{program}` printed to stdout, which is for messages only: `{line}`"
        ))
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

    fn send(&mut self, outgoing: &OutgoingMessage) {
        self.lines.send(outgoing);
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

    fn transport(&self) -> TransportKind {
        TransportKind::Pipe
    }
}

/// A handle to a child process.
#[derive(Clone)]
pub(crate) struct ChildHandle {
    process: ProcessHandle,
    input: InputMonitor,
    output: Arc<ChildOutput>,
}

impl ChildHandle {
    /// Makes the termination orderly: SIGTERM comes before SIGKILL.
    pub(crate) fn request_sigterm(&self) {
        self.process.request_sigterm();
    }

    /// Returns the process id; `None` after the child was reaped.
    pub(crate) fn id(&self) -> Option<u32> {
        self.process.id()
    }

    /// Waits until the child is reaped.
    ///
    /// # Cancel safety
    ///
    /// Safe: the child is reaped in any case.
    pub(crate) async fn reaped(&self) {
        self.process.reaped().await;
    }

    /// Returns whether the child has read input. Outside Linux, input counts as read once it is written.
    pub(crate) fn has_read_input(&self) -> bool {
        self.input.has_read_input()
    }

    /// Describes a child that has not answered for `time`, with the lines that it printed.
    pub(crate) fn describe_silence(&self, time: Duration) -> String {
        let (program, output) = (self.output.program(), &self.output);
        format!("the server process `{program}` did not answer within {time:?}; {output}")
    }
}

/// The error of a wire whose child has ended.
#[derive(Debug)]
struct EndReport {
    end: ChildEnd,
    output: Arc<ChildOutput>,
}

#[derive(Debug)]
enum ChildEnd {
    /// With its status, if it has exited.
    Exited(Option<ExitOutcome>),
    /// It printed many lines and no message.
    NotAServer,
}

impl fmt::Display for EndReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (program, output) = (self.output.program(), &self.output);
        write!(f, "the server process `{program}` ")?;
        match &self.end {
            ChildEnd::Exited(Some(exit)) => write!(f, "ended with {exit}")?,
            ChildEnd::Exited(None) => f.write_str("closed its stdin or stdout")?,
            ChildEnd::NotAServer => f.write_str("is not an MCP server over stdio")?,
        }
        write!(f, "; {output}")
    }
}

impl std::error::Error for EndReport {}

/// How many lines a child may print before its first message.
const MAX_LINES_BEFORE_MESSAGE: u64 = 1_000;
/// How long to wait for the other signs of the exit after the first one: the error of a call is of little use without the
/// exit status, and a busy machine may take this long to report it.
const LINGER: Duration = Duration::from_secs(3);
