//! What is not let in, and with which status.

use bowline::Limits;
use bowline::exchange::Dialects;
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};

use crate::support::*;

/// The whole table of statuses, over HTTP/1.1 and HTTP/2.
#[tokio::test(start_paused = true)]
async fn everything_that_can_be_posted_has_its_status_and_its_error() {
    let stage = Stage::new();
    let service = stage
        .server
        .http()
        .versions(Dialects::modern())
        .limits(Limits {
            message_bytes: 2000,
            ..Limits::default()
        });
    let rows = || {
        [
            at_the_door(),
            in_the_message(),
            in_the_headers(),
            answered(),
        ]
        .concat()
    };

    for (what, status, code, request) in rows() {
        let reply = Link::to(&service).await.send(request).await;

        assert_eq!(reply.status(), status, "{what}");
        assert_eq!(reply.header("mcp-session-id"), None, "{what}");
        assert_eq!(code_of(reply).await, code, "{what}");
    }
    // Over HTTP/2 the host is no header, and stays out of the table's reach.
    for (what, status, code, request) in rows().into_iter().filter(|row| row.0 != "another host") {
        let reply = Link::http2_to(&service).await.send(request).await;

        assert_eq!(reply.status(), status, "{what} over HTTP/2");
        assert_eq!(code_of(reply).await, code, "{what} over HTTP/2");
    }
}

/// The code of an error, 0 for a result, nothing for an empty body.
async fn code_of(reply: Reply) -> Option<i64> {
    if reply.status() == 202 {
        assert_eq!(reply.text().await, "");
        return None;
    }
    let answer = reply.json().await;
    answer["error"]["code"].as_i64().or(Some(0))
}

type Row = (&'static str, u16, Option<i64>, Request<Full<Bytes>>);

#[rustfmt::skip]
fn at_the_door() -> Vec<Row> {
    let echo = || call(1, "echo", "a");
    let large = call(1, "echo", &"x".repeat(2000));
    vec![
        ("another host", 403, Some(-32600), with(echo(), "host", "evil.example")),
        ("a web page", 403, Some(-32600), with(echo(), "origin", "https://evil.example")),
        ("a page tells something", 403, Some(-32600), with(told(), "origin", "https://evil.example")),
        ("no JSON", 415, Some(-32600), with(echo(), "content-type", "text/plain")),
        ("no kind", 415, Some(-32600), without(echo(), "content-type")),
        ("reads nothing", 406, Some(-32600), with(echo(), "accept", "text/html")),
        ("too large", 413, Some(-32600), large),
    ]
}

#[rustfmt::skip]
fn in_the_message() -> Vec<Row> {
    let list = |meta: Value| with(with(post(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list",
        "params": {"_meta": meta}})), "mcp-protocol-version", "2026-07-28"), "mcp-method", "tools/list");
    let version = "io.modelcontextprotocol/protocolVersion";
    let future = with(list(json!({version: "2031-01-01"})), "mcp-protocol-version", "2031-01-01");
    let legacy = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}});
    let speaking = |body: Value| with(post(&body), "mcp-protocol-version", "2026-07-28");
    let mut unread = call(1, "echo", "a");
    *unread.body_mut() = "{".into();
    vec![
        ("not parsed", 400, Some(-32700), unread),
        ("no message", 400, Some(-32600), speaking(json!({"id": 1}))),
        ("a batch", 400, Some(-32600), speaking(json!([legacy]))),
        ("a response", 400, Some(-32600), speaking(json!({"jsonrpc": "2.0", "id": 1, "result": {}}))),
        ("a malformed notification", 400, Some(-32600), speaking(json!({"jsonrpc": "2.0", "method": "x", "params": []}))),
        ("no envelope", 400, Some(-32602), list(json!({}))),
        ("no capabilities", 400, Some(-32602), list(json!({version: "2026-07-28"}))),
        ("no such version", 400, Some(-32022), future),
        ("unknown method", 404, Some(-32601), modern(1, "tools/forget", json!({}))),
        ("method that is not offered", 404, Some(-32601), modern(1, "prompts/list", json!({}))),
        ("retired method", 404, Some(-32601), modern(1, "initialize", json!({}))),
        ("a legacy handshake", 400, Some(-32022), post(&hello)),
        ("a legacy request", 400, Some(-32020), post(&legacy)),
    ]
}

