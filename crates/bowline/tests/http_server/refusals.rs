//! What is not let in, and with which status.

use bowline::exchange::Dialects;
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn each_refusal_has_its_status_and_its_error() {
    let stage = Stage::new();
    let service = stage
        .server
        .http()
        .versions(Dialects::modern())
        .max_body(2000);

    for (what, status, code, request) in refused() {
        let reply = Link::to(&service).await.send(request).await;

        assert_eq!(reply.status(), status, "{what}");
        assert_eq!(reply.json().await["error"]["code"], code, "{what}");
    }
}

type Row = (&'static str, u16, i64, Request<Full<Bytes>>);

#[rustfmt::skip]
fn refused() -> Vec<Row> {
    let echo = || call(1, "echo", "a");
    let large = call(1, "echo", &"x".repeat(2000));
    let tool = json!({"name": "region", "arguments": {"region": "eu"}});
    let legacy = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let mut unread = echo();
    *unread.body_mut() = "{".into();
    vec![
        ("another host", 403, -32600, with(echo(), "host", "evil.example")),
        ("a web page", 403, -32600, with(echo(), "origin", "https://evil.example")),
        ("no JSON", 415, -32600, with(echo(), "content-type", "text/plain")),
        ("reads nothing", 406, -32600, with(echo(), "accept", "text/html")),
        ("too large", 413, -32600, large),
        ("not parsed", 400, -32700, unread),
        ("another version", 400, -32020, with(echo(), "mcp-protocol-version", "2025-11-25")),
        ("another method", 400, -32020, with(echo(), "mcp-method", "tools/list")),
        ("another name", 400, -32020, with(echo(), "mcp-name", "wait")),
        ("unmirrored argument", 400, -32020, modern(1, "tools/call", tool)),
        ("unknown method", 404, -32601, modern(1, "tools/forget", json!({}))),
        ("retired method", 404, -32601, modern(1, "initialize", json!({}))),
        ("legacy", 400, -32020, post(&legacy)),
    ]
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
    let service = stage.server.http().max_body(1000);
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
async fn a_client_that_never_finishes_its_head_is_cut_off() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let stage = Stage::new();
    let service = stage.server.http();
    let (mut near, far) = tokio::io::duplex(1024);
    let serving = tokio::spawn(async move { service.serve_connection(far).await });

    near.write_all(b"POST /mcp HTTP/1.1\r\nhost: local")
        .await
        .unwrap();

    let mut answer = Vec::new();
    near.read_to_end(&mut answer).await.unwrap();
    serving.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn more_requests_than_there_is_room_for_are_refused() {
    let mut stage = Stage::new();
    let service = stage.server.http().max_requests(1);
    let mut first = Link::to(&service).await;
    let mut second = Link::to(&service).await;
    let held = first.send(call_with_progress(1, "talk", "a")).await;
    stage.started("a").await;

    let refused = second.send(call(2, "echo", "b")).await;
    stage.release.notify_one();
    held.messages().await;
    let taken = second.send(call(3, "echo", "c")).await;

    assert_eq!(refused.status(), 503);
    assert_eq!(refused.json().await["id"], 2);
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
