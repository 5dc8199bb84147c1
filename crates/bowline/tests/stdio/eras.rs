//! Which era a child is spoken to in, without being told.

use std::time::Duration;

use bowline::Client;
use bowline::client::Connect;

use crate::programs;

pub(crate) async fn a_modern_server_is_spoken_to_in_the_modern_way() {
    let client = Client::spawn(programs::command("server")).await.unwrap();

    assert_eq!(client.dialect().version, "2026-07-28");
    assert_eq!(client.call_tool("echo", ()).await.unwrap().text(), "{}");
    client.close().await.unwrap();
}

pub(crate) async fn a_server_that_answers_the_probe_with_an_odd_error_is_legacy() {
    assert_spoken("2025-06-18", Client::spawn(programs::command("odd"))).await;
}

pub(crate) async fn a_server_that_is_silent_at_the_probe_is_legacy() {
    assert_spoken("2025-06-18", impatient("silent")).await;
}

pub(crate) async fn a_server_that_exits_at_the_probe_is_started_again() {
    assert_spoken("2025-06-18", Client::spawn(programs::command("leaves"))).await;
}

pub(crate) async fn a_server_that_answers_the_probe_late_is_modern_after_all() {
    assert_spoken("2026-07-28", impatient("late")).await;
}

pub(crate) async fn a_server_that_refuses_the_handshake_by_naming_modern_versions_is_modern() {
    assert_spoken("2026-07-28", impatient("refuses")).await;
}

pub(crate) async fn a_child_serves_every_version() {
    for version in [
        "2026-07-28",
        "2025-11-25",
        "2025-06-18",
        "2025-03-26",
        "2024-11-05",
    ] {
        let connect = Client::spawn(programs::command("server")).speaking(version);
        let client = connect.await.unwrap();

        let reply = client
            .call_tool("echo", serde_json::json!({"a": 1}))
            .await
            .unwrap();

        assert_eq!(client.dialect().version, version);
        assert_eq!(reply.text(), r#"{"a":1}"#);
        client.close().await.unwrap();
    }
}

/// A connection that does not wait long for an answer to the probe.
fn impatient(program: &str) -> Connect {
    Client::spawn(programs::command(program)).probe_timeout(Duration::from_millis(300))
}

async fn assert_spoken(version: &str, connect: Connect) {
    let client = connect.await.unwrap();

    let reply = client.call_tool("anything", ()).await.unwrap();

    assert_eq!(client.dialect().version, version);
    assert_eq!(reply.text(), "done");
    client.close().await.unwrap();
}
