//! The bytes of an HTTP/2 connection: when some were read last, and what can still be read when none can be written.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};

use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::liveness::Liveness;

/// Bytes of a connection.
///
/// A server that shuts a connection down says goodbye (`GOAWAY`) and closes it. If a request is written just then, writing
/// fails before the goodbye is read, and nobody would know that the request was not processed. So bytes that cannot be
/// written are thrown away, and the error is shown only once there is nothing left to read.
pub(super) struct Watched<T> {
    io: TokioIo<T>,
    liveness: Arc<Liveness>,
    unwritten: Option<io::Error>,
}

impl<T> Watched<T> {
    pub(super) fn new(io: T, liveness: Arc<Liveness>) -> Self {
        Self {
            io: TokioIo::new(io),
            liveness,
            unwritten: None,
        }
    }

    /// Keeps the error of a write of `length` bytes, and has the reader look at what is left.
    fn after_write(
        &mut self,
        cx: &task::Context<'_>,
        written: Poll<io::Result<usize>>,
        length: usize,
    ) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Err(error)) => {
                self.unwritten = Some(error);
                cx.waker().wake_by_ref();
                Poll::Ready(Ok(length))
            }
            written => written,
        }
    }
}

impl<T: Read + Unpin> AsyncRead for Watched<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.liveness.note_read();
        }
        match self.unwritten.take_if(|_| read.is_pending()) {
            Some(error) => Poll::Ready(Err(error)),
            None => read,
        }
    }
}

impl<T: Write + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.unwritten.is_some() {
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.after_write(cx, written, bytes.len())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        if self.unwritten.is_some() {
            return Poll::Ready(Ok(()));
        }
        let flushed = Pin::new(&mut self.io).poll_flush(cx).map_ok(|()| 0);
        self.after_write(cx, flushed, 0).map_ok(|_| ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = slices.iter().map(|slice| slice.len()).sum();
        if self.unwritten.is_some() {
            return Poll::Ready(Ok(length));
        }
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.after_write(cx, written, length)
    }
}

#[cfg(test)]
mod tests {
    use hyper::rt::ReadBufCursor;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// A connection whose other end has said something and is gone.
    struct Gone {
        said: &'static [u8],
        has_ended: bool,
    }

    impl Read for Gone {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut task::Context<'_>,
            mut buffer: ReadBufCursor<'_>,
        ) -> Poll<io::Result<()>> {
            let said = std::mem::take(&mut self.said);
            if said.is_empty() && !self.has_ended {
                return Poll::Pending;
            }
            buffer.put_slice(said);
            Poll::Ready(Ok(()))
        }
    }

    impl Write for Gone {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut task::Context<'_>,
            _: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut task::Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut task::Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn watched(has_ended: bool) -> Watched<Gone> {
        let said = b"goodbye";
        Watched::new(Gone { said, has_ended }, Liveness::new())
    }

    #[tokio::test]
    async fn what_the_peer_said_before_it_closed_is_read_although_nothing_can_be_written() {
        for has_ended in [true, false] {
            let mut bytes = watched(has_ended);
            let mut said = [0; 7];

            bytes.write_all(b"a request").await.unwrap();
            bytes.flush().await.unwrap();

            bytes.read_exact(&mut said).await.unwrap();
            assert_eq!(&said, b"goodbye");
            let rest = bytes.read(&mut said).await;
            match has_ended {
                true => assert_eq!(rest.unwrap(), 0),
                false => assert_eq!(rest.unwrap_err().kind(), io::ErrorKind::BrokenPipe),
            }
        }
    }
}
