//! Requests that are refused, and their status and error code.

use bowline::exchange::Dialects;
use bowline::{CallToolResult, Limits, Server, Tool};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};

use crate::support::*;

/// The complete table of statuses, over HTTP/1.1 and HTTP/2.
#[tokio::test(start_paused = true)]
async fn each_kind_of_post_has_its_status_and_error_code() {
    let fixture = ServerFixture::new();
    let service = fixture
        .server
        .http()
        .versions(Dialects::modern())
        .limits(Limits {
            message_bytes: 2000,
            ..Limits::default()
        });
    let rows = || [head_rows(), message_rows(), header_rows(), answered_rows()].concat();

    for (what, status, code, request) in rows() {
        let response = PlainConnection::http1(&service).await.send(request).await;

        assert_eq!(response.status(), status, "{what}");
        assert_eq!(response.header("mcp-session-id"), None, "{what}");
        assert_eq!(code_of(response).await, code, "{what}");
    }
    // HTTP/2 sends the host as `:authority`, which the table cannot set.
    for (what, status, code, request) in rows().into_iter().filter(|row| row.0 != "foreign host") {
        let response = PlainConnection::http2(&service).await.send(request).await;

        assert_eq!(response.status(), status, "{what} over HTTP/2");
        assert_eq!(code_of(response).await, code, "{what} over HTTP/2");
    }
}

/// Returns the code of an error, 0 for a result, `None` for an empty body.
async fn code_of(response: PlainResponse) -> Option<i64> {
    if response.status() == 202 {
        assert_eq!(response.text().await, "");
        return None;
    }
    let answer = response.json().await;
    answer["error"]["code"].as_i64().or(Some(0))
}

type Row = (&'static str, u16, Option<i64>, Request<Full<Bytes>>);

#[rustfmt::skip]
fn head_rows() -> Vec<Row> {
    let echo = || call(1, "echo", "a");
    let large = call(1, "echo", &"x".repeat(2000));
    vec![
        ("foreign host", 403, Some(-32600), with_header(echo(), "host", "evil.example")),
        ("foreign origin", 403, Some(-32600), with_header(echo(), "origin", "https://evil.example")),
        ("notification of a foreign origin", 403, Some(-32600), with_header(cancel_notification(), "origin", "https://evil.example")),
        ("content type is not JSON", 415, Some(-32600), with_header(echo(), "content-type", "text/plain")),
        ("no content type", 415, Some(-32600), without_header(echo(), "content-type")),
        ("accepts neither form", 406, Some(-32600), with_header(echo(), "accept", "text/html")),
        ("too large", 413, Some(-32600), large),
    ]
}

#[rustfmt::skip]
fn message_rows() -> Vec<Row> {
    let list = |meta: Value| with_header(with_header(post(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list",
        "params": {"_meta": meta}})), "mcp-protocol-version", "2026-07-28"), "mcp-method", "tools/list");
    let version = "io.modelcontextprotocol/protocolVersion";
    let future = with_header(list(json!({version: "2031-01-01"})), "mcp-protocol-version", "2031-01-01");
    let legacy = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}});
    let modern = |body: Value| with_header(post(&body), "mcp-protocol-version", "2026-07-28");
    let mut invalid = call(1, "echo", "a");
    *invalid.body_mut() = "{".into();
    vec![
        ("invalid JSON", 400, Some(-32700), invalid),
        ("not a message", 400, Some(-32600), modern(json!({"id": 1}))),
        ("batch", 400, Some(-32600), modern(json!([legacy]))),
        ("response", 400, Some(-32600), modern(json!({"jsonrpc": "2.0", "id": 1, "result": {}}))),
        ("malformed notification", 400, Some(-32600), modern(json!({"jsonrpc": "2.0", "method": "x", "params": []}))),
        ("no `_meta` envelope", 400, Some(-32602), list(json!({}))),
        ("no capabilities", 400, Some(-32602), list(json!({version: "2026-07-28"}))),
        ("unknown version", 400, Some(-32022), future),
        ("unknown method", 404, Some(-32601), modern_request(1, "tools/forget", json!({}))),
        ("method of an unsupported capability", 404, Some(-32601), modern_request(1, "prompts/list", json!({}))),
        ("removed method", 404, Some(-32601), modern_request(1, "initialize", json!({}))),
        ("legacy initialize", 400, Some(-32022), post(&initialize)),
        ("legacy request", 400, Some(-32020), post(&legacy)),
    ]
}

