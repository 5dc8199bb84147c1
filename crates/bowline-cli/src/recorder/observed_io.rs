//! A socket that records HTTP requests and their cancellation: a closed connection in HTTP/1.1, a reset stream in
//! HTTP/2.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::http2_parser::Http2Parser;
use super::{EventRecorder, RecordedEvent};

#[derive(Debug)]
pub(crate) struct ObservedIo<S> {
    socket: S,
    parser: HttpParser,
    recorder: EventRecorder,
    /// Whether a response is incomplete. Closing an idle connection is not a cancellation.
    is_response_incomplete: bool,
}

/// The HTTP version of a connection, with its parser.
#[derive(Debug)]
enum HttpParser {
    Http1(Http1Parser),
    Http2(Http2Parser),
}

impl<S> ObservedIo<S> {
    pub(crate) fn http1(socket: S, recorder: &EventRecorder) -> Self {
        Self::new(socket, HttpParser::Http1(Http1Parser::default()), recorder)
    }

    pub(crate) fn http2(socket: S, recorder: &EventRecorder) -> Self {
        Self::new(socket, HttpParser::Http2(Http2Parser::default()), recorder)
    }

    fn new(socket: S, parser: HttpParser, recorder: &EventRecorder) -> Self {
        Self {
            socket,
            parser,
            recorder: recorder.clone(),
            is_response_incomplete: false,
        }
    }

    fn parse(&mut self, bytes: &[u8]) {
        match &mut self.parser {
            HttpParser::Http1(parser) => {
                for body in parser.feed(bytes) {
                    self.recorder.push(RecordedEvent::Post(body));
                    self.is_response_incomplete = true;
                }
            }
            HttpParser::Http2(parser) => {
                for event in parser.feed(bytes) {
                    self.recorder.push(event);
                }
            }
        }
    }

    fn close(&mut self) {
        if std::mem::take(&mut self.is_response_incomplete) {
            self.recorder.push(RecordedEvent::Closed);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ObservedIo<S> {
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
        self.parse(bytes);
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ObservedIo<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.socket).poll_write(cx, bytes));
        if let Ok(count) = written
            && ends_response(&bytes[..count])
        {
            self.is_response_incomplete = false;
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

/// A parser for the request bodies of an HTTP/1.1 connection.
#[derive(Debug, Default)]
struct Http1Parser(Vec<u8>);

impl Http1Parser {
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

/// Returns whether these bytes complete a response: it is written as a whole, or this is its last chunk.
fn ends_response(bytes: &[u8]) -> bool {
    let is_whole = bytes.starts_with(b"HTTP/1.1") && content_length(bytes).is_some();
    is_whole || bytes.ends_with(b"\r\n0\r\n\r\n") || bytes == b"0\r\n\r\n"
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
        let mut whole = Http1Parser::default();
        let mut split = Http1Parser::default();

        let whole_bodies = whole.feed(all);
        let split_bodies: Vec<Vec<u8>> = all.chunks(3).flat_map(|part| split.feed(part)).collect();

        assert_eq!(whole_bodies, [b"ab".to_vec(), Vec::new(), b"c".to_vec()]);
        assert_eq!(split_bodies, whole_bodies);
    }

    #[tokio::test]
    async fn only_a_close_in_the_middle_of_a_response_is_recorded() {
        for (answer, is_recorded) in [
            ("", true),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
                true,
            ),
            ("HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n", false),
            ("5\r\nhello\r\n0\r\n\r\n", false),
        ] {
            let recorder = EventRecorder::default();
            let (mut near, far) = tokio::io::duplex(1024);
            let mut far = ObservedIo::http1(far, &recorder);
            near.write_all(b"POST / HTTP/1.1\r\n\r\n").await.unwrap();
            far.read_buf(&mut Vec::new()).await.unwrap();
            far.write_all(answer.as_bytes()).await.unwrap();

            drop(near);
            far.read_buf(&mut Vec::new()).await.unwrap();

            let closes = recorder.take();
            assert_eq!(closes == ["connection closed"], is_recorded, "{answer}");
        }
    }
}
