//! `WriteTimeout`, the I/O of a server connection: detects the HTTP version, times out stalled writes, and records what
//! the peer sends and takes.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::connections::Connection;

/// The I/O of a connection: detects the HTTP version, and fails when a write was pending for longer than the limit.
///
/// While a write is pending, hyper polls neither the response nor its handler, so only the I/O can detect the stall.
pub(super) struct WriteTimeout<T> {
    io: T,
    limit: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
    /// Bytes that [`detect_version`](Self::detect_version) read; `poll_read` returns them first.
    first: Vec<u8>,
    version: Option<HttpVersion>,
    connection: Option<Arc<Connection>>,
}

/// The HTTP version of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HttpVersion {
    Http1,
    Http2,
}

impl<T> WriteTimeout<T> {
    /// Creates the I/O with this limit for pending writes.
    pub(super) fn new(io: T, limit: Duration) -> Self {
        Self {
            io,
            limit,
            stalled: None,
            first: Vec::new(),
            version: None,
            connection: None,
        }
    }

    /// Records reads and writes of this connection.
    pub(super) fn recorded_for(mut self, connection: Arc<Connection>) -> Self {
        self.connection = Some(connection);
        self
    }

    /// Records the bytes of a read. Over HTTP/2 any frame may follow a response, and the next head shows only when it is
    /// complete.
    fn record_read(&self, bytes: usize) {
        if bytes > 0
            && self.version == Some(HttpVersion::Http1)
            && let Some(connection) = &self.connection
        {
            connection.record_read();
        }
    }

    /// Records the bytes of a write, unless it may be that of a ping.
    fn record_written(&self, polled: &Poll<io::Result<usize>>) {
        if let (Poll::Ready(Ok(bytes)), Some(connection)) = (polled, &self.connection)
            && *bytes > MAX_PING
        {
            connection.record_written();
        }
    }

    /// Returns a ready result; starts or polls the timeout of a pending one.
    fn check_timeout<R>(
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
        tracing::debug!("write stalled for {limit:?}; closing the connection");
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<T: AsyncRead + Unpin> WriteTimeout<T> {
    /// Detects the HTTP version by the connection preface of HTTP/2. The bytes are buffered and read again afterwards.
    ///
    /// # Cancel safety
    ///
    /// Safe: the bytes read so far are kept.
    pub(super) async fn detect_version(&mut self) -> io::Result<HttpVersion> {
        let version = self.read_version().await?;
        self.version = Some(version);
        Ok(version)
    }

    async fn read_version(&mut self) -> io::Result<HttpVersion> {
        while self.first.len() < PREFACE.len() {
            let mut buffer = [0; PREFACE.len()];
            let missing = PREFACE.len() - self.first.len();
            let read = self.io.read(&mut buffer[..missing]).await?;
            self.first.extend_from_slice(&buffer[..read]);
            if read == 0 || !PREFACE.starts_with(&self.first) {
                return Ok(HttpVersion::Http1);
            }
        }
        Ok(HttpVersion::Http2)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for WriteTimeout<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            let before = buffer.filled().len();
            let polled = Pin::new(&mut self.io).poll_read(cx, buffer);
            self.record_read(buffer.filled().len() - before);
            return polled;
        }
        let fits = self.first.len().min(buffer.remaining());
        buffer.put_slice(&self.first[..fits]);
        self.first.drain(..fits);
        if !self.first.is_empty() {
            return Poll::Ready(Ok(()));
        }
        self.first = Vec::new();
        // Read on in the same poll, so that hyper usually gets the whole first request and its buffer need not grow.
        match Pin::new(&mut self.io).poll_read(cx, buffer) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(())),
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.record_written(&polled);
        self.check_timeout(cx, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write_vectored(cx, bytes);
        self.record_written(&polled);
        self.check_timeout(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_flush(cx);
        self.check_timeout(cx, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_shutdown(cx);
        self.check_timeout(cx, polled)
    }
}

/// The connection preface of HTTP/2.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Writes up to this size do not show that an HTTP/2 client takes a response: a ping and its answer have 17 bytes each.
const MAX_PING: usize = 64;

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn detected_bytes_are_read_together_with_the_rest() {
        let (mut near, far) = tokio::io::duplex(1024);
        let mut io = WriteTimeout::new(far, LIMIT);
        near.write_all(b"POST /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .await
            .unwrap();

        let version = io.detect_version().await.unwrap();
        let mut buffer = [0; 1024];
        let read = io.read(&mut buffer).await.unwrap();

        assert_eq!(version, HttpVersion::Http1);
        let text = String::from_utf8_lossy(&buffer[..read]);
        assert_eq!(text, "POST /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n");
    }

    #[tokio::test]
    async fn a_split_http2_preface_is_detected_and_read_again() {
        let (mut near, far) = tokio::io::duplex(3);
        let mut io = WriteTimeout::new(far, LIMIT);
        let writing = tokio::spawn(async move { near.write_all(PREFACE).await });

        let version = io.detect_version().await.unwrap();
        let mut read = [0; PREFACE.len()];
        for piece in read.chunks_mut(5) {
            io.read_exact(piece).await.unwrap();
        }

        assert_eq!(version, HttpVersion::Http2);
        assert_eq!(read, PREFACE);
        writing.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn an_incomplete_http2_preface_is_http1() {
        for input in ["", "PRI", "PRI * HTTP/1.1\r\n"] {
            let (mut near, far) = tokio::io::duplex(64);
            let mut io = WriteTimeout::new(far, LIMIT);
            near.write_all(input.as_bytes()).await.unwrap();
            drop(near);

            assert_eq!(
                io.detect_version().await.unwrap(),
                HttpVersion::Http1,
                "{input:?}"
            );
            let mut text = String::new();
            io.read_to_string(&mut text).await.unwrap();
            assert_eq!(text, input);
        }
    }
}
