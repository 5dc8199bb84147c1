//! A server socket that records requests and responses, over HTTP/1.1 and HTTP/2.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::http1::Http1Tap;
use super::http2::{Http2Tap, PREFACE};
use crate::observer::Observer;

#[derive(Debug)]
pub(crate) struct TappedSocket<S> {
    socket: S,
    observer: Observer,
    http: HttpTap,
}

/// The recorder for the HTTP version, which the first bytes identify.
#[derive(Debug)]
enum HttpTap {
    Unknown,
    Http1(Http1Tap),
    Http2(Http2Tap),
}

impl<S> TappedSocket<S> {
    pub(crate) fn new(socket: S, observer: &Observer) -> Self {
        Self {
            socket,
            observer: observer.clone(),
            http: HttpTap::Unknown,
        }
    }

    fn received(&mut self, bytes: &[u8]) {
        if let HttpTap::Unknown = self.http {
            self.http = match bytes.starts_with(&PREFACE[..3]) {
                true => HttpTap::Http2(Http2Tap::default()),
                false => HttpTap::Http1(Http1Tap::default()),
            };
        }
        match &mut self.http {
            HttpTap::Unknown => {}
            HttpTap::Http1(http) => http.received(&self.observer, bytes),
            HttpTap::Http2(http) => http.received(&self.observer, bytes),
        }
    }

    fn sent(&mut self, bytes: &[u8]) {
        match &mut self.http {
            HttpTap::Unknown => {}
            HttpTap::Http1(http) => http.sent(&self.observer, bytes),
            HttpTap::Http2(http) => http.sent(&self.observer, bytes),
        }
    }

    fn ended(&mut self) {
        match &mut self.http {
            HttpTap::Unknown => {}
            HttpTap::Http1(http) => http.ended(&self.observer),
            HttpTap::Http2(http) => http.ended(&self.observer),
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
            self.received(bytes);
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
            self.sent(&bytes[..count]);
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
