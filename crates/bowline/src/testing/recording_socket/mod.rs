//! [`RecordingSocket`], a server's socket that records the messages in HTTP/1.1 and HTTP/2.

mod http1;

mod http2;

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bowline_core::sse::{Decoder, DecoderLimits};
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use self::http1::Http1Parser;
use self::http2::{Http2Parser, PREFACE};
use super::{Direction, RecordedEvent, RecordedFrame, WireRecord};
use crate::http::HttpService;
use crate::http::server::accept;

/// A server's socket that records the JSON-RPC messages of its HTTP requests and responses, and the requests that the
/// client closed before the end of their response.
///
/// It supports what MCP clients and servers send: requests with a `Content-Length` or without a body, and responses of
/// one JSON text or of server-sent events.
///
/// # Examples
///
/// ```
/// use bowline::http::client::HyperClient;
/// use bowline::testing::{PipeConnector, RecordingSocket, WireRecord};
/// use bowline::{Client, Server, Tool};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> bowline::Result<()> {
/// let service = Server::new("clock", "1.0.0").tool(Tool::new("now", async || "noon")).http();
/// let record = WireRecord::default();
/// let recorded = record.clone();
/// let connector = PipeConnector::with(move |far| {
///     let (socket, service) = (RecordingSocket::new(far, &recorded), service.clone());
///     tokio::spawn(async move { service.serve_connection(socket).await });
/// });
/// let http_client = HyperClient::with_connector(connector);
/// let connect = Client::connect("http://localhost/mcp").http_client(http_client);
/// let client = connect.protocol_version("2026-07-28").await?;
///
/// client.call_tool("now", ()).await?;
///
/// assert_eq!(record.frames()[0].summary(), "1 tools/call now");
/// assert_eq!(record.frames()[1].summary(), "1 result");
/// # Ok(()) }
/// ```
#[must_use = "dropping a socket closes it"]
pub struct RecordingSocket {
    socket: Pin<Box<dyn Socket>>,
    record: WireRecord,
    /// The first bytes, until they show the HTTP version.
    first: Vec<u8>,
    parser: Option<Box<dyn HttpParser>>,
}

trait Socket: AsyncRead + AsyncWrite + Send {}

impl<S: AsyncRead + AsyncWrite + Send> Socket for S {}

/// A parser for one version of HTTP.
trait HttpParser: Send {
    fn received(&mut self, record: &WireRecord, bytes: &[u8]);

    fn sent(&mut self, record: &WireRecord, bytes: &[u8]);

    /// Records the requests whose responses are incomplete when the client closes the connection.
    fn ended(&mut self, record: &WireRecord);
}

impl RecordingSocket {
    /// Wraps a socket whose messages are added to `record`.
    pub fn new(socket: impl AsyncRead + AsyncWrite + Send + 'static, record: &WireRecord) -> Self {
        Self {
            socket: Box::pin(socket),
            record: record.clone(),
            first: Vec::new(),
            parser: None,
        }
    }

    fn received(&mut self, bytes: &[u8]) {
        if let Some(parser) = &mut self.parser {
            return parser.received(&self.record, bytes);
        }
        self.first.extend_from_slice(bytes);
        // Two bytes are enough: no other method starts like the preface of HTTP/2.
        if self.first.len() < 2 {
            return;
        }
        let parser: Box<dyn HttpParser> = match self.first.starts_with(&PREFACE[..2]) {
            true => Box::<Http2Parser>::default(),
            false => Box::<Http1Parser>::default(),
        };
        let first = std::mem::take(&mut self.first);
        self.parser.insert(parser).received(&self.record, &first);
    }
}

/// Serves HTTP like [`HttpService::bind`], and records the messages of all connections.
///
/// # Cancel safety
///
/// Dropping the future closes every connection.
pub async fn serve_recorded(service: HttpService, listener: TcpListener, record: WireRecord) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased; // frees closed connections before it accepts another
            Some(_) = connections.join_next() => {}
            socket = accept(&listener) => {
                let (socket, service) = (RecordingSocket::new(socket, &record), service.clone());
                connections.spawn(async move { service.serve_connection(socket).await });
            }
        }
    }
}

impl AsyncRead for RecordingSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (before, has_room) = (buffer.filled().len(), buffer.remaining() > 0);
        let read = ready!(self.socket.as_mut().poll_read(cx, buffer));
        let bytes = &buffer.filled()[before..];
        let this = &mut *self;
        if !bytes.is_empty() {
            this.received(bytes);
        } else if (read.is_err() || has_room)
            && let Some(parser) = &mut this.parser
        {
            parser.ended(&this.record);
        }
        Poll::Ready(read)
    }
}

impl AsyncWrite for RecordingSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(self.socket.as_mut().poll_write(cx, bytes));
        let this = &mut *self;
        if let (Ok(count), Some(parser)) = (&written, &mut this.parser) {
            parser.sent(&this.record, &bytes[..*count]);
        }
        Poll::Ready(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.as_mut().poll_shutdown(cx)
    }
}

impl fmt::Debug for RecordingSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordingSocket").finish_non_exhaustive()
    }
}

/// Records a request; returns its message, or `None` if the body is empty.
fn record_request(record: &WireRecord, method: &str, body: &[u8]) -> Option<RecordedFrame> {
    if body.is_empty() {
        record.push(RecordedEvent::EmptyRequest(method.to_owned()));
        return None;
    }
    let frame = RecordedFrame::new(Direction::Received, body);
    record.push(RecordedEvent::Frame(frame.clone()));
    Some(frame)
}

/// Records the messages of a response body: one JSON text, or a stream of events.
#[derive(Default)]
enum RecordedBody {
    #[default]
    Empty,
    Json(Vec<u8>),
    Events(Box<Decoder>),
}

impl RecordedBody {
    fn push(&mut self, record: &WireRecord, bytes: &[u8]) {
        let Some(first) = bytes.first() else { return };
        if matches!(self, Self::Empty) {
            *self = match first {
                b'{' | b'[' => Self::Json(Vec::new()),
                _ => Self::Events(Box::new(Decoder::new(NO_LIMITS))),
            };
        }
        match self {
            Self::Empty => {}
            Self::Json(text) => text.extend_from_slice(bytes),
            Self::Events(decoder) => {
                decoder.push(Bytes::copy_from_slice(bytes));
                while let Some(event) = decoder.next() {
                    let event = event.expect("the decoder has no limits");
                    let is_message = event.name.is_none_or(|name| name == "message");
                    if is_message && !event.data.is_empty() {
                        record.push_frame(Direction::Sent, &event.data);
                    }
                }
            }
        }
    }

    fn end(&mut self, record: &WireRecord) {
        if let Self::Json(text) = std::mem::take(self) {
            record.push_frame(Direction::Sent, &text);
        }
    }
}

/// A record is complete: a message that exceeds a default limit must not be missing.
const NO_LIMITS: DecoderLimits = DecoderLimits {
    line: usize::MAX,
    event: usize::MAX,
};

#[cfg(test)]
mod tests;
