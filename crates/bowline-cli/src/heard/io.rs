//! A socket that writes down the HTTP requests that come in, and when the client gives one up: by closing
//! the connection in HTTP/1.1, by resetting a stream of it in HTTP/2.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frames::Frames;
use super::{Event, Heard};

#[derive(Debug)]
pub(crate) struct TappedIo<S> {
    socket: S,
    spoken: Spoken,
    heard: Heard,
    /// Whether a request came in whose answer is not complete. Closing an idle connection means nothing.
    is_answering: bool,
}

/// What is spoken on a connection.
#[derive(Debug)]
enum Spoken {
    Http1(Requests),
    Http2(Frames),
}

impl<S> TappedIo<S> {
    pub(crate) fn http1(socket: S, heard: &Heard) -> Self {
        Self::new(socket, Spoken::Http1(Requests::default()), heard)
    }

    pub(crate) fn http2(socket: S, heard: &Heard) -> Self {
        Self::new(socket, Spoken::Http2(Frames::default()), heard)
    }

    fn new(socket: S, spoken: Spoken, heard: &Heard) -> Self {
        Self {
            socket,
            spoken,
            heard: heard.clone(),
            is_answering: false,
        }
    }

    fn take_in(&mut self, bytes: &[u8]) {
        match &mut self.spoken {
            Spoken::Http1(requests) => {
                for body in requests.feed(bytes) {
                    self.heard.push(Event::Post(body));
                    self.is_answering = true;
                }
            }
            Spoken::Http2(frames) => {
                for event in frames.feed(bytes) {
                    self.heard.push(event);
                }
            }
        }
    }

    fn close(&mut self) {
        if std::mem::take(&mut self.is_answering) {
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
        self.take_in(bytes);
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TappedIo<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.socket).poll_write(cx, bytes));
        if let Ok(count) = written
            && ends_answer(&bytes[..count])
        {
            self.is_answering = false;
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

/// Finds the bodies of requests in what a connection carries.
#[derive(Debug, Default)]
struct Requests(Vec<u8>);

impl Requests {
    fn feed(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        self.0.extend_from_slice(bytes);
        let mut bodies = Vec::new();
        while let Some(end) = self.0.windows(4).position(|end| end == b"\r\n\r\n") {
            let body = end + 4;
            let length = content_length(&self.0[..end]).unwrap_or_default();
            if self.0.len() < body + length {
                break;
            }
            bodies.push(self.0[body..body + length].to_vec());
            self.0.drain(..body + length);
        }
        bodies
    }
}

/// Whether an answer is complete with this: it came as one piece, or this is the last of many.
fn ends_answer(bytes: &[u8]) -> bool {
    let in_one_piece = bytes.starts_with(b"HTTP/1.1") && content_length(bytes).is_some();
    in_one_piece || bytes.ends_with(b"\r\n0\r\n\r\n") || bytes == b"0\r\n\r\n"
}

fn content_length(head: &[u8]) -> Option<usize> {
    let head = String::from_utf8_lossy(head);
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    fields
        .filter(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .find_map(|(_, value)| value.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

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

    #[tokio::test]
    async fn only_a_close_in_the_middle_of_an_answer_is_heard() {
        for (answer, is_heard) in [
            ("", true),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
                true,
            ),
            ("HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n", false),
            ("5\r\nhello\r\n0\r\n\r\n", false),
        ] {
            let heard = Heard::default();
            let (mut near, far) = tokio::io::duplex(1024);
            let mut far = TappedIo::http1(far, &heard);
            near.write_all(b"POST / HTTP/1.1\r\n\r\n").await.unwrap();
            far.read_buf(&mut Vec::new()).await.unwrap();
            far.write_all(answer.as_bytes()).await.unwrap();

            drop(near);
            far.read_buf(&mut Vec::new()).await.unwrap();

            let closes = heard.take();
            assert_eq!(closes == ["connection closed"], is_heard, "{answer}");
        }
    }
}
