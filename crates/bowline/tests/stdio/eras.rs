//! Which era a child is spoken to in, without being told.

use std::time::Duration;

use bowline::client::Connect;
use bowline::{Client, Error};
use tokio::sync::mpsc;

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

pub(crate) async fn a_server_that_answers_nothing_after_the_probe_is_started_again() {
    let (connect, heard) = hearing("stuck");

    assert_spoken("2025-06-18", connect.respawn_after(SHORT)).await;

    assert_heard(heard, &RESPAWNED).await;
}

pub(crate) async fn a_server_that_exits_at_the_handshake_after_the_probe_is_started_again() {
    let (connect, heard) = hearing("stuck_leaves");

    assert_spoken("2025-06-18", connect).await;

    assert_heard(heard, &RESPAWNED).await;
}

pub(crate) async fn a_server_that_never_answers_is_started_again_once() {
    let (connect, heard) = hearing("mute");

    let error = connect.respawn_after(SHORT).timeout(SHORT).await;

    let error = error.unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
    assert_heard(heard, &["server/discover", "initialize", "initialize"]).await;
}

pub(crate) async fn a_server_is_not_started_again_where_that_is_switched_off() {
    let (connect, heard) = hearing("stuck");
    let connect = connect.respawn_after(Duration::MAX).timeout(SHORT);

    let error = connect.await.unwrap_err();

    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
    assert_heard(heard, &["server/discover", "initialize"]).await;
}

pub(crate) async fn a_server_that_answers_the_probe_late_is_modern_after_all() {
    assert_spoken("2026-07-28", impatient("late")).await;
}

pub(crate) async fn a_server_that_refuses_the_handshake_by_naming_modern_versions_is_modern() {
    assert_spoken("2026-07-28", impatient("refuses")).await;
}

pub(crate) async fn a_client_of_modern_versions_only_asks_an_older_child_and_nothing_else() {
    for program in ["odd", "silent", "leaves"] {
        let error = impatient(program).speaking("2026-07-28").await.unwrap_err();
        assert!(
            matches!(error, Error::Protocol { .. }),
            "{program}: {error:?}"
        );
    }
    let (connect, heard) = hearing("mute");

    connect.speaking("2026-07-28").await.unwrap_err();

    assert_heard(heard, &["server/discover"]).await;
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
    Client::spawn(programs::command(program)).probe_timeout(SHORT)
}

/// The same, and the lines that the program writes to stderr until its last process has ended: the methods that it
/// hears.
fn hearing(program: &str) -> (Connect, mpsc::UnboundedReceiver<String>) {
    let (sender, heard) = mpsc::unbounded_channel();
    let command = programs::command(program)
        .on_stderr(move |line| sender.send(line.to_owned()).unwrap_or_default());
    (Client::spawn(command).probe_timeout(SHORT), heard)
}

async fn assert_heard(mut heard: mpsc::UnboundedReceiver<String>, expected: &[&str]) {
    let mut methods = Vec::new();
    while let Some(method) = heard.recv().await {
        methods.push(method);
    }
    assert_eq!(methods, expected);
}

async fn assert_spoken(version: &str, connect: Connect) {
    let client = connect.await.unwrap();

    let reply = client.call_tool("anything", ()).await.unwrap();

    assert_eq!(client.dialect().version, version);
    assert_eq!(reply.text(), "done");
    client.close().await.unwrap();
}

/// What a server hears that is started again: the first process two requests, the second one everything else.
const RESPAWNED: [&str; 5] = [
    "server/discover",
    "initialize",
    "initialize",
    "notifications/initialized",
    "tools/call",
];
const SHORT: Duration = Duration::from_millis(300);
