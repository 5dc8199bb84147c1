//! [`StdinPipe`], the stdin of a child, and [`InputMonitor`], which shows whether the child has read any of it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;
use tokio::process::ChildStdin;

use crate::sync::Mutex;

/// The child's stdin. Shutting it down drops the pipe, since `ChildStdin::poll_shutdown` does not close it.
pub(super) struct StdinPipe(Arc<Mutex<PipeState>>);

/// Shows whether a child reads its stdin, even after the pipe is closed. Does not keep the pipe open.
///
/// A program that is still being downloaded or started leaves its input in the pipe. One that has read a request and is
/// silent was probably broken by it.
#[derive(Clone)]
pub(super) struct InputMonitor(Arc<Mutex<PipeState>>);

struct PipeState {
    /// `None` once it is closed.
    pipe: Option<ChildStdin>,
    /// The number of bytes that were written.
    written: u64,
    has_been_read: bool,
}

impl StdinPipe {
    pub(super) fn new(pipe: ChildStdin) -> (Self, InputMonitor) {
        let state = Arc::new(Mutex::new(PipeState {
            pipe: Some(pipe),
            written: 0,
            has_been_read: false,
        }));
        (Self(state.clone()), InputMonitor(state))
    }

    fn close(&self) {
        let mut state = self.0.lock();
        state.update();
        let pipe = state.pipe.take();
        drop(state);
        drop(pipe);
    }
}

impl InputMonitor {
    /// Returns whether the child has read input. Outside Linux, input counts as read once it is written.
    pub(super) fn has_read_input(&self) -> bool {
        let mut state = self.0.lock();
        state.update();
        state.has_been_read
    }
}

impl PipeState {
    fn update(&mut self) {
        if let Some(pipe) = &self.pipe {
            self.has_been_read |= self.written > unread_bytes(pipe);
        }
    }
}

/// Returns the number of bytes in the pipe; 0 if that is not known.
#[cfg(target_os = "linux")]
fn unread_bytes(pipe: &ChildStdin) -> u64 {
    rustix::io::ioctl_fionread(pipe).unwrap_or(0)
}

/// Elsewhere the number is not available at the writing end.
#[cfg(not(target_os = "linux"))]
fn unread_bytes(_: &ChildStdin) -> u64 {
    0
}

impl AsyncWrite for StdinPipe {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.0.lock();
        let written = match &mut state.pipe {
            Some(pipe) => Pin::new(pipe).poll_write(cx, bytes),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        };
        if let Poll::Ready(Ok(written)) = written {
            state.written += written as u64;
        }
        written
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0.lock().pipe {
            Some(pipe) => Pin::new(pipe).poll_flush(cx),
            None => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.close();
        Poll::Ready(Ok(()))
    }
}

impl Drop for StdinPipe {
    fn drop(&mut self) {
        self.close(); // the monitor may live longer
    }
}
