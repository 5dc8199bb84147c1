//! `ClosableIo`, the I/O of an HTTP/1.1 connection that a dropped request closes synchronously.
//!
//! hyper also closes the connection of a dropped request, but in the task that drives the connection. The runtime polls
//! that task only after the caller's next `.await`, and the server would keep working until then.
//!
//! ```text
//! Idle ──take──▶ Polled ──put_back──▶ Idle
//!   │              │
//!   └────close─────┴────▶ Closed (during a poll, `put_back` shuts the I/O down afterwards)
//! ```

use std::io::{self, IoSlice};
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use hyper::rt::{Read, ReadBufCursor, Write};

use crate::sync::Mutex;

/// The I/O of a connection, which a [`Closer`] can close. hyper then reads EOF and fails to write.
pub(super) struct ClosableIo<T> {
    slot: Arc<IoSlot<T>>,
    is_write_vectored: bool,
}

/// Closes a connection from outside the task that drives it.
#[derive(Clone)]
pub(super) struct Closer(Arc<dyn Close>);

/// Closes a connection when it is dropped, unless disarmed.
#[must_use = "dropping it closes the connection"]
pub(super) struct CloseOnDrop(Option<Closer>);

/// Holds the I/O of a connection between polls.
struct IoSlot<T>(Mutex<IoState<T>>);

enum IoState<T> {
    /// Not being polled.
    Idle(Box<T>),
    /// Taken out for one poll, so that neither a waker nor a system call runs under the lock.
    Polled,
    Closed,
}

impl<T> ClosableIo<T>
where
    T: Read + Write + Unpin + Send + 'static,
{
    pub(super) fn new(io: T) -> (Self, Closer) {
        let is_write_vectored = io.is_write_vectored();
        let slot = Arc::new(IoSlot(Mutex::new(IoState::Idle(Box::new(io)))));
        let closable = Self {
            slot: slot.clone(),
            is_write_vectored,
        };
        (closable, Closer(slot))
    }

    /// Polls the I/O; returns `closed` if the connection is closed.
    fn poll<R>(&self, poll: impl FnOnce(Pin<&mut T>) -> R, closed: R) -> R {
        let Some(mut io) = self.slot.take() else {
            return closed;
        };
        let polled = poll(Pin::new(&mut *io));
        self.slot.put_back(io);
        polled
    }
}

impl Closer {
    pub(super) fn close(&self) {
        self.0.close();
    }

    pub(super) fn close_on_drop(&self) -> CloseOnDrop {
        CloseOnDrop(Some(self.clone()))
    }
}

impl CloseOnDrop {
    pub(super) fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        if let Some(closer) = &self.0 {
            closer.close();
        }
    }
}

trait Close: Send + Sync {
    /// Closes the I/O now, or at the end of the current poll.
    fn close(&self);
}

impl<T: Write + Unpin + Send> Close for IoSlot<T> {
    fn close(&self) {
        let before = mem::replace(&mut *self.0.lock(), IoState::Closed);
        if let IoState::Idle(io) = before {
            shut_down(*io);
        }
    }
}

impl<T: Write + Unpin> IoSlot<T> {
    fn take(&self) -> Option<Box<T>> {
        let mut state = self.0.lock();
        match mem::replace(&mut *state, IoState::Polled) {
            IoState::Idle(io) => Some(io),
            other => {
                *state = other;
                None
            }
        }
    }

    fn put_back(&self, io: Box<T>) {
        let mut state = self.0.lock();
        if let IoState::Polled = *state {
            *state = IoState::Idle(io);
            return;
        }
        // Closed by another thread during the poll.
        drop(state);
        shut_down(*io);
    }
}

/// Shuts the I/O down gracefully if that does not block (TLS sends `close_notify`), and closes it.
fn shut_down<T: Write + Unpin>(mut io: T) {
    let mut cx = Context::from_waker(Waker::noop());
    let _ = Pin::new(&mut io).poll_shutdown(&mut cx);
}

impl<T> Read for ClosableIo<T>
where
    T: Read + Write + Unpin + Send + 'static,
{
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        // A closed connection reads as EOF.
        self.poll(|io| io.poll_read(cx, buffer), Poll::Ready(Ok(())))
    }
}

impl<T> Write for ClosableIo<T>
where
    T: Read + Write + Unpin + Send + 'static,
{
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll(|io| io.poll_write(cx, bytes), broken_pipe())
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll(|io| io.poll_write_vectored(cx, bytes), broken_pipe())
    }

    fn is_write_vectored(&self) -> bool {
        self.is_write_vectored
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(|io| io.poll_flush(cx), Poll::Ready(Ok(())))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(|io| io.poll_shutdown(cx), Poll::Ready(Ok(())))
    }
}

fn broken_pipe<R>() -> Poll<io::Result<R>> {
    Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use hyper::rt::ReadBuf;

    use super::*;

    /// Closes its connection in the middle of a read, as another thread may.
    #[derive(Default)]
    struct ClosedByRead {
        closer: Arc<OnceLock<Closer>>,
        shutdowns: Arc<AtomicUsize>,
    }

    impl Read for ClosedByRead {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: ReadBufCursor<'_>,
        ) -> Poll<io::Result<()>> {
            self.closer.get().unwrap().close();
            assert_eq!(
                self.shutdowns.load(Ordering::Relaxed),
                0,
                "not during a poll"
            );
            Poll::Pending
        }
    }

    impl Write for ClosedByRead {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.shutdowns.fetch_add(1, Ordering::Relaxed);
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn a_connection_closed_during_a_poll_is_closed_when_the_poll_ends() {
        let io = ClosedByRead::default();
        let (slot, shutdowns) = (io.closer.clone(), io.shutdowns.clone());
        let (mut closable, closer) = ClosableIo::new(io);
        let _ = slot.set(closer);
        let mut cx = Context::from_waker(Waker::noop());
        let mut bytes = [0; 8];

        let read = Pin::new(&mut closable).poll_read(&mut cx, ReadBuf::new(&mut bytes).unfilled());

        assert!(read.is_pending());
        assert_eq!(shutdowns.load(Ordering::Relaxed), 1);
        // For hyper the connection is at its end from now on.
        let read = Pin::new(&mut closable).poll_read(&mut cx, ReadBuf::new(&mut bytes).unfilled());
        assert!(matches!(read, Poll::Ready(Ok(()))));
        let written = Pin::new(&mut closable).poll_write(&mut cx, b"more");
        assert!(matches!(written, Poll::Ready(Err(_))));
    }
}
