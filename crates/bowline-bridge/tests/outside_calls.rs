//! A legacy server asks for the roots as soon as it is initialized, before any call: reference servers do.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::sync::Arc;

use bowline::client::Host;
use bowline::prelude::*;
use bowline::types::Root;
use bowline::wire::Lines;
use bowline_bridge::{Bridge, Target};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};

/// A server of 2025-11-25 that asks for the roots when it first receives `asks_at`, and whose tool `roots` returns the
/// answer.
async fn serve(pipe: DuplexStream, asks_at: &'static str) -> std::io::Result<()> {
    let (read, mut write) = tokio::io::split(pipe);
    let mut lines = BufReader::new(read).lines();
    let mut roots = Value::Null;
    let mut question = Some(json!({"jsonrpc": "2.0", "id": "roots", "method": "roots/list"}));
    while let Some(line) = lines.next_line().await? {
        let message: Value = serde_json::from_str(&line)?;
        let id = &message["id"];
        if message["method"] == asks_at
            && let Some(question) = question.take()
        {
            write.write_all(format!("{question}\n").as_bytes()).await?;
        }
        let sent = match message["method"].as_str() {
            Some("notifications/initialized") => continue,
            Some(method) => match result_of(method, &roots) {
                Some(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
                None => {
                    let error = json!({"code": -32601, "message": "unknown method"});
                    json!({"jsonrpc": "2.0", "id": id, "error": error})
                }
            },
            None => {
                roots = message["result"]["roots"].clone();
                continue;
            }
        };
        write.write_all(format!("{sent}\n").as_bytes()).await?;
    }
    Ok(())
}

fn result_of(method: &str, roots: &Value) -> Option<Value> {
    Some(match method {
        "initialize" => json!({
            "protocolVersion": "2025-11-25",
            "serverInfo": {"name": "roots", "version": "1"},
            "capabilities": {"tools": {}},
        }),
        "tools/list" => {
            json!({"tools": [{"name": "roots", "inputSchema": {"type": "object"}}]})
        }
        "tools/call" => json!({"content": [{"type": "text", "text": roots.to_string()}]}),
        _ => return None,
    })
}

fn bridge(asks_at: &'static str) -> Bridge {
    let target = Target::new("roots", move |_| {
        let (ours, theirs) = tokio::io::duplex(4096);
        tokio::spawn(serve(theirs, asks_at));
        let (read, write) = tokio::io::split(ours);
        Ok(Client::from_wire(Lines::new(read, write)))
    });
    Bridge::new(target)
}

const INITIALIZED: &str = "notifications/initialized";

fn host() -> Host {
    Host::new().roots(async || vec![Root::new("file:///project")])
}

#[tokio::test(start_paused = true)]
async fn a_modern_client_is_asked_before_its_next_call_is_sent() {
    let client = Client::in_process(&bridge(INITIALIZED))
        .protocol_version("2026-07-28")
        .host(host());
    let client = client.await.unwrap();
    client.list_tools().await.unwrap();

    let reply = client.call_tool("roots", ()).await.unwrap();

    assert!(reply.text().contains("file:///project"), "{}", reply.text());
}

#[tokio::test(start_paused = true)]
async fn a_request_for_roots_outlives_a_call_that_is_answered_first() {
    let client = Client::in_process(&bridge("tools/call"))
        .protocol_version("2026-07-28")
        .host(host());
    let client = client.await.unwrap();

    let first = client.call_tool("roots", ()).await.unwrap();
    // In process a call follows so quickly that the server has not read the end of the first one.
    tokio::task::yield_now().await;
    let second = client.call_tool("roots", ()).await.unwrap();

    assert_eq!(first.text(), "null");
    assert!(
        second.text().contains("file:///project"),
        "{}",
        second.text()
    );
}

#[tokio::test(start_paused = true)]
async fn a_legacy_client_is_asked_at_once() {
    let (ours, theirs) = tokio::io::duplex(4096);
    let lines = |pipe| {
        let (read, write) = tokio::io::split(pipe);
        Lines::new(read, write)
    };
    tokio::spawn(bridge(INITIALIZED).wire().serve(lines(theirs)));
    let asked = Arc::new(tokio::sync::Notify::new());
    let notify = asked.clone();
    let host = Host::new().roots(move || {
        notify.notify_one();
        async { vec![Root::new("file:///project")] }
    });
    let client = Client::from_wire(lines(ours))
        .protocol_version("2025-06-18")
        .host(host);
    let client = client.await.unwrap();

    asked.notified().await;

    // The answer is on its way on the wire on which the call follows.
    let reply = client.call_tool("roots", ()).await.unwrap();
    assert!(reply.text().contains("file:///project"), "{}", reply.text());
}
