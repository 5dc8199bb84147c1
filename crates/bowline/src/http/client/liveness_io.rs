//! `LivenessIo`, the I/O of an HTTP/2 client connection: records the last read, and delays write errors.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};

use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::liveness::Liveness;

/// The I/O of a connection. Implements the I/O traits of tokio, which h2 uses, for an I/O with those of hyper.
///
/// A server that shuts down sends `GOAWAY` and closes the connection. A request written at that moment fails with a
/// write error before `GOAWAY` is read, and h2 would not report that the request was not processed. So after a write
/// error the remaining output is discarded, and `poll_read` returns the error once a read would be pending. At end of
/// file it is not returned.
pub(super) struct LivenessIo<T> {
    io: TokioIo<T>,
    liveness: Arc<Liveness>,
    write_error: Option<io::Error>,
}

impl<T> LivenessIo<T> {
    pub(super) fn new(io: T, liveness: Arc<Liveness>) -> Self {
        Self {
            io: TokioIo::new(io),
            liveness,
            write_error: None,
        }
    }

    /// Stores the error of a write of `length` bytes, reports success, and wakes the task so that it reads the
    /// remaining input.
    fn after_write(
        &mut self,
        cx: &task::Context<'_>,
        written: Poll<io::Result<usize>>,
        length: usize,
    ) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Err(error)) => {
                self.write_error = Some(error);
                cx.waker().wake_by_ref();
                Poll::Ready(Ok(length))
            }
            written => written,
        }
    }
}

impl<T: Read + Unpin> AsyncRead for LivenessIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.liveness.record_read();
        }
        match self.write_error.take_if(|_| read.is_pending()) {
            Some(error) => Poll::Ready(Err(error)),
            None => read,
        }
    }
}

impl<T: Write + Unpin> AsyncWrite for LivenessIo<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.write_error.is_some() {
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.after_write(cx, written, bytes.len())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        if self.write_error.is_some() {
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
        if self.write_error.is_some() {
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

    /// A connection whose peer has sent some bytes and closed it.
    struct ClosedPeer {
        input: &'static [u8],
        has_ended: bool,
    }

    impl Read for ClosedPeer {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut task::Context<'_>,
            mut buffer: ReadBufCursor<'_>,
        ) -> Poll<io::Result<()>> {
            let input = std::mem::take(&mut self.input);
            if input.is_empty() && !self.has_ended {
                return Poll::Pending;
            }
            buffer.put_slice(input);
            Poll::Ready(Ok(()))
        }
    }

    impl Write for ClosedPeer {
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

    fn liveness_io(has_ended: bool) -> LivenessIo<ClosedPeer> {
        let input = b"goodbye";
        LivenessIo::new(ClosedPeer { input, has_ended }, Liveness::new())
    }

    #[tokio::test]
    async fn input_is_still_read_after_a_write_error() {
        for has_ended in [true, false] {
            let mut io = liveness_io(has_ended);
            let mut input = [0; 7];

            io.write_all(b"a request").await.unwrap();
            io.flush().await.unwrap();

            io.read_exact(&mut input).await.unwrap();
            assert_eq!(&input, b"goodbye");
            let rest = io.read(&mut input).await;
            match has_ended {
                true => assert_eq!(rest.unwrap(), 0),
                false => assert_eq!(rest.unwrap_err().kind(), io::ErrorKind::BrokenPipe),
            }
        }
    }
}
