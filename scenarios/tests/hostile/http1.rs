//! A raw HTTP/1.1 client with control of every byte and its timing.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Semaphore;

use crate::rpc;

/// A raw HTTP/1.1 connection.
#[derive(Debug)]
pub(crate) struct RawHttp1 {
    stream: TcpStream,
    read: Vec<u8>,
}

/// A complete response.
#[derive(Debug)]
pub(crate) struct RawResponse {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl RawHttp1 {
    pub(crate) async fn connect(to: SocketAddr) -> io::Result<Self> {
        // Stays below the listen backlog: connections that the kernel drops before `accept` do not attack the server.
        let _connecting = CONNECTING.acquire().await;
        let socket = TcpSocket::new_v4()?;
        // A small receive buffer, so that the server has to buffer unread responses.
        socket.set_recv_buffer_size(16 << 10)?;
        let stream = socket.connect(to).await?;
        stream.set_nodelay(true)?;
        let read = Vec::new();
        Ok(Self { stream, read })
    }

    /// Writes arbitrary bytes.
    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref()).await
    }

    /// Posts a body with these headers and reads the response.
    pub(crate) async fn post(
        &mut self,
        headers: &[(&str, &str)],
        body: &str,
    ) -> io::Result<RawResponse> {
        self.write(post(headers, body)).await?;
        self.answer().await
    }

    /// Reads one complete response. An event stream is read until its last chunk.
    pub(crate) async fn answer(&mut self) -> io::Result<RawResponse> {
        let head = self.head().await?;
        let status = head.get(9..12).and_then(|text| text.parse().ok());
        let status = status.ok_or(io::ErrorKind::InvalidData)?;
        let body = match header(&head, "content-length") {
            Some(length) => {
                let length = length.parse().map_err(|_| io::ErrorKind::InvalidData)?;
                self.take(length).await?
            }
            None if header(&head, "transfer-encoding").is_some() => self.chunks().await?,
            None => Vec::new(),
        };
        Ok(RawResponse { status, head, body })
    }

    /// Reads the head of one response.
    pub(crate) async fn head(&mut self) -> io::Result<String> {
        let end = self.find(b"\r\n\r\n").await?;
        let head = self.take(end + 4).await?;
        Ok(with_lowercase_names(&String::from_utf8_lossy(&head)))
    }

    async fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let end = self.find(b"\r\n").await?;
            let line = self.take(end + 2).await?;
            let size = String::from_utf8_lossy(&line[..end]).into_owned();
            let size = usize::from_str_radix(&size, 16).map_err(|_| io::ErrorKind::InvalidData)?;
            body.extend(self.take(size).await?);
            self.take(2).await?;
            if size == 0 {
                return Ok(body);
            }
        }
    }

    async fn find(&mut self, what: &[u8]) -> io::Result<usize> {
        let mut from = 0;
        loop {
            let found = self.read[from..].windows(what.len());
            if let Some(at) = found.into_iter().position(|window| window == what) {
                return Ok(from + at);
            }
            from = self.read.len().saturating_sub(what.len() - 1);
            self.fill().await?;
        }
    }

    async fn take(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.read.len() < length {
            self.fill().await?;
        }
        let rest = self.read.split_off(length);
        Ok(std::mem::replace(&mut self.read, rest))
    }

    async fn fill(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.read).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

/// Returns a head whose header names are in lower case. Values keep theirs: the id of a session is base64.
fn with_lowercase_names(head: &str) -> String {
    let lines = head
        .split_inclusive("\r\n")
        .map(|line| match line.split_once(':') {
            Some((name, value)) => format!("{}:{value}", name.to_ascii_lowercase()),
            None => line.to_ascii_lowercase(),
        });
    lines.collect()
}

/// The value of a header in a lower-case head.
pub(crate) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.lines().filter_map(|line| line.split_once(':'));
    lines.find_map(|(own, value)| (own == name).then(|| value.trim()))
}

/// A POST request with this body.
pub(crate) fn post(headers: &[(&str, &str)], body: &str) -> String {
    format!("{}{body}", post_head(headers, body.len()))
}

/// The head of a POST whose body has this length.
pub(crate) fn post_head(headers: &[(&str, &str)], length: usize) -> String {
    let length = length.to_string();
    let mut headers = headers.to_vec();
    headers.push(("content-length", &length));
    head("POST", &headers)
}

/// The head of a request; a POST has the JSON content type.
pub(crate) fn head(method: &str, headers: &[(&str, &str)]) -> String {
    let mut head = format!("{method} /mcp HTTP/1.1\r\nhost: localhost\r\n");
    head.push_str("accept: application/json, text/event-stream\r\n");
    if method == "POST" {
        head.push_str("content-type: application/json\r\n");
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    head
}

/// The headers of a modern `tools/call`.
pub(crate) fn call_headers(tool: &str) -> Vec<(&'static str, &str)> {
    vec![
        ("mcp-protocol-version", rpc::MODERN),
        ("mcp-method", "tools/call"),
        ("mcp-name", tool),
    ]
}

/// A legacy session and its connection.
#[derive(Debug)]
pub(crate) struct RawSession {
    pub(crate) http: RawHttp1,
    pub(crate) id: String,
    pub(crate) version: &'static str,
}

impl RawSession {
    /// Opens a session at this version.
    pub(crate) async fn open(to: SocketAddr, version: &'static str) -> io::Result<Self> {
        let mut http = RawHttp1::connect(to).await?;
        let answer = http.post(&[], &rpc::initialize(version)).await?;
        let id = header(&answer.head, "mcp-session-id").map(str::to_owned);
        let refused = || io::Error::other(format!("no session: {}", answer.head));
        let id = id.ok_or_else(refused)?;
        let mut session = Self { http, id, version };
        session.post(&rpc::initialized()).await?;
        Ok(session)
    }

    /// The session headers of a request.
    pub(crate) fn headers(&self) -> [(&'static str, &str); 2] {
        [
            ("mcp-session-id", &self.id),
            ("mcp-protocol-version", self.version),
        ]
    }

    /// Posts a message and reads the response.
    pub(crate) async fn post(&mut self, body: &str) -> io::Result<RawResponse> {
        let request = post(&self.headers(), body);
        self.http.write(request).await?;
        self.http.answer().await
    }

    /// Posts a message without reading the response.
    pub(crate) async fn post_unread(&mut self, body: &str) -> io::Result<()> {
        let request = post(&self.headers(), body);
        self.http.write(request).await
    }
}

static CONNECTING: Semaphore = Semaphore::const_new(64);
