//! A server's socket that writes down the requests and responses that pass, HTTP/1.1 and HTTP/2 alike.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::http1::Http1;
use super::http2::{Http2, PREFACE};
use crate::seen::Seen;

#[derive(Debug)]
pub(crate) struct TappedSocket<S> {
    socket: S,
    seen: Seen,
    spoken: Spoken,
}

/// What is spoken, which the first bytes tell.
#[derive(Debug)]
enum Spoken {
    Unknown,
    One(Http1),
    Two(Http2),
}

impl<S> TappedSocket<S> {
    pub(crate) fn new(socket: S, seen: &Seen) -> Self {
        Self {
            socket,
            seen: seen.clone(),
            spoken: Spoken::Unknown,
        }
    }

    fn came(&mut self, bytes: &[u8]) {
        if let Spoken::Unknown = self.spoken {
            self.spoken = match bytes.starts_with(&PREFACE[..3]) {
                true => Spoken::Two(Http2::default()),
                false => Spoken::One(Http1::default()),
            };
        }
        match &mut self.spoken {
            Spoken::Unknown => {}
            Spoken::One(http) => http.came(&self.seen, bytes),
            Spoken::Two(http) => http.came(&self.seen, bytes),
        }
    }

    fn went(&mut self, bytes: &[u8]) {
        match &mut self.spoken {
            Spoken::Unknown => {}
            Spoken::One(http) => http.went(&self.seen, bytes),
            Spoken::Two(http) => http.went(&self.seen, bytes),
        }
    }

    fn ended(&mut self) {
        match &mut self.spoken {
            Spoken::Unknown => {}
            Spoken::One(http) => http.ended(&self.seen),
            Spoken::Two(http) => http.ended(&self.seen),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TappedSocket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (before, has_room) = (buffer.filled().len(), buffer.remaining() > 0);
        let read = ready!(Pin::new(&mut self.socket).poll_read(cx, buffer));
        let bytes = &buffer.filled()[before..];
        if read.is_err() || (bytes.is_empty() && has_room) {
            self.ended();
        } else if !bytes.is_empty() {
            self.came(bytes);
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TappedSocket<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.socket).poll_write(cx, bytes));
        if let Ok(count) = written {
            self.went(&bytes[..count]);
        }
        Poll::Ready(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
