//! The HTTP server under the three HTTP wires: connections, responses and event streams.

use std::io;
use std::sync::Arc;

use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedReceiver;

use super::{State, http_sse, modern_http, streamable_http};
use crate::endpoint::Wire;
use crate::http1::{Body, Head, HttpConnection, message_event};

/// The response to an HTTP request.
#[derive(Debug)]
pub(super) enum HttpResponse {
    /// A status without a body.
    Status(u16),
    /// A status with a JSON body.
    Error(u16, Value),
    /// One JSON body with status 200, when the first message comes; with these headers.
    Json(UnboundedReceiver<Value>, String),
    /// An event stream, whose head is written at once, and which starts with this text.
    Stream(UnboundedReceiver<Value>, String),
    /// As the first message decides, which is the rule at 2026-07-28: an error may become a status.
    Modern(UnboundedReceiver<Value>, Format),
}

/// The form of a response without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Json,
    Stream,
}

pub(super) async fn accept(listener: TcpListener, state: Arc<State>) {
    while let Ok((stream, _)) = listener.accept().await {
        // Failing to set it makes the run slower only.
        let _ = stream.set_nodelay(true);
        tokio::spawn(serve(HttpConnection::new(stream), state.clone()));
    }
}

async fn serve(mut connection: HttpConnection, state: Arc<State>) -> io::Result<()> {
    while let Some(head) = connection.read_head().await? {
        let body = connection.read_body(head.body(Body::Length(0))).await?;
        let message = serde_json::from_slice(&body).unwrap_or_default();
        let response = route(&state, &head, message);
        if !respond(&mut connection, response).await? {
            break;
        }
    }
    Ok(())
}

fn route(state: &Arc<State>, head: &Head, message: Value) -> HttpResponse {
    match (state.endpoint.wire, state.endpoint.revision.is_modern()) {
        (Wire::HttpSse, _) => http_sse::respond(state, head, message),
        (_, true) => modern_http::respond(state, head, message),
        (_, false) => streamable_http::respond(state, head, message),
    }
}

/// Writes a response; returns whether the connection can be used again.
async fn respond(connection: &mut HttpConnection, response: HttpResponse) -> io::Result<bool> {
    match response {
        HttpResponse::Status(status) => write_json(connection, status, "", None).await?,
        HttpResponse::Error(status, body) => {
            write_json(connection, status, "", Some(&body)).await?;
        }
        HttpResponse::Json(mut messages, headers) => {
            let Some(message) = first(connection, &mut messages).await else {
                return Ok(false);
            };
            write_json(connection, 200, &headers, Some(&message)).await?;
        }
        HttpResponse::Stream(messages, start) => return stream(connection, messages, start).await,
        HttpResponse::Modern(mut messages, format) => {
            let Some(message) = first(connection, &mut messages).await else {
                return Ok(false);
            };
            match (status_of(&message), format) {
                (200, Format::Stream) => {
                    return stream(connection, messages, message_event(&message)).await;
                }
                (status, _) => write_json(connection, status, "", Some(&message)).await?,
            }
        }
    }
    Ok(true)
}

/// The first message; `None` if the client closed the connection before.
async fn first(
    connection: &mut HttpConnection,
    messages: &mut UnboundedReceiver<Value>,
) -> Option<Value> {
    tokio::select! {
        message = messages.recv() => message,
        () = connection.closed() => None,
    }
}

/// Writes an event stream until the last sender is gone, or until the client closes the connection: then the channel
/// is closed, which the sender notices.
async fn stream(
    connection: &mut HttpConnection,
    mut messages: UnboundedReceiver<Value>,
    start: String,
) -> io::Result<bool> {
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    connection.write(head.as_bytes()).await?;
    if !start.is_empty() {
        connection.write_chunk(&start).await?;
    }
    loop {
        tokio::select! {
            message = messages.recv() => match message {
                Some(message) => connection.write_chunk(&message_event(&message)).await?,
                None => {
                    connection.write_chunk("").await?;
                    return Ok(true);
                }
            },
            () = connection.closed() => return Ok(false),
        }
    }
}

async fn write_json(
    connection: &mut HttpConnection,
    status: u16,
    headers: &str,
    body: Option<&Value>,
) -> io::Result<()> {
    let body = body.map(Value::to_string).unwrap_or_default();
    let content_type = match body.is_empty() {
        true => "",
        false => "content-type: application/json\r\n",
    };
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status} -\r\n{content_type}{headers}content-length: {length}\r\n\r\n");
    connection.write(format!("{head}{body}").as_bytes()).await
}

/// The status of a response to a modern request, by its error.
fn status_of(message: &Value) -> u16 {
    match message["error"]["code"].as_i64() {
        Some(-32601) => 404,
        Some(-32602 | -32020 | -32021 | -32022) => 400,
        _ => 200,
    }
}
