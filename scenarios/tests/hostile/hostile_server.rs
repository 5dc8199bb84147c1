//! A hostile server over HTTP/1.1 and a line wire: answers the handshake, then attacks the client.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::line_wire::LineWire;
use crate::rpc;

/// Accepts one line wire and answers `initialize` as a legacy server.
pub(crate) async fn accept_legacy_line(listener: TcpListener) -> Result<LineWire, String> {
    let mut wire = accept_line(listener).await?;
    let (id, _) = next_request(&mut wire).await?;
    let result = json!({
        "protocolVersion": rpc::LEGACY,
        "capabilities": {"tools": {}, "resources": {"subscribe": true}},
        "serverInfo": {"name": "evil", "version": "1"},
    });
    wire.write(&answer(&id, &result)).await.map_err(text)?;
    Ok(wire)
}

/// Accepts one line wire and answers `server/discover`; returns the next request with its id.
pub(crate) async fn accept_modern_line(
    listener: TcpListener,
) -> Result<(LineWire, Value, String), String> {
    let mut wire = accept_line(listener).await?;
    loop {
        let (id, method) = next_request(&mut wire).await?;
        if method != "server/discover" {
            return Ok((wire, id, method));
        }
        wire.write(&answer(&id, &discovered()))
            .await
            .map_err(text)?;
    }
}

async fn accept_line(listener: TcpListener) -> Result<LineWire, String> {
    let listener = tokio::net::TcpListener::from_std(listener).map_err(text)?;
    let (stream, _) = listener.accept().await.map_err(text)?;
    Ok(LineWire::over(stream))
}

async fn next_request(wire: &mut LineWire) -> Result<(Value, String), String> {
    loop {
        let line = wire.read().await.map_err(text)?;
        let message: Value = serde_json::from_str(&line).map_err(|error| error.to_string())?;
        if let (Some(id), Some(method)) = (message.get("id"), message["method"].as_str()) {
            return Ok((id.clone(), method.to_owned()));
        }
    }
}

/// The result of `server/discover`.
pub(crate) fn discovered() -> Value {
    json!({
        "resultType": "complete",
        "supportedVersions": [rpc::MODERN],
        "capabilities": {"tools": {}, "resources": {"subscribe": true}},
        "ttlMs": 0,
        "cacheScope": "private",
    })
}

/// The acknowledgement of a subscription to one resource.
pub(crate) fn acknowledged(id: &Value) -> String {
    let params = json!({
        "_meta": {"io.modelcontextprotocol/subscriptionId": id},
        "notifications": {"resourceSubscriptions": ["note://one"]},
    });
    let method = "notifications/subscriptions/acknowledged";
    json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()
}

/// A resource update for a subscription, with this many bytes of padding.
pub(crate) fn updated(id: &Value, padding: usize) -> String {
    let padding = "x".repeat(padding);
    let meta =
        format!(r#"{{"io.modelcontextprotocol/subscriptionId":{id},"padding":"{padding}"}}"#);
    let head = r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"#;
    format!(r#"{head}"_meta":{meta},"uri":"note://one"}}}}"#)
}

pub(crate) fn answer(id: &Value, result: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()
}

/// The response to a request over HTTP.
pub(crate) enum HostileResponse {
    Result(Value),
    /// These events, without closing the stream.
    Events(Box<dyn Iterator<Item = String> + Send>),
    /// An empty result, sent once the client has read all events or stopped reading them.
    WhenBlocked,
}

/// Serves HTTP/1.1: `reply` receives the id, the method and the params of each request.
pub(crate) async fn serve_http(
    listener: TcpListener,
    reply: impl Fn(&Value, &str, &Value) -> HostileResponse + Send + Sync + 'static,
) -> Result<String, String> {
    let listener = tokio::net::TcpListener::from_std(listener).map_err(text)?;
    let reply = Arc::new(reply);
    let stuck = Arc::new(Semaphore::new(0));
    loop {
        let (stream, _) = listener.accept().await.map_err(text)?;
        let (reply, stuck) = (reply.clone(), stuck.clone());
        tokio::spawn(async move { serve_connection(stream, &*reply, &stuck).await });
    }
}

async fn serve_connection(
    mut stream: TcpStream,
    reply: &(dyn Fn(&Value, &str, &Value) -> HostileResponse + Send + Sync),
    stuck: &Semaphore,
) -> io::Result<()> {
    let mut read = Vec::new();
    loop {
        let message = next_post(&mut stream, &mut read).await?;
        let (id, method) = (
            &message["id"],
            message["method"].as_str().unwrap_or_default(),
        );
        if id.is_null() {
            stream
                .write_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
                .await?;
            continue;
        }
        let result = match method {
            "server/discover" => HostileResponse::Result(discovered()),
            _ => reply(id, method, &message["params"]),
        };
        if matches!(result, HostileResponse::WhenBlocked) {
            let _ = stuck.acquire().await;
        }
        match result {
            HostileResponse::WhenBlocked => {
                write_result(&mut stream, id, &json!({"content": []})).await?
            }
            HostileResponse::Result(result) => write_result(&mut stream, id, &result).await?,
            HostileResponse::Events(events) => {
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
                stream.write_all(head.as_bytes()).await?;
                for event in events {
                    let event = format!("data: {event}\n\n");
                    let writing = stream.write_all(event.as_bytes());
                    match tokio::time::timeout(WRITE_TIMEOUT, writing).await {
                        Ok(written) => written?,
                        Err(_) => break,
                    }
                }
                stuck.add_permits(1);
                std::future::pending::<()>().await;
            }
        }
    }
}

async fn write_result(stream: &mut TcpStream, id: &Value, result: &Value) -> io::Result<()> {
    let body = answer(id, result);
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json";
    let head = format!("{head}\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await
}
async fn next_post(stream: &mut TcpStream, read: &mut Vec<u8>) -> io::Result<Value> {
    loop {
        let head_end = read.windows(4).position(|window| window == b"\r\n\r\n");
        if let Some(head_end) = head_end {
            let head = String::from_utf8_lossy(&read[..head_end]).to_ascii_lowercase();
            let length = crate::http1::header(&head, "content-length");
            let length: usize = length.and_then(|text| text.parse().ok()).unwrap_or(0);
            let end = head_end + 4 + length;
            while read.len() < end {
                fill(stream, read).await?;
            }
            let message = serde_json::from_slice(&read[head_end + 4..end]).unwrap_or_default();
            read.drain(..end);
            return Ok(message);
        }
        fill(stream, read).await?;
    }
}

async fn fill(stream: &mut TcpStream, read: &mut Vec<u8>) -> io::Result<()> {
    match stream.read_buf(read).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

fn text(error: io::Error) -> String {
    error.to_string()
}

/// A write that takes longer means that the client has stopped reading.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);
