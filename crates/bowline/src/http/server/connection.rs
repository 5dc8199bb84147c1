//! A connection's input and output, cut off when the other side takes nothing in or does not begin.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{self, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// Fails once a write has waited for longer than the limit, or the first bytes did.
///
/// While nothing can be written nothing else of the response is polled, its handler included. Only the
/// connection itself can notice. The same goes for the first bytes, which tell HTTP/1.1 from HTTP/2: neither
/// has begun to count the time.
pub(super) struct Patient<T> {
    io: T,
    limit: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
    opening: Option<Opening>,
}

/// A connection of which it is not known yet what it speaks.
struct Opening {
    /// How many bytes are to come until it is.
    missing: usize,
    within: Duration,
    late: Option<Pin<Box<Sleep>>>,
}

impl<T> Patient<T> {
    /// The other side has to begin within `begins_within`, and to take something in at least every `limit`.
    pub(super) fn new(io: T, begins_within: Duration, limit: Duration) -> Self {
        Self {
            io,
            limit,
            stalled: None,
            opening: Some(Opening {
                missing: PREFACE,
                within: begins_within,
                late: None,
            }),
        }
    }

    /// Passes on what is ready; what is not may stay so for a while.
    fn watch<R>(
        &mut self,
        cx: &mut task::Context<'_>,
        polled: Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if polled.is_ready() {
            self.stalled = None;
            return polled;
        }
        let limit = self.limit;
        let stalled = self
            .stalled
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        task::ready!(stalled.as_mut().poll(cx));
        tracing::debug!("a client took nothing in for {limit:?} and was cut off");
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Patient<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(cx, buffer);
        let Some(opening) = &mut self.opening else {
            return polled;
        };
        if polled.is_pending() {
            return opening.poll_late(cx);
        }
        opening.missing = opening
            .missing
            .saturating_sub(buffer.filled().len() - before);
        if opening.missing == 0 {
            self.opening = None;
        }
        polled
    }
}

impl Opening {
    fn poll_late(&mut self, cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        let within = self.within;
        let late = self
            .late
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(within)));
        task::ready!(late.as_mut().poll(cx));
        tracing::debug!("a client did not begin within {within:?} and was cut off");
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Patient<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.watch(cx, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write_vectored(cx, bytes);
        self.watch(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_flush(cx);
        self.watch(cx, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_shutdown(cx);
        self.watch(cx, polled)
    }
}

/// How long the first words of HTTP/2 are. No request of HTTP/1.1 that we answer is as short.
const PREFACE: usize = 24;
