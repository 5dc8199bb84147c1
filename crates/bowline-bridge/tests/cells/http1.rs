//! HTTP/1.1 and server-sent events over a socket, as far as the peers need them.

use std::collections::BTreeMap;
use std::io;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A connection and the bytes that were read from it and not used yet.
#[derive(Debug)]
pub(crate) struct HttpConnection {
    stream: TcpStream,
    unread: Vec<u8>,
}

/// The head of a request or a response.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    /// The three words of the first line.
    pub(crate) first_line: [String; 3],
    /// The headers, by name in lower case.
    headers: BTreeMap<String, String>,
}

/// How much of a body is left.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Body {
    Length(usize),
    Chunked,
    /// It ends with the connection.
    UntilClose,
}

impl HttpConnection {
    pub(crate) fn new(stream: TcpStream) -> Self {
        let unread = Vec::new();
        Self { stream, unread }
    }

    /// Connects to the authority of an `http:` URL; returns the path too.
    pub(crate) async fn connect(url: &str) -> io::Result<(Self, &str, &str)> {
        let rest = url.strip_prefix("http://").unwrap_or(url);
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let stream = TcpStream::connect(authority).await?;
        stream.set_nodelay(true)?;
        Ok((Self::new(stream), authority, path))
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Writes one chunk of a chunked body; an empty one ends the body.
    pub(crate) async fn write_chunk(&mut self, text: &str) -> io::Result<()> {
        let chunk = format!("{:x}\r\n{text}\r\n", text.len());
        self.write(chunk.as_bytes()).await
    }

    /// Reads the next head; `None` if the peer closed the connection before it.
    pub(crate) async fn read_head(&mut self) -> io::Result<Option<Head>> {
        let mut lines = Vec::new();
        loop {
            let Some(line) = self.read_line().await? else {
                return Ok(None);
            };
            if line.is_empty() {
                return Head::parse(&lines).map(Some);
            }
            lines.push(line);
        }
    }

    /// Reads the next part of a body; `None` at its end.
    pub(crate) async fn read_part(&mut self, body: &mut Body) -> io::Result<Option<Vec<u8>>> {
        match body {
            Body::Length(0) => Ok(None),
            Body::Length(left) => {
                let wanted = *left;
                *left = 0;
                self.take(wanted).await.map(Some)
            }
            Body::Chunked => {
                let size = self.read_line().await?.ok_or_else(ended)?;
                let size = usize::from_str_radix(size.trim(), 16).map_err(|_| invalid(&size))?;
                let mut chunk = self.take(size + 2).await?;
                chunk.truncate(size);
                if size == 0 {
                    *body = Body::Length(0);
                }
                Ok((size > 0).then_some(chunk))
            }
            Body::UntilClose => {
                if self.unread.is_empty() && !self.read_more().await? {
                    return Ok(None);
                }
                Ok(Some(std::mem::take(&mut self.unread)))
            }
        }
    }

    pub(crate) async fn read_body(&mut self, mut body: Body) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while let Some(part) = self.read_part(&mut body).await? {
            bytes.extend(part);
        }
        Ok(bytes)
    }

    /// Returns when the peer has closed the connection. Cancel safe: what it reads is kept.
    pub(crate) async fn closed(&mut self) {
        while self.read_more().await.unwrap_or(false) {}
    }

    async fn read_line(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some(end) = self.unread.windows(2).position(|two| two == b"\r\n") {
                let line: Vec<u8> = self.unread.drain(..end + 2).collect();
                return Ok(Some(String::from_utf8_lossy(&line[..end]).into_owned()));
            }
            if !self.read_more().await? {
                return Ok(None);
            }
        }
    }

    async fn take(&mut self, wanted: usize) -> io::Result<Vec<u8>> {
        while self.unread.len() < wanted {
            if !self.read_more().await? {
                return Err(ended());
            }
        }
        Ok(self.unread.drain(..wanted).collect())
    }

    async fn read_more(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 4096];
        let count = self.stream.read(&mut buffer).await?;
        self.unread.extend_from_slice(&buffer[..count]);
        Ok(count > 0)
    }
}

impl Head {
    fn parse(lines: &[String]) -> io::Result<Self> {
        let (first, headers) = lines.split_first().ok_or_else(ended)?;
        let mut words = first.splitn(3, ' ').map(str::to_owned);
        let first_line = std::array::from_fn(|_| words.next().unwrap_or_default());
        let headers = headers.iter().filter_map(|line| line.split_once(':'));
        let headers = headers.map(|(name, value)| {
            let value = value.trim().to_owned();
            (name.to_ascii_lowercase(), value)
        });
        Ok(Self {
            first_line,
            headers: headers.collect(),
        })
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The status of a response.
    pub(crate) fn status(&self) -> u16 {
        self.first_line[1].parse().unwrap_or(0)
    }

    pub(crate) fn is_event_stream(&self) -> bool {
        let content_type = self.header("content-type").unwrap_or_default();
        content_type.starts_with("text/event-stream")
    }

    /// The body that follows; `otherwise` if the head does not say.
    pub(crate) fn body(&self, otherwise: Body) -> Body {
        if self.header("transfer-encoding").is_some() {
            return Body::Chunked;
        }
        let length = self.header("content-length");
        let length = length.and_then(|length| length.parse().ok());
        length.map_or(otherwise, Body::Length)
    }
}

/// Splits a stream of bytes into server-sent events.
#[derive(Debug, Default)]
pub(crate) struct EventParser {
    unread: Vec<u8>,
    name: String,
    data: String,
}

/// A server-sent event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SseEvent {
    pub(crate) name: String,
    pub(crate) data: String,
}

impl EventParser {
    /// The events that these bytes complete. Events without data are skipped.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<SseEvent> {
        self.unread.extend_from_slice(bytes);
        let mut events = Vec::new();
        while let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.unread.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            events.extend(self.line(line.trim_end_matches(['\r', '\n'])));
        }
        events
    }

    fn line(&mut self, line: &str) -> Option<SseEvent> {
        if line.is_empty() {
            let (name, data) = (
                std::mem::take(&mut self.name),
                std::mem::take(&mut self.data),
            );
            return (!data.is_empty()).then_some(SseEvent { name, data });
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" if self.data.is_empty() => value.clone_into(&mut self.data),
            "data" => {
                self.data.push('\n');
                self.data.push_str(value);
            }
            _ => {}
        }
        None
    }
}

/// The text of a `message` event.
pub(crate) fn message_event(message: &Value) -> String {
    format!("event: message\ndata: {message}\n\n")
}

fn ended() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the connection ended within a message",
    )
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("malformed: {what:?}"))
}

#[test]
fn events_are_split_across_reads() {
    let mut parser = EventParser::default();

    let mut events = parser.push(b": hello\n\nevent: mes");
    events.extend(parser.push(b"sage\ndata: {\"a\":\r\ndata: 1}\r\n\r\ndata: 2\n"));

    assert_eq!(events.len(), 1);
    assert_eq!(events[0].name, "message");
    assert_eq!(events[0].data, "{\"a\":\n1}");
}
