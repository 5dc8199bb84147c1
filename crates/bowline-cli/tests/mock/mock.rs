//! Clients of both eras, with `bowline mock` over stdio and HTTP.

use std::sync::{Arc, Mutex};

use bowline::wire::Command;
use bowline::{Client, Error};
use serde_json::json;

use crate::support::{
    BOWLINE, Recorded, Running, VERSIONS, in_time, output_of, use_fixture, with_user,
};

fn mock_command(file: &str, options: &[&str]) -> Command {
    Command::new(BOWLINE).args(["mock", file]).args(options)
}

#[tokio::test]
async fn a_recording_is_served_over_stdio_and_http_to_clients_of_both_eras() {
    in_time(async {
        for recorded_version in VERSIONS {
            let recorded = Recorded::new(recorded_version).await;
            let running = Running::start(&["mock", &recorded.file, "--http", "0"]).await;
            for version in VERSIONS {
                let command = mock_command(&recorded.file, &[]);
                for builder in [Client::spawn(command), Client::connect(&running.url)] {
                    let client = with_user(builder.protocol_version(version)).await.unwrap();
                    use_fixture(&client).await;
                    assert_eq!(client.dialect().version, version);
                    client.close().await.unwrap();
                }
            }
        }
    })
    .await;
}

#[tokio::test]
async fn what_the_recording_does_not_have_is_reported_on_stderr() {
    in_time(async {
        let recorded = Recorded::new("2026-07-28").await;
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = lines.clone();
        let command = mock_command(&recorded.file, &[])
            .on_stderr(move |line| kept.lock().unwrap().push(line.to_owned()));

        let client = Client::spawn(command).await.unwrap();
        let Err(Error::Rpc(error)) = client.call_tool("add", json!({"a": 1, "b": 40})).await else {
            panic!("expected a JSON-RPC error");
        };
        client.close().await.unwrap();

        assert!(
            error.message.ends_with("differs in arguments.a"),
            "{}",
            error.message
        );
        let lines = lines.lock().unwrap();
        let expected = format!("bowline: {}", error.message);
        assert!(lines.contains(&expected), "{lines:?}");
    })
    .await;
}

#[tokio::test]
async fn the_versions_can_be_restricted() {
    in_time(async {
        let recorded = Recorded::new("2026-07-28").await;
        let options = ["--protocol-version", "2025-11-25"];

        let client = Client::spawn(mock_command(&recorded.file, &options))
            .await
            .unwrap();

        assert_eq!(client.dialect().version, "2025-11-25");
        client.close().await.unwrap();
        let wrong = ["mock", &recorded.file, "--protocol-version", "2030-01-01"];
        let (_, stderr, code) = output_of(&wrong).await;
        assert_eq!(code, 2);
        assert!(
            stderr.contains("unknown protocol version `2030-01-01`"),
            "{stderr}"
        );
    })
    .await;
}

#[tokio::test]
async fn faults_are_injected_over_stdio_and_http() {
    in_time(async {
        let recorded = Recorded::new("2025-11-25").await;
        let fail = ["--fail", "tools/call:-32000"];
        let failing = Client::spawn(mock_command(&recorded.file, &fail))
            .await
            .unwrap();
        let echo = failing.call_tool("echo", json!({"text": "one"})).await;
        assert!(matches!(echo, Err(Error::Rpc(error)) if error.code.0 == -32000));
        failing.close().await.unwrap();

        // The answer to the handshake, and one more.
        let drop_after = ["--drop-after", "2"];
        let command = mock_command(&recorded.file, &drop_after);
        let dropping = Client::spawn(command)
            .protocol_version("2025-11-25")
            .await
            .unwrap();
        let echo = dropping
            .call_tool("echo", json!({"text": "one"}))
            .await
            .unwrap();
        assert_eq!(echo.text(), "one");
        let lost = dropping
            .call_tool("echo", json!({"text": "two"}))
            .await
            .unwrap_err();
        assert!(lost.is_disconnected(), "{lost}");

        let arguments = [
            "mock",
            &recorded.file,
            "--http",
            "0",
            "--drop-after",
            "300B",
        ];
        let running = Running::start(&arguments).await;
        let cut = Client::connect(&running.url)
            .protocol_version("2026-07-28")
            .await
            .unwrap();
        let listed = cut.request_raw("tools/list", ()).await;
        assert!(matches!(listed, Err(error) if !matches!(error, Error::Rpc(_))));
    })
    .await;
}

#[tokio::test]
async fn a_recording_is_a_target_of_other_commands() {
    in_time(async {
        let recorded = Recorded::new("2026-07-28").await;

        let (stdout, stderr, code) = output_of(&["ls", &recorded.file]).await;

        assert_eq!(code, 0, "{stderr}");
        assert!(
            stdout.contains("echo") && stdout.contains("add"),
            "{stdout}"
        );
    })
    .await;
}

#[tokio::test]
async fn a_file_that_is_not_a_recording_is_refused() {
    in_time(async {
        for file in ["Cargo.toml", "no/such/file"] {
            let (stdout, stderr, code) = output_of(&["mock", file]).await;

            assert_eq!((stdout.as_str(), code), ("", 2), "{stderr}");
            assert!(
                stderr.contains(file) && stderr.contains("hint: "),
                "{stderr}"
            );
        }
    })
    .await;
}
