//! Raw HTTP/2 frames, for sequences that no library sends.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// An HTTP/2 connection that writes frames, and reads nothing unless told to.
#[derive(Debug)]
pub(crate) struct RawHttp2 {
    stream: TcpStream,
}

impl RawHttp2 {
    pub(crate) async fn connect(to: SocketAddr) -> io::Result<Self> {
        Self::connect_with(to, &[]).await
    }

    /// Connects with these settings.
    pub(crate) async fn connect_with(to: SocketAddr, settings: &[u8]) -> io::Result<Self> {
        let mut stream = TcpStream::connect(to).await?;
        stream
            .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            .await?;
        stream.write_all(&frame(SETTINGS, 0, 0, settings)).await?;
        Ok(Self { stream })
    }

    /// Reads until the heads of this many responses, or resets of their streams, have arrived.
    pub(crate) async fn read_heads(&mut self, count: u32) -> io::Result<()> {
        let mut heads = 0;
        while heads < count {
            let mut header = [0; 9];
            self.stream.read_exact(&mut header).await?;
            let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
            let mut payload = vec![0; length as usize];
            self.stream.read_exact(&mut payload).await?;
            heads += u32::from(matches!(header[3], HEADERS | RST_STREAM));
        }
        Ok(())
    }

    /// Writes frames until all are written, the server closes or it stops reading; returns how it ended.
    pub(crate) async fn flood(&mut self, frames: impl IntoIterator<Item = Vec<u8>>) -> String {
        let mut written = 0;
        let mut buffer = Vec::new();
        let mut frames = frames.into_iter().peekable();
        while let Some(frame) = frames.next() {
            buffer.extend(frame);
            written += 1;
            if buffer.len() < 32 << 10 && frames.peek().is_some() {
                continue;
            }
            match tokio::time::timeout(WRITE_TIMEOUT, self.stream.write_all(&buffer)).await {
                Ok(Ok(())) => buffer.clear(),
                Ok(Err(_)) => return format!("closed by the server after about {written} frames"),
                Err(_) => {
                    return format!("the server stopped reading after about {written} frames");
                }
            }
        }
        format!("all {written} frames written")
    }
}

/// One frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(9 + payload.len());
    frame.extend(&u32::try_from(payload.len()).unwrap().to_be_bytes()[1..]);
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A header block with these fields, without compression or indexing.
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend(text.as_bytes());
        }
    }
    block
}

/// The header block of a modern `tools/call`.
pub(crate) fn call(tool: &str) -> Vec<u8> {
    let mut headers = vec![("accept", "application/json, text/event-stream")];
    headers.extend(crate::http1::call_headers(tool));
    post(&headers)
}

/// The header block of a POST with these headers.
pub(crate) fn post(headers: &[(&str, &str)]) -> Vec<u8> {
    let mut fields = vec![
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/mcp"),
        (":authority", "localhost"),
        ("content-type", "application/json"),
    ];
    fields.extend(headers);
    block(&fields)
}

/// `SETTINGS_INITIAL_WINDOW_SIZE` = `bytes`.
pub(crate) fn initial_window(bytes: u32) -> Vec<u8> {
    [&[0, 4][..], &bytes.to_be_bytes()].concat()
}

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
/// A write that takes longer means that the server has stopped reading.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);
