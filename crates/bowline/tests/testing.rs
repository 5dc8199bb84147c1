//! What the crate offers to other people's tests.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says by panicking what it saw"
)]

use bowline::testing::{self, Direction, Tap, Transport, matrix};
use bowline::{CallToolResult, Client, Error, Server, Tool, wire};
use bowline_core::era::Dialect;
use serde_json::json;

fn server() -> Server {
    let echo = Tool::raw("echo", json!({"type": "object"}), async |arguments, _| {
        Ok(CallToolResult::text(arguments.to_string()))
    });
    Server::new("tested", "1.0.0").tool(echo)
}

#[tokio::test(start_paused = true)]
async fn the_matrix_reaches_a_server_over_everything_in_every_version() {
    let mut columns = Vec::new();
    for column in matrix() {
        let reach = column.reach(&server());
        let client = reach.connect.await.unwrap();

        let reply = client.call_tool("echo", json!({"a": 1})).await.unwrap();

        assert_eq!(client.dialect(), column.dialect);
        assert_eq!(reply.text(), r#"{"a":1}"#, "{column}");
        assert_eq!(
            reach.tapped.is_some(),
            column.transport == Transport::Memory
        );
        columns.push(column.to_string());
    }
    assert_eq!(columns.len(), 4 * Dialect::ALL.len() + 1);
    assert_eq!(columns[0], "in process at 2026-07-28");
    assert_eq!(columns[9], "memory at 2024-11-05");
    assert_eq!(columns[10], "HTTP/1.1 at 2026-07-28");
    assert_eq!(columns[20], "HTTP+SSE at 2024-11-05");
}

#[tokio::test(start_paused = true)]
async fn a_tap_writes_down_both_directions_in_order() {
    let (near, far) = wire::memory();
    let (tap, tapped) = Tap::new(near);
    tokio::spawn(server().serve(far));
    let client = Client::over(tap).speaking("2026-07-28").await.unwrap();

    client.call_tool("echo", ()).await.unwrap();
    let frames = tapped.frames();
    tapped.clear();

    let directions: Vec<Direction> = frames.iter().map(|frame| frame.direction).collect();
    assert_eq!(directions, [Direction::Sent, Direction::Received]);
    assert_eq!(frames[0].json()["method"], "tools/call");
    assert!(frames[0].to_string().starts_with(r#"→ {"jsonrpc""#));
    assert!(frames[1].to_string().starts_with(r#"← {"jsonrpc""#));
    assert_eq!(tapped.frames(), []);
}

#[tokio::test(start_paused = true)]
async fn a_tap_cuts_the_wire_under_whoever_waits() {
    let (near, _far) = wire::memory();
    let (tap, tapped) = Tap::new(near);
    let client = Client::over(tap).speaking("2026-07-28").await.unwrap();
    let waiting = tokio::spawn(client.call_tool("echo", ()).into_future());
    tokio::task::yield_now().await;

    tapped.cut();

    let error = waiting.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Transport { .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_script_panics_with_what_it_saw() {
    let (wire, mut script) = testing::scripted();
    let client = Client::over(wire).speaking("2026-07-28").await.unwrap();
    let _call = client.call_tool("echo", ()).start();

    let panicked = tokio::spawn(async move { script.expect("tools/list").await.id() });

    let panic = panicked.await.unwrap_err().into_panic();
    let words = panic.downcast_ref::<String>().unwrap();
    assert!(
        words.starts_with("expected the request `tools/list`, and saw"),
        "{words}"
    );
    assert!(words.contains("tools/call"), "{words}");
}

#[tokio::test(start_paused = true)]
async fn a_scripted_client_says_anything_and_hears_the_answer() {
    for dialect in Dialect::ALL {
        let mut client = testing::scripted_client(&server());
        client.open(dialect, json!({})).await;

        client.say_text("this is no JSON");
        let complaint = client.hear().await;
        client.request(dialect, 7, "tools/call", json!({"name": "echo"}));
        let answer = client.hear().await;

        assert_eq!(complaint["error"]["code"], -32700, "{}", dialect.version);
        assert_eq!(answer["id"], 7);
        assert_eq!(answer["result"]["content"][0]["text"], "{}");
    }
}
