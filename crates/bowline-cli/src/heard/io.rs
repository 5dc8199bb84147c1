//! A socket that writes down the HTTP/1.1 requests that come in, and when the client closes it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Event, Heard};

#[derive(Debug)]
pub(crate) struct TappedIo<S> {
    socket: S,
    requests: Requests,
    heard: Heard,
    is_closed: bool,
}

impl<S> TappedIo<S> {
    pub(crate) fn new(socket: S, heard: &Heard) -> Self {
        Self {
            socket,
            requests: Requests::default(),
            heard: heard.clone(),
            is_closed: false,
        }
    }

    fn close(&mut self) {
        if !std::mem::replace(&mut self.is_closed, true) {
            self.heard.push(Event::Closed);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TappedIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (before, has_room) = (buffer.filled().len(), buffer.remaining() > 0);
        let read = ready!(Pin::new(&mut self.socket).poll_read(cx, buffer));
        let bytes = &buffer.filled()[before..];
        if read.is_err() || (bytes.is_empty() && has_room) {
            self.close();
        }
        for body in self.requests.feed(bytes) {
            self.heard.push(Event::Post(body));
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TappedIo<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

/// Finds the bodies of requests in what a connection carries.
#[derive(Debug, Default)]
struct Requests(Vec<u8>);

impl Requests {
    fn feed(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        self.0.extend_from_slice(bytes);
        let mut bodies = Vec::new();
        while let Some(end) = self.0.windows(4).position(|end| end == b"\r\n\r\n") {
            let body = end + 4;
            let length = content_length(&self.0[..end]);
            if self.0.len() < body + length {
                break;
            }
            bodies.push(self.0[body..body + length].to_vec());
            self.0.drain(..body + length);
        }
        bodies
    }
}

fn content_length(head: &[u8]) -> usize {
    let head = String::from_utf8_lossy(head);
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    let length = fields
        .filter(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .find_map(|(_, value)| value.trim().parse().ok());
    length.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_found_however_the_bytes_arrive() {
        let all = b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nabGET / HTTP/1.1\r\n\r\nPOST / HTTP/1.1\r\ncontent-length:1\r\n\r\nc";
        let mut whole = Requests::default();
        let mut split = Requests::default();

        let at_once = whole.feed(all);
        let piecemeal: Vec<Vec<u8>> = all.chunks(3).flat_map(|part| split.feed(part)).collect();

        assert_eq!(at_once, [b"ab".to_vec(), Vec::new(), b"c".to_vec()]);
        assert_eq!(piecemeal, at_once);
    }
}
