//! Detection of the era of a child.

use std::time::Duration;

use bowline::client::ClientBuilder;
use bowline::{Client, Error};
use tokio::sync::mpsc;

use crate::programs;

pub(crate) async fn a_modern_server_is_detected() {
    let client = Client::spawn(programs::command("server")).await.unwrap();

    assert_eq!(client.dialect().version, "2026-07-28");
    assert_eq!(client.call_tool("echo", ()).await.unwrap().text(), "{}");
    client.close().await.unwrap();
}

pub(crate) async fn a_server_that_answers_the_probe_with_an_unknown_error_is_legacy() {
    assert_version(
        "2025-06-18",
        Client::spawn(programs::command("unknown_error")),
    )
    .await;
}

pub(crate) async fn a_server_that_does_not_answer_the_probe_is_legacy() {
    assert_version("2025-06-18", with_short_probe_timeout("ignores_probe")).await;
}

pub(crate) async fn a_server_that_exits_at_the_probe_is_restarted() {
    assert_version(
        "2025-06-18",
        Client::spawn(programs::command("exits_at_probe")),
    )
    .await;
}

pub(crate) async fn a_server_that_answers_nothing_after_the_probe_is_restarted() {
    let (connect, received) = with_received_methods("hangs_after_probe");

    assert_version("2025-06-18", connect.respawn_after(SHORT)).await;

    assert_received(received, &RESPAWNED).await;
}

pub(crate) async fn a_server_that_exits_at_the_handshake_after_the_probe_is_restarted() {
    let (connect, received) = with_received_methods("exits_at_handshake");

    assert_version("2025-06-18", connect).await;

    assert_received(received, &RESPAWNED).await;
}

pub(crate) async fn a_server_that_never_answers_is_restarted_once() {
    let (connect, received) = with_received_methods("never_answers");

    // The first process must have read by then, on a busy machine too.
    let limit = Duration::from_secs(3);
    let error = connect.respawn_after(SHORT).idle_timeout(limit).await;

    let error = error.unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
    assert_received(received, &["server/discover", "initialize", "initialize"]).await;
}

pub(crate) async fn a_server_is_not_restarted_if_that_is_disabled() {
    let (connect, received) = with_received_methods("hangs_after_probe");
    let connect = connect.respawn_after(Duration::MAX).idle_timeout(SHORT);

    let error = connect.await.unwrap_err();

    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
    assert_received(received, &["server/discover", "initialize"]).await;
}

pub(crate) async fn a_server_that_answers_the_probe_late_is_modern() {
    assert_version("2026-07-28", with_short_probe_timeout("answers_probe_late")).await;
}

pub(crate) async fn a_server_that_rejects_the_handshake_with_modern_versions_is_modern() {
    assert_version("2026-07-28", with_short_probe_timeout("rejects_handshake")).await;
}

pub(crate) async fn a_modern_only_client_probes_a_legacy_child_and_sends_nothing_else() {
    for program in ["unknown_error", "exits_at_probe"] {
        let error = with_short_probe_timeout(program)
            .protocol_version("2026-07-28")
            .await
            .unwrap_err();
        assert!(
            matches!(error, Error::Protocol { .. }),
            "{program}: {error:?}"
        );
    }
    let (connect, received) = with_received_methods("never_answers");
    let connect = connect.protocol_version("2026-07-28");

    let error = connect.connect_timeout(2 * SHORT).await.unwrap_err();

    assert!(error.to_string().contains("did not answer"), "{error:?}");
    assert_received(received, &["server/discover"]).await;
}

pub(crate) async fn a_modern_only_client_waits_for_a_slow_child() {
    let script = r#"sleep 0.6; exec "$0""#;
    let connect = with_short_probe_timeout_and_script("server", script);

    let client = connect.protocol_version("2026-07-28").await.unwrap();

    assert_eq!(client.call_tool("echo", ()).await.unwrap().text(), "{}");
    client.close().await.unwrap();
}

/// Starting takes longer than the probe timeout and `respawn_after` together.
pub(crate) async fn a_server_that_is_slow_to_start_is_started_once() {
    for (program, tool) in [("server", "echo"), ("ignores_probe", "anything")] {
        let script = r#"echo started >&2; sleep 2; exec "$0""#;
        let (sender, mut stderr) = mpsc::unbounded_channel();
        let command = programs::script(program, script)
            .on_stderr(move |line| sender.send(line.to_owned()).unwrap_or_default());
        let connect = Client::spawn(command)
            .probe_timeout(SHORT)
            .respawn_after(5 * SHORT);

        let client = connect.await.unwrap();

        assert!(client.call_tool(tool, ()).await.is_ok());
        client.close().await.unwrap();
        assert_eq!(stderr.recv().await.as_deref(), Some("started"));
        if cfg!(target_os = "linux") {
            assert_eq!(stderr.recv().await, None, "{program} was started twice");
        }
    }
}

pub(crate) async fn a_child_serves_every_version() {
    for version in [
        "2026-07-28",
        "2025-11-25",
        "2025-06-18",
        "2025-03-26",
        "2024-11-05",
    ] {
        let connect = Client::spawn(programs::command("server")).protocol_version(version);
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

/// A connection with a short probe timeout.
fn with_short_probe_timeout(program: &str) -> ClientBuilder {
    Client::spawn(programs::command(program)).probe_timeout(SHORT)
}

/// The same, for a program that a script starts.
fn with_short_probe_timeout_and_script(program: &str, script: &str) -> ClientBuilder {
    Client::spawn(programs::script(program, script)).probe_timeout(SHORT)
}

/// A connection with a short probe timeout, and the lines that the program writes to stderr until its last process has
/// exited: the methods that it received.
fn with_received_methods(program: &str) -> (ClientBuilder, mpsc::UnboundedReceiver<String>) {
    let (sender, received) = mpsc::unbounded_channel();
    let command = programs::command(program)
        .on_stderr(move |line| sender.send(line.to_owned()).unwrap_or_default());
    (Client::spawn(command).probe_timeout(SHORT), received)
}

async fn assert_received(mut received: mpsc::UnboundedReceiver<String>, expected: &[&str]) {
    let mut methods = Vec::new();
    while let Some(method) = received.recv().await {
        methods.push(method);
    }
    assert_eq!(methods, expected);
}

async fn assert_version(version: &str, connect: ClientBuilder) {
    let client = connect.await.unwrap();

    let reply = client.call_tool("anything", ()).await.unwrap();

    assert_eq!(client.dialect().version, version);
    assert_eq!(reply.text(), "done");
    client.close().await.unwrap();
}

/// The methods that a restarted server receives: two in the first process, the others in the second.
const RESPAWNED: [&str; 5] = [
    "server/discover",
    "initialize",
    "initialize",
    "notifications/initialized",
    "tools/call",
];
const SHORT: Duration = Duration::from_millis(300);
