//! Listing and calling a tool in every era, over a wire and in process.

use bowline::{CallToolResult, Client, Server, Tool, wire};
use serde_json::json;

fn server() -> Server {
    let echo = Tool::raw("echo", json!({"type": "object"}), async |arguments, cx| {
        cx.progress(1.0);
        cx.progress(2.0);
        Ok(CallToolResult::text(arguments.to_string()))
    });
    Server::new("first", "1.0.0").tool(echo)
}

#[tokio::test(start_paused = true)]
async fn a_tool_is_listed_and_called_over_a_memory_wire_in_every_era() {
    for version in [
        "2026-07-28",
        "2025-11-25",
        "2025-06-18",
        "2025-03-26",
        "2024-11-05",
        "auto",
    ] {
        let (near, far) = wire::memory();
        let serving = tokio::spawn(server().serve(far));
        let connect = Client::from_wire(near);
        let connect = if version == "auto" {
            connect
        } else {
            connect.protocol_version(version)
        };
        let client = connect.await.unwrap();

        let tools = client.list_tools().await.unwrap();
        let (sender, mut progress) = tokio::sync::mpsc::unbounded_channel();
        let reply = client
            .call_tool("echo", json!({"a": 1}))
            .on_progress(move |report| sender.send(report.progress).unwrap())
            .await
            .unwrap();

        assert_eq!(tools[0].name, "echo");
        assert_eq!(reply.text(), r#"{"a":1}"#);
        assert_eq!(
            (progress.try_recv(), progress.try_recv()),
            (Ok(1.0), Ok(2.0))
        );
        client.close().await.unwrap();
        serving.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_is_listed_and_called_in_process() {
    let client = Client::in_process(&server()).await.unwrap();

    let reply = client.call_tool("echo", json!({"a": 1})).await.unwrap();

    assert_eq!(client.list_tools().await.unwrap()[0].name, "echo");
    assert_eq!(reply.text(), r#"{"a":1}"#);
}

#[tokio::test(start_paused = true)]
async fn after_close_new_in_process_calls_fail_and_running_ones_complete() {
    let client = Client::in_process(&server()).await.unwrap();
    let under_way = client.call_tool("echo", json!({"a": 1})).start();
    let other = client.clone();

    client.close().await.unwrap();
    let after = other.call_tool("echo", json!({"a": 2})).await;

    assert!(matches!(after, Err(bowline::Error::Closed)));
    assert_eq!(under_way.await.unwrap().text(), r#"{"a":1}"#);
}
