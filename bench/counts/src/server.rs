//! Messages through a server in one process: as HTTP requests without sockets, over an in-memory wire, and without a
//! wire.

use bowline::http::HttpService;
use bowline::prelude::*;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::json;
use tower_service::Service as _;

pub(crate) fn call(times: u64) {
    modern(
        times,
        "tools/call",
        Some("echo"),
        r#""name":"echo","arguments":{"text":"hello"}"#,
    );
}

pub(crate) fn call_with_progress(times: u64) {
    let params =
        format!(r#""name":"progress","arguments":{{}},"_meta":{{"progressToken":1,{ENVELOPE}}}"#);
    let body = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{{params}}}}}"#);
    post_times(times, "tools/call", Some("progress"), body.into());
}

pub(crate) fn list(times: u64) {
    modern(times, "tools/list", None, "");
}

pub(crate) fn prompt(times: u64) {
    modern(
        times,
        "prompts/get",
        Some("greet"),
        r#""name":"greet","arguments":{"name":"you"}"#,
    );
}

pub(crate) fn read(times: u64) {
    modern(
        times,
        "resources/read",
        Some("count://it"),
        r#""uri":"count://it""#,
    );
}

pub(crate) fn discover(times: u64) {
    modern(times, "server/discover", None, "");
}

/// An unknown method.
pub(crate) fn refused(times: u64) {
    let body = modern_body("tools/undo", "");
    block_on(async move {
        let mut service = server().http();
        for _ in 0..times {
            let request = post("tools/undo", None, Full::new(body.clone()));
            assert_eq!(send(&mut service, request).await.0, StatusCode::NOT_FOUND);
        }
    });
}

/// A call in a legacy session.
pub(crate) fn legacy_call(times: u64) {
    block_on(async move {
        let mut service = server().http();
        let open = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"count","version":"0"}}}"#;
        let opened = service.call(legacy_post(None, open)).await;
        let opened = opened.unwrap_or_else(|never| match never {});
        let session = opened.headers().get("mcp-session-id").cloned();
        let session = session.and_then(|id| id.to_str().ok().map(str::to_owned));
        let session = session.expect("a session id");
        opened.into_body().collect().await.expect("a response");
        let ready = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        send(&mut service, legacy_post(Some(&session), ready)).await;
        for id in 0..times {
            let body = format!(
                r#"{{"jsonrpc":"2.0","id":{},"method":"tools/call","params":{{"name":"echo","arguments":{{"text":"hello"}}}}}}"#,
                1_000_000 + id
            );
            let request = legacy_post(Some(&session), &body);
            assert_eq!(send(&mut service, request).await.0, StatusCode::OK);
        }
    });
}

/// Client and server over an in-memory wire.
pub(crate) fn over_memory(times: u64) {
    block_on(async move {
        let (near, far) = bowline::wire::memory();
        let serving = tokio::spawn(server().serve(far));
        let client = Client::from_wire(near).await.expect("failed to connect");
        calls(&client, times).await;
        drop(client);
        let _ = serving.await;
    });
}

/// Client and server without a wire.
pub(crate) fn in_process(times: u64) {
    block_on(async move {
        let client = Client::in_process(&server())
            .await
            .expect("failed to connect");
        calls(&client, times).await;
    });
}

async fn calls(client: &Client, times: u64) {
    for _ in 0..times {
        let reply = client.call_tool("echo", json!({"text": "hello"})).await;
        assert_eq!(reply.expect("a reply").text(), "hello");
    }
}

fn modern(times: u64, method: &'static str, name: Option<&'static str>, params: &str) {
    let body = modern_body(method, params);
    post_times(times, method, name, body);
}

fn post_times(times: u64, method: &'static str, name: Option<&'static str>, body: Bytes) {
    block_on(async move {
        let mut service = server().http();
        for _ in 0..times {
            let request = post(method, name, Full::new(body.clone()));
            let (status, body) = send(&mut service, request).await;
            assert_eq!(status, StatusCode::OK, "{body:?}");
        }
    });
}

fn modern_body(method: &str, params: &str) -> Bytes {
    let comma = if params.is_empty() { "" } else { "," };
    let text = format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{{{params}{comma}"_meta":{{{ENVELOPE}}}}}}}"#
    );
    text.into()
}

/// A POST with the headers of a modern client.
pub(crate) fn post<B>(method: &str, name: Option<&str>, body: B) -> Request<B> {
    let mut request = Request::post("/mcp")
        .header("host", "127.0.0.1")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", method);
    if let Some(name) = name {
        request = request.header("mcp-name", name);
    }
    request.body(body).expect("a well-formed request")
}

fn legacy_post(session: Option<&str>, body: &str) -> Request<Full<Bytes>> {
    let mut request = Request::post("/mcp")
        .header("host", "127.0.0.1")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2025-11-25");
    if let Some(session) = session {
        request = request.header("mcp-session-id", session);
    }
    let body = Full::new(Bytes::from(body.to_owned()));
    request.body(body).expect("a well-formed request")
}

async fn send(service: &mut HttpService, request: Request<Full<Bytes>>) -> (StatusCode, Bytes) {
    let response = service.call(request).await;
    let response = response.unwrap_or_else(|never| match never {});
    let status = response.status();
    let body = response.into_body().collect().await.expect("a body");
    (status, body.to_bytes())
}

fn server() -> Server {
    Server::new("counted", "0.0.0")
        .tool(echo)
        .tool(progress)
        .prompt(greet)
        .resource(count)
}

/// Returns the argument.
#[tool]
async fn echo(text: String) -> String {
    text
}

/// Reports its progress three times.
#[tool]
async fn progress(cx: Context) -> &'static str {
    for at in [1.0, 2.0, 3.0] {
        cx.progress(at);
    }
    "done"
}

/// Greets you.
#[prompt]
async fn greet(name: String) -> String {
    format!("Hello, {name}!")
}

/// Always the same.
#[resource(uri = "count://it", mime_type = "text/plain")]
async fn count() -> &'static str {
    "one"
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build();
    runtime
        .expect("failed to build the runtime")
        .block_on(future)
}

const ENVELOPE: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"count","version":"0"},"io.modelcontextprotocol/clientCapabilities":{}"#;
