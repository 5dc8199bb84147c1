//! A raw client for the line wire: one JSON message per line over TCP.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::rpc;

/// A connection of newline-delimited messages.
#[derive(Debug)]
pub(crate) struct LineWire {
    stream: BufReader<TcpStream>,
}

/// The result of a flood of lines.
#[derive(Debug, Default)]
pub(crate) struct FloodResult {
    pub(crate) lines: usize,
    pub(crate) bytes: usize,
    pub(crate) end: &'static str,
}

impl LineWire {
    /// Connects without a handshake.
    pub(crate) async fn connect(to: SocketAddr) -> io::Result<Self> {
        Ok(Self::over(TcpStream::connect(to).await?))
    }

    /// Creates a line wire over this stream.
    pub(crate) fn over(stream: TcpStream) -> Self {
        let _ = stream.set_nodelay(true);
        let stream = BufReader::new(stream);
        Self { stream }
    }

    /// Connects and performs the handshake of a legacy client.
    pub(crate) async fn legacy(to: SocketAddr) -> io::Result<Self> {
        let mut wire = Self::connect(to).await?;
        wire.write(&rpc::initialize(rpc::LEGACY)).await?;
        wire.read().await?;
        wire.write(&rpc::initialized()).await?;
        Ok(wire)
    }

    pub(crate) async fn write(&mut self, line: &str) -> io::Result<()> {
        self.stream.get_mut().write_all(line.as_bytes()).await?;
        self.stream.get_mut().write_all(b"\n").await
    }

    pub(crate) async fn read(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line),
        }
    }

    /// Writes lines without reading, until all are written, the peer closes or it stops reading.
    pub(crate) async fn flood(&mut self, lines: impl IntoIterator<Item = String>) -> FloodResult {
        let mut flood = FloodResult {
            end: ALL,
            ..FloodResult::default()
        };
        let mut buffer = String::new();
        let mut lines = lines.into_iter().peekable();
        while let Some(line) = lines.next() {
            buffer.push_str(&line);
            buffer.push('\n');
            flood.lines += 1;
            if buffer.len() < PIECE && lines.peek().is_some() {
                continue;
            }
            let writing = self.stream.get_mut().write_all(buffer.as_bytes());
            match tokio::time::timeout(WRITE_TIMEOUT, writing).await {
                Ok(Ok(())) => flood.bytes += buffer.len(),
                Ok(Err(_)) => {
                    flood.end = "closed by the peer";
                    break;
                }
                Err(_) => {
                    flood.end = "the peer stopped reading";
                    break;
                }
            }
            buffer.clear();
        }
        flood
    }
}

impl FloodResult {
    /// Fails if the peer read everything. The flood exceeds the socket buffers, so that a peer that closes the wire is
    /// always noticed.
    pub(crate) fn expect_interrupted(&self) -> Result<String, String> {
        match self.end {
            ALL => Err(format!("the peer read all of {self}")),
            _ => Ok(self.to_string()),
        }
    }
}

impl std::fmt::Display for FloodResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { lines, bytes, end } = self;
        write!(f, "{lines} lines, {} KiB, {end}", bytes >> 10)
    }
}

const ALL: &str = "all written";
const PIECE: usize = 64 << 10;
/// A write that takes longer means that the peer has stopped reading.
const WRITE_TIMEOUT: Duration = Duration::from_secs(3);
