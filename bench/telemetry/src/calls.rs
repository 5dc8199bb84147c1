//! The calls whose instructions are counted; the same as in `bench-counts`.

use bowline::prelude::*;
use bowline::telemetry::Telemetry;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::json;
use tower_service::Service as _;

/// Returns what it gets.
#[tool]
async fn echo(text: String) -> String {
    text
}

fn server(telemetry: Option<Telemetry>) -> Server {
    let server = Server::new("s", "0").tool(echo);
    match telemetry {
        Some(telemetry) => server.telemetry(telemetry),
        None => server,
    }
}

/// A request to a server, without sockets.
pub(crate) fn over_http(telemetry: Option<Telemetry>, times: u64) {
    let body = Bytes::from_static(BODY.as_bytes());
    block_on(async move {
        let mut service = server(telemetry).http();
        for _ in 0..times {
            let request = Request::post("/mcp")
                .header("host", "127.0.0.1")
                .header("content-type", "application/json")
                .header("accept", "application/json, text/event-stream")
                .header("mcp-protocol-version", "2026-07-28")
                .header("mcp-method", "tools/call")
                .header("mcp-name", "echo")
                .body(Full::new(body.clone()))
                .expect("a request");
            let response = service.call(request).await;
            let response = response.unwrap_or_else(|never| match never {});
            assert_eq!(response.status(), StatusCode::OK);
            response.into_body().collect().await.expect("a response");
        }
    });
}

/// Client and server without a wire.
pub(crate) fn in_process(telemetry: Option<Telemetry>, times: u64) {
    block_on(async move {
        let connect = Client::in_process(&server(telemetry.clone()));
        let connect = match telemetry {
            Some(telemetry) => connect.telemetry(telemetry),
            None => connect,
        };
        let client = connect.await.expect("failed to connect");
        for _ in 0..times {
            let reply = client.call_tool("echo", json!({"text": "hello"})).await;
            assert_eq!(reply.expect("a reply").text(), "hello");
        }
    });
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build();
    runtime
        .expect("failed to build the runtime")
        .block_on(future)
}

const BODY: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello"},"_meta":{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"count","version":"0"},"io.modelcontextprotocol/clientCapabilities":{}}}}"#;