#[rustfmt::skip]
fn header_rows() -> Vec<Row> {
    let echo = || call(1, "echo", "a");
    let mut twice = echo();
    twice.headers_mut().append("mcp-method", "tools/call".parse().unwrap());
    let region = || modern_request(1, "tools/call", json!({"name": "region", "arguments": {"region": "eu west"}}));
    vec![
        ("no version header", 400, Some(-32020), without_header(echo(), "mcp-protocol-version")),
        ("version header differs", 400, Some(-32020), with_header(echo(), "mcp-protocol-version", "2025-11-25")),
        ("no method header", 400, Some(-32020), without_header(echo(), "mcp-method")),
        ("method header differs", 400, Some(-32020), with_header(echo(), "mcp-method", "tools/list")),
        ("method header in upper case", 400, Some(-32020), with_header(echo(), "mcp-method", "TOOLS/CALL")),
        ("duplicate method header", 400, Some(-32020), twice),
        ("no name header", 400, Some(-32020), without_header(echo(), "mcp-name")),
        ("name header differs", 400, Some(-32020), with_header(echo(), "mcp-name", "wait")),
        ("name header with invalid base64", 400, Some(-32020), with_header(echo(), "mcp-name", "=?base64?%%?=")),
        ("encoded name header", 200, Some(0), with_header(echo(), "mcp-name", "=?base64?ZWNobw==?=")),
        ("no param header", 400, Some(-32020), region()),
        ("param header differs", 400, Some(-32020), with_header(region(), "mcp-param-region", "us")),
        ("param header", 200, Some(0), with_header(region(), "mcp-param-region", "eu west")),
        ("encoded param header", 200, Some(0), with_header(region(), "mcp-param-region", "=?base64?ZXUgd2VzdA==?=")),
        ("param header without its argument", 400, Some(-32020),
            with_header(modern_request(1, "tools/call", json!({"name": "region", "arguments": {}})), "mcp-param-region", "eu")),
    ]
}

#[rustfmt::skip]
fn answered_rows() -> Vec<Row> {
    vec![
        ("result", 200, Some(0), call(1, "echo", "a")),
        ("notification", 202, None, cancel_notification()),
        ("missing capability", 400, Some(-32021), call(1, "missing_capability", "a")),
        ("unknown tool", 200, Some(-32602), call(1, "unknown", "a")),
        ("panic", 200, Some(-32603), call(1, "panics", "a")),
    ]
}

#[tokio::test]
async fn the_param_headers_of_a_hidden_tool_reveal_nothing() {
    let schema = json!({"type": "object", "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"}}});
    let hidden = Tool::raw("hidden", schema, async |_, _| Ok(CallToolResult::text("")));
    let server = Server::new("s", "1").tool(hidden.visible_to(|_| false));
    let service = server.http();
    let ask = async |tool: &str, header: Option<&str>| {
        let params = json!({"name": tool, "arguments": {"region": "eu"}});
        let mut request = modern_request(1, "tools/call", params);
        if let Some(region) = header {
            request = with_header(request, "mcp-param-region", region);
        }
        let response = PlainConnection::http1(&service).await.send(request).await;
        (response.status(), response.json().await.to_string())
    };

    for header in [None, Some("eu"), Some("us")] {
        let (status, body) = ask("unknown", header).await;

        let expected = (
            status,
            body.replace("unknown tool `unknown`", "unknown tool `hidden`"),
        );
        assert_eq!(ask("hidden", header).await, expected, "{header:?}");
        assert!(body.contains("-32602"), "{body}");
    }
}

fn cancel_notification() -> Request<Full<Bytes>> {
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    with_header(post(&cancel), "mcp-protocol-version", "2026-07-28")
}