#[rustfmt::skip]
fn in_the_headers() -> Vec<Row> {
    let echo = || call(1, "echo", "a");
    let mut twice = echo();
    twice.headers_mut().append("mcp-method", "tools/call".parse().unwrap());
    let region = || modern(1, "tools/call", json!({"name": "region", "arguments": {"region": "eu west"}}));
    vec![
        ("no version", 400, Some(-32020), without(echo(), "mcp-protocol-version")),
        ("another version", 400, Some(-32020), with(echo(), "mcp-protocol-version", "2025-11-25")),
        ("no method", 400, Some(-32020), without(echo(), "mcp-method")),
        ("another method", 400, Some(-32020), with(echo(), "mcp-method", "tools/list")),
        ("a method in capitals", 400, Some(-32020), with(echo(), "mcp-method", "TOOLS/CALL")),
        ("a method twice", 400, Some(-32020), twice),
        ("no name", 400, Some(-32020), without(echo(), "mcp-name")),
        ("another name", 400, Some(-32020), with(echo(), "mcp-name", "wait")),
        ("a name that cannot be decoded", 400, Some(-32020), with(echo(), "mcp-name", "=?base64?%%?=")),
        ("an encoded name", 200, Some(0), with(echo(), "mcp-name", "=?base64?ZWNobw==?=")),
        ("an argument that is not repeated", 400, Some(-32020), region()),
        ("another argument", 400, Some(-32020), with(region(), "mcp-param-region", "us")),
        ("a repeated argument", 200, Some(0), with(region(), "mcp-param-region", "eu west")),
        ("an encoded argument", 200, Some(0), with(region(), "mcp-param-region", "=?base64?ZXUgd2VzdA==?=")),
        ("a header for an argument that is not there", 400, Some(-32020),
            with(modern(1, "tools/call", json!({"name": "region", "arguments": {}})), "mcp-param-region", "eu")),
    ]
}

#[rustfmt::skip]
fn answered() -> Vec<Row> {
    vec![
        ("a result", 200, Some(0), call(1, "echo", "a")),
        ("a notification", 202, None, told()),
        ("a missing capability", 400, Some(-32021), call(1, "needs", "a")),
        ("an unknown tool", 200, Some(-32602), call(1, "nobody", "a")),
        ("a panic", 200, Some(-32603), call(1, "panics", "a")),
    ]
}

fn told() -> Request<Full<Bytes>> {
    let told =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    with(post(&told), "mcp-protocol-version", "2026-07-28")
}

fn without(mut request: Request<Full<Bytes>>, name: &str) -> Request<Full<Bytes>> {
    request.headers_mut().remove(name);
    request
}

#[tokio::test(start_paused = true)]
async fn a_refused_page_is_told_what_would_let_it_in() {
    let stage = Stage::new();
    let mut link = Link::to(&stage.server.http()).await;

    let reply = link
        .send(with(call(1, "echo", "a"), "origin", "https://evil.example"))
        .await;

    let answer = reply.json().await;
    assert!(
        answer["error"]["message"]
            .as_str()
            .unwrap()
            .contains("allow_origin"),
        "{answer}"
    );
    assert_eq!(answer["id"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn other_verbs_are_not_allowed_where_legacy_is_not_served() {
    let stage = Stage::new();
    let service = stage.server.http().versions(Dialects::modern());

    for verb in ["GET", "DELETE", "PUT"] {
        let mut request = call(1, "echo", "a");
        *request.method_mut() = verb.parse().unwrap();
        let reply = Link::to(&service).await.send(request).await;

        assert_eq!(
            (reply.status().as_u16(), reply.header("allow")),
            (405, Some("POST")),
            "{verb}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_of_unknown_length_is_counted_as_it_comes() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let stage = Stage::new();
    let service = stage.server.http().limits(Limits {
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
async fn more_requests_than_there_is_room_for_are_refused() {
    let mut stage = Stage::new();
    let service = stage.server.http().limits(Limits {
        requests: 1,
        ..Limits::default()
    });
    let mut first = Link::to(&service).await;
    let mut second = Link::to(&service).await;
    let held = first.send(call_with_progress(1, "talk", "a")).await;
    stage.started("a").await;

    let refused = second.send(call(2, "echo", "b")).await;
    stage.release.notify_one();
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
async fn a_client_that_takes_nothing_in_is_cut_off_and_its_handler_dropped() {
    use tokio::io::AsyncWriteExt;
    let mut stage = Stage::new();
    let chatter = bowline::Tool::raw(
        "chatter",
        json!({"type": "object"}),
        async |_, cx: bowline::Context| {
            for at in 0_u32.. {
                let word = "x".repeat(1000);
                cx.progress(bowline::Progress::at(f64::from(at)).message(word));
                tokio::task::yield_now().await;
            }
            Ok(bowline::CallToolResult::text("never"))
        },
    );
    stage.server = stage.server.tool(chatter);
    let service = stage.server.http();
    let (mut near, far) = tokio::io::duplex(4096);
    let own = service.clone();
    let serving = tokio::spawn(async move { own.serve_connection(far).await });
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
