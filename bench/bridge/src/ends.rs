//! The client and the server at the ends. They compare bytes and know no protocol, so that they cost little.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

/// Sends calls, one after the other.
pub(crate) async fn call(mut stream: DuplexStream, times: u64) {
    let head = format!("{REQUEST_HEAD}content-length: {}\r\n\r\n", REQUEST.len());
    let request = [head.as_bytes(), REQUEST.as_bytes()].concat();
    let mut buffer = Vec::with_capacity(16 * 1024);
    for _ in 0..times {
        stream.write_all(&request).await.expect("a connection");
        let body = read_message(&mut stream, &mut buffer).await;
        let body = body.expect("a response");
        let body = String::from_utf8_lossy(&buffer[body..]);
        assert!(body.contains(r#""text":"hello""#), "{body}");
    }
}

/// Answers every request with the result of a call, which is also one that `server/discover` may have.
pub(crate) async fn serve(mut stream: DuplexStream) {
    let mut buffer = Vec::with_capacity(16 * 1024);
    while let Some(body) = read_message(&mut stream, &mut buffer).await {
        let id = id_of(&buffer[body..]);
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{RESULT}}}"#);
        let length = body.len();
        let head = format!("{RESPONSE_HEAD}content-length: {length}\r\n\r\n");
        let response = [head.as_bytes(), body.as_bytes()].concat();
        stream.write_all(&response).await.expect("a connection");
    }
}

/// Reads a message with a `content-length` of three digits; returns where its body starts. `None` at the end.
async fn read_message(stream: &mut DuplexStream, buffer: &mut Vec<u8>) -> Option<usize> {
    buffer.clear();
    loop {
        if stream.read_buf(buffer).await.expect("a connection") == 0 {
            return None;
        }
        if let Some(end) = find(buffer, b"\r\n\r\n") {
            let head = &buffer[..end];
            let at = find(head, b"content-length: ").expect("a length") + 16;
            let length = number(&head[at..]);
            if buffer.len() >= end + 4 + length as usize {
                return Some(end + 4);
            }
        }
    }
}

fn id_of(body: &[u8]) -> u64 {
    let at = find(body, br#""id":"#).expect("a request with an id");
    number(&body[at + 5..])
}

fn number(text: &[u8]) -> u64 {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'))
}

fn find(text: &[u8], needle: &[u8]) -> Option<usize> {
    let first = needle[0];
    let mut starts = (0..text.len()).filter(|at| text[*at] == first);
    starts.find(|at| text[*at..].starts_with(needle))
}

const REQUEST_HEAD: &str = "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
    accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\n\
    mcp-name: echo\r\n";
const REQUEST: &str = r#"{"jsonrpc":"2.0","method":"tools/call","id":1000000000,"params":{"name":"echo","arguments":{"text":"hello"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"count","version":"0"},"io.modelcontextprotocol/clientCapabilities":{}}}}"#;
const RESPONSE_HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
const RESULT: &str = r#"{"content":[{"type":"text","text":"hello"}],"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"0"},"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"0"}}}"#;
