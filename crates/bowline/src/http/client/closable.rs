//! The bytes of an HTTP/1.1 connection, which a dropped request closes at once.
//!
//! hyper closes the connection of a dropped request too, but in the task that drives the connection: the runtime polls
//! that task after everything that the caller does before its next `.await`, and the server works on until then.

use std::io::{self, IoSlice};
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use hyper::rt::{Read, ReadBufCursor, Write};

/// The bytes of a connection as hyper reads and writes them, until a [`Closer`] closes them.
pub(super) struct Closable<T> {
    slot: Arc<Slot<T>>,
    is_write_vectored: bool,
}

/// Closes a connection from outside the task that drives it.
#[derive(Clone)]
pub(super) struct Closer(Arc<dyn Close>);

/// Closes a connection when it is dropped, unless it is disarmed before.
#[must_use = "dropping it closes the connection"]
pub(super) struct CloseOnDrop(Option<Closer>);

/// Where the bytes of a connection are.
struct Slot<T>(Mutex<State<T>>);

enum State<T> {
    /// Nothing reads or writes them.
    Idle(Box<T>),
    /// Taken out for one poll, so that neither a waker nor a system call runs under the lock.
    Polled,
    Closed,
}

impl<T> Closable<T>
where
    T: Read + Write + Unpin + Send + 'static,
{
    pub(super) fn new(io: T) -> (Self, Closer) {
        let is_write_vectored = io.is_write_vectored();
        let slot = Arc::new(Slot(Mutex::new(State::Idle(Box::new(io)))));
        let closable = Self {
            slot: slot.clone(),
            is_write_vectored,
        };
        (closable, Closer(slot))
    }

    /// Polls the bytes; returns `closed` if the connection is closed.
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
    /// Closes the bytes now, or when the poll ends that they are taken out for.
    fn close(&self);
}

impl<T: Write + Unpin + Send> Close for Slot<T> {
    fn close(&self) {
        let before = mem::replace(&mut *self.lock(), State::Closed);
        if let State::Idle(mut io) = before {
            shut_down(&mut *io);
        }
    }
}

impl<T: Write + Unpin> Slot<T> {
    fn take(&self) -> Option<Box<T>> {
        let mut state = self.lock();
        match mem::replace(&mut *state, State::Polled) {
            State::Idle(io) => Some(io),
            other => {
                *state = other;
                None
            }
        }
    }

    fn put_back(&self, mut io: Box<T>) {
        let mut state = self.lock();
        if let State::Polled = *state {
            *state = State::Idle(io);
            return;
        }
        // Closed by another thread during the poll.
        drop(state);
        shut_down(&mut *io);
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // No code that could panic runs under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the bytes in order before they are closed, as TLS prefers it, if that needs no waiting.
fn shut_down<T: Write + Unpin>(io: &mut T) {
    let mut cx = Context::from_waker(Waker::noop());
    let _ = Pin::new(io).poll_shutdown(&mut cx);
}

impl<T> Read for Closable<T>
where
    T: Read + Write + Unpin + Send + 'static,
{
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        // Reading nothing is the end.
        self.poll(|io| io.poll_read(cx, buffer), Poll::Ready(Ok(())))
    }
}

impl<T> Write for Closable<T>
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
        let (mut closable, closer) = Closable::new(io);
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
