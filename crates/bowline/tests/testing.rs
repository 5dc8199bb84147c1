//! `bowline::testing`.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

use bowline::testing::{self, Direction, RecordingWire, TestTransport, matrix};
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
async fn the_matrix_covers_every_transport_in_every_version() {
    let mut cases = Vec::new();
    for case in matrix() {
        let served = case.serve(&server());
        let client = served.connect.await.unwrap();

        let reply = client.call_tool("echo", json!({"a": 1})).await.unwrap();

        assert_eq!(client.dialect(), case.dialect);
        assert_eq!(reply.text(), r#"{"a":1}"#, "{case}");
        assert_eq!(
            served.record.is_some(),
            case.transport == TestTransport::Memory
        );
        cases.push(case.to_string());
    }
    assert_eq!(cases.len(), 4 * Dialect::ALL.len() + 1);
    assert_eq!(cases[0], "in process at 2026-07-28");
    assert_eq!(cases[9], "memory at 2024-11-05");
    assert_eq!(cases[10], "HTTP/1.1 at 2026-07-28");
    assert_eq!(cases[20], "HTTP+SSE at 2024-11-05");
}

#[tokio::test]
#[should_panic(expected = "unknown protocol version `2025-06-81`")]
async fn a_matrix_since_an_unknown_version_panics() {
    let _ = matrix().since("2025-06-81");
}

#[tokio::test(start_paused = true)]
async fn structured_output_is_the_same_in_every_version() {
    let some = async || bowline::Structured(Some(vec![1_i64]));
    let server = server()
        .tool(Tool::new("three", async || 3_i64))
        .tool(Tool::new("some", some));
    for case in matrix() {
        let client = case.serve(&server).connect.await.unwrap();

        let three = client.call_tool("three", ()).await.unwrap();
        let some = client.call_tool("some", ()).await.unwrap();

        assert_eq!(three.structured::<i64>().unwrap(), 3, "{case}");
        let value: serde_json::Value = three.structured().unwrap();
        assert_eq!(value, json!(3), "{case}");
        let list: Option<Vec<i64>> = some.structured().unwrap();
        assert_eq!(list, Some(vec![1]), "{case}");
    }
}

/// A number has structured content in every form that a revision defines: any type, an object, none.
#[tokio::test(start_paused = true)]
async fn a_result_is_the_same_on_every_transport_of_a_version() {
    let server = server().tool(Tool::new("three", async || 3_i64));
    let mut first = std::collections::BTreeMap::new();
    for case in matrix() {
        let client = case.serve(&server).connect.await.unwrap();

        let reply = client.call_tool("three", ()).await.unwrap();
        let mut result = reply.tool_result().unwrap();
        // Only results on a wire have a `resultType` and the `serverInfo`.
        (result.result_type, result.meta) = (None, None);
        let mut tools = client.list_tools().await.unwrap().into_iter();
        let tool = tools.find(|tool| tool.name == "three").unwrap();

        let seen = (result, tool);
        let expected = first
            .entry(case.dialect.version)
            .or_insert_with(|| seen.clone());
        assert_eq!(&seen, expected, "{case}");
    }
    for (version, structured_content, has_schema) in [
        ("2025-03-26", None, false),
        ("2025-11-25", Some(json!({"result": 3})), true),
        ("2026-07-28", Some(json!(3)), true),
    ] {
        let (result, tool) = &first[version];
        let expected = structured_content.map(Into::into);
        assert_eq!(result.structured_content, expected, "{version}");
        assert_eq!(tool.output_schema.is_some(), has_schema, "{version}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tap_records_both_directions_in_order() {
    let (near, far) = wire::memory();
    let (recording, record) = RecordingWire::new(near);
    tokio::spawn(server().serve(far));
    let client = Client::from_wire(recording)
        .protocol_version("2026-07-28")
        .await
        .unwrap();

    client.call_tool("echo", ()).await.unwrap();
    let frames = record.frames();
    record.clear();

    let directions: Vec<Direction> = frames.iter().map(|frame| frame.direction).collect();
    assert_eq!(directions, [Direction::Sent, Direction::Received]);
    assert_eq!(frames[0].json()["method"], "tools/call");
    assert!(frames[0].to_string().starts_with(r#"→ {"jsonrpc""#));
    assert!(frames[1].to_string().starts_with(r#"← {"jsonrpc""#));
    assert_eq!(record.frames(), []);
}

#[tokio::test(start_paused = true)]
async fn cutting_a_tap_fails_pending_calls() {
    let (near, _far) = wire::memory();
    let (recording, record) = RecordingWire::new(near);
    let client = Client::from_wire(recording)
        .protocol_version("2026-07-28")
        .await
        .unwrap();
    let waiting = tokio::spawn(client.call_tool("echo", ()).into_future());
    tokio::task::yield_now().await;

    record.cut();

    let error = waiting.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Transport { .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn an_unexpected_request_panics_with_its_method() {
    let (wire, mut script) = testing::scripted_peer();
    let client = Client::from_wire(wire)
        .protocol_version("2026-07-28")
        .await
        .unwrap();
    let _call = client.call_tool("echo", ()).start();

    let panicked = tokio::spawn(async move { script.expect("tools/list").await.id() });

    let panic = panicked.await.unwrap_err().into_panic();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(
        text.starts_with("expected the request `tools/list`, got"),
        "{text}"
    );
    assert!(text.contains("tools/call"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_scripted_client_sends_raw_text_and_receives_responses() {
    for dialect in Dialect::ALL {
        let mut client = testing::scripted_client(&server());
        client.perform_handshake(dialect, json!({})).await;

        client.send_text("not JSON");
        let error = client.next_message().await;
        client.request(dialect, 7, "tools/call", json!({"name": "echo"}));
        let answer = client.next_message().await;

        assert_eq!(error["error"]["code"], -32700, "{}", dialect.version);
        assert_eq!(answer["id"], 7);
        assert_eq!(answer["result"]["content"][0]["text"], "{}");
    }
}
