//! A connection's input and output: what it speaks, and when it is cut off because the other side takes
//! nothing in.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{self, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// Fails once a write has waited for longer than the limit.
///
/// While nothing can be written nothing else of the response is polled, its handler included. Only the
/// connection itself can notice.
pub(super) struct Patient<T> {
    io: T,
    limit: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
    /// The first words, once they are heard and until they are read.
    first: Vec<u8>,
}

/// What the other side speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speaks {
    Http1,
    Http2,
}

impl<T> Patient<T> {
    /// The other side has to take something in at least every `limit`.
    pub(super) fn new(io: T, limit: Duration) -> Self {
        Self {
            io,
            limit,
            stalled: None,
            first: Vec::new(),
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

impl<T: AsyncRead + Unpin> Patient<T> {
    /// Listens to the first words, as many as tell; they are still to be read afterwards.
    ///
    /// # Cancel safety
    ///
    /// Safe: what was heard is kept.
    pub(super) async fn speaks(&mut self) -> io::Result<Speaks> {
        while self.first.len() < PREFACE.len() {
            let mut words = [0; PREFACE.len()];
            let missing = PREFACE.len() - self.first.len();
            let heard = self.io.read(&mut words[..missing]).await?;
            self.first.extend_from_slice(&words[..heard]);
            if heard == 0 || !PREFACE.starts_with(&self.first) {
                return Ok(Speaks::Http1);
            }
        }
        Ok(Speaks::Http2)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Patient<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.io).poll_read(cx, buffer);
        }
        let fits = self.first.len().min(buffer.remaining());
        buffer.put_slice(&self.first[..fits]);
        self.first.drain(..fits);
        if !self.first.is_empty() {
            return Poll::Ready(Ok(()));
        }
        self.first = Vec::new();
        // With them comes what follows, so that the first request is mostly read as a whole, and into a
        // buffer that does not have to grow for it.
        match Pin::new(&mut self.io).poll_read(cx, buffer) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(())),
        }
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

/// The first words of HTTP/2.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn what_was_heard_first_is_read_together_with_what_follows() {
        let (mut near, far) = tokio::io::duplex(1024);
        let mut patient = Patient::new(far, LIMIT);
        near.write_all(b"POST /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .await
            .unwrap();

        let speaks = patient.speaks().await.unwrap();
        let mut buffer = [0; 1024];
        let read = patient.read(&mut buffer).await.unwrap();

        assert_eq!(speaks, Speaks::Http1);
        let text = String::from_utf8_lossy(&buffer[..read]);
        assert_eq!(text, "POST /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n");
    }

    #[tokio::test]
    async fn http2_is_heard_in_pieces_and_read_in_pieces() {
        let (mut near, far) = tokio::io::duplex(3);
        let mut patient = Patient::new(far, LIMIT);
        let writing = tokio::spawn(async move { near.write_all(PREFACE).await });

        let speaks = patient.speaks().await.unwrap();
        let mut read = [0; PREFACE.len()];
        for piece in read.chunks_mut(5) {
            patient.read_exact(piece).await.unwrap();
        }

        assert_eq!(speaks, Speaks::Http2);
        assert_eq!(read, PREFACE);
        writing.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn whoever_says_too_little_for_http2_is_taken_for_http1() {
        for said in ["", "PRI", "PRI * HTTP/1.1\r\n"] {
            let (mut near, far) = tokio::io::duplex(64);
            let mut patient = Patient::new(far, LIMIT);
            near.write_all(said.as_bytes()).await.unwrap();
            drop(near);

            assert_eq!(patient.speaks().await.unwrap(), Speaks::Http1, "{said:?}");
            let mut text = String::new();
            patient.read_to_string(&mut text).await.unwrap();
            assert_eq!(text, said);
        }
    }
}