fn without_header(mut request: Request<Full<Bytes>>, name: &str) -> Request<Full<Bytes>> {
    request.headers_mut().remove(name);
    request
}

#[tokio::test(start_paused = true)]
async fn a_refused_origin_gets_an_error_that_says_where_to_allow_it() {
    let fixture = ServerFixture::new();
    let mut connection = PlainConnection::http1(&fixture.server.http()).await;

    let response = connection
        .send(with_header(
            call(1, "echo", "a"),
            "origin",
            "https://evil.example",
        ))
        .await;

    let answer = response.json().await;
    assert!(
        answer["error"]["message"]
            .as_str()
            .unwrap()
            .contains("allowed origins"),
        "{answer}"
    );
    assert_eq!(answer["id"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn without_legacy_only_post_is_allowed() {
    let fixture = ServerFixture::new();
    let service = fixture.server.http().versions(Dialects::modern());

    for verb in ["GET", "DELETE", "PUT"] {
        let mut request = call(1, "echo", "a");
        *request.method_mut() = verb.parse().unwrap();
        let response = PlainConnection::http1(&service).await.send(request).await;

        assert_eq!(
            (response.status().as_u16(), response.header("allow")),
            (405, Some("POST")),
            "{verb}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_chunked_body_is_limited_while_it_is_read() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let fixture = ServerFixture::new();
    let service = fixture.server.http().limits(Limits {
        message_bytes: 1000,
        ..Limits::default()
    });
    let (mut near, far) = tokio::io::duplex(64 * 1024);
    let serving = tokio::spawn(async move { service.serve_connection(far).await });
    let head = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                transfer-encoding: chunked\r\nconnection: close\r\n\r\n";
    let chunk = format!("{:x}\r\n{}\r\n", 600, "x".repeat(600));

    near.write_all(format!("{head}{chunk}{chunk}").as_bytes())
        .await
        .unwrap();

    let mut answer = String::new();
    near.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    serving.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn requests_beyond_the_limit_are_refused() {
    let mut fixture = ServerFixture::new();
    let service = fixture.server.http().limits(Limits {
        requests: 1,
        ..Limits::default()
    });
    let mut first = PlainConnection::http1(&service).await;
    let mut second = PlainConnection::http1(&service).await;
    let held = first.send(call_with_progress(1, "progress", "a")).await;
    fixture.handler_started("a").await;

    let refused = second.send(call(2, "echo", "b")).await;
    fixture.release.notify_one();
    held.messages().await;
    let taken = second.send(call(3, "echo", "c")).await;

    assert_eq!(refused.status(), 503);
    assert_eq!(refused.header("retry-after"), Some("1"));
    let error = refused.json().await["error"].clone();
    assert_eq!(
        error["data"],
        json!({"limit": "requests", "max": 1}),
        "{error}"
    );
    assert_eq!(taken.json().await["id"], 3);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_disconnected_and_its_handler_dropped() {
    use tokio::io::AsyncWriteExt;
    let mut fixture = ServerFixture::new();
    let chatter = Tool::raw(
        "chatter",
        json!({"type": "object"}),
        async |_, cx: bowline::Context| {
            for at in 0_u32.. {
                let text = "x".repeat(1000);
                cx.progress(bowline::Progress::new(f64::from(at)).message(text));
                tokio::task::yield_now().await;
            }
            Ok(CallToolResult::text("never"))
        },
    );
    fixture.server = fixture.server.tool(chatter);
    let service = fixture.server.http();
    let (mut near, far) = tokio::io::duplex(4096);
    let serving = service.clone();
    let serving = tokio::spawn(async move { serving.serve_connection(far).await });
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "chatter", "_meta": {"progressToken": 1,
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {}}}})
    .to_string();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
        mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: chatter\r\n\
        content-length: {}\r\n\r\n",
        body.len()
    );

    near.write_all(format!("{head}{body}").as_bytes())
        .await
        .unwrap();

    serving.await.unwrap();
    assert_eq!(service.in_flight(), 0);
}
