//! The tap on stdio.

use std::sync::{Arc, Mutex};

use bowline::Client;
use bowline::client::Host;
use bowline::types::ElicitResult;
use bowline::wire::Command;
use bowline_cli::SlowCallCounts;
use bowline_recording::{CancelForm, ChildExit, EndedBy, EventKind, ExchangeState, Side};
use serde_json::json;
use tokio::sync::watch;

use crate::support::{
    BOWLINE, Folder, LEGACY, MODERN, Program, Recorded, in_time, lines_of, wait_for_exit,
};

/// Starts the fixture behind a tap, and watches the counters that it reports on stderr.
fn tapped_fixture(file: &str) -> (Command, watch::Receiver<SlowCallCounts>) {
    let (sender, counts) = watch::channel(SlowCallCounts::default());
    let sender = Arc::new(Mutex::new(sender));
    let command = Command::new(BOWLINE)
        .args([
            "tap",
            "--record",
            file,
            "--",
            BOWLINE,
            "serve-demo",
            "--report",
        ])
        .on_stderr(move |line| {
            if let Some(line) = line.strip_prefix("counts ") {
                let counts = serde_json::from_str(line).unwrap();
                sender.lock().unwrap().send_replace(counts);
            }
        });
    (command, counts)
}

#[tokio::test]
async fn a_client_calls_through_the_tap_and_its_dropped_call_is_recorded_as_a_cancel() {
    in_time(async {
        for version in [MODERN, LEGACY] {
            let folder = Folder::new();
            let file = folder.file("a.jsonl");
            let (command, mut counts) = tapped_fixture(&file);
            let answer = |_| async { ElicitResult::accept(json!({"name": "Ada"})) };
            let client = Client::spawn(command)
                .protocol_version(version)
                .host(Host::new().elicitation(answer));
            let client = client.await.unwrap();

            let sum = client
                .call_tool("add", json!({"a": 1, "b": 2}))
                .await
                .unwrap();
            let asked = client.call_tool("ask", ()).await.unwrap();
            let progress = client
                .call_tool("progress", json!({"n": 3}))
                .on_progress(|_| {});
            progress.await.unwrap();
            let slow = client.call_tool("slow", json!({"seconds": 600})).start();
            let slow = tokio::spawn(slow);
            counts.wait_for(|counts| counts.active == 1).await.unwrap();
            slow.abort();
            counts
                .wait_for(|counts| counts.cancelled == 1)
                .await
                .unwrap();
            client.close().await.unwrap();

            assert_eq!(
                (sum.text(), asked.text()),
                ("3".into(), "accepted:Ada".into()),
                "{version}"
            );
            let recorded = Recorded::open(&file);
            recorded.assert_lawful();
            let slow = recorded.call("slow");
            let cancel = slow.cancel.as_ref().unwrap();
            assert_eq!((cancel.form, cancel.by), (CancelForm::Frame, Side::Client));
            assert_eq!(
                (slow.state, cancel.latency()),
                (ExchangeState::Cancelled, None)
            );
            assert_eq!(slow.version.as_ref().unwrap().as_str(), version);
            assert_eq!(recorded.call("progress").notification_count, 3);
            let ask = recorded.call("ask");
            match version {
                MODERN => assert_eq!(recorded.timeline.legs(ask.number).len(), 2),
                _ => assert_eq!(ask.questions.len(), 1),
            }
            let (lines, _) = lines_of(&["show", &file]).await;
            let arrow = lines.iter().find(|line| line.contains("✗→")).unwrap();
            assert!(
                arrow.contains("cancel by frame") && arrow.contains("silent afterwards"),
                "{arrow}"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn bytes_pass_unchanged_whatever_they_are() {
    in_time(async {
        let folder = Folder::new();
        let file = folder.file("a.jsonl");
        let mut tap = Program::start(&["tap", "--record", &file, "--", "cat"]);
        let mut sent = b"{\"jsonrpc\":\"2.0\"\r\n\n\n\xff\xfe\0 not json\n{}\n".to_vec();
        sent.extend(vec![b'x'; 3 * 1024 * 1024]);
        sent.extend(b"\nno line break at the end");

        let mut stdin = tap.stdin.take().unwrap();
        let to_send = sent.clone();
        let writing = tokio::spawn(async move {
            tokio::io::AsyncWriteExt::write_all(&mut stdin, &to_send)
                .await
                .unwrap();
        });
        let (received, code) = tap.finish().await;
        writing.await.unwrap();

        assert!(
            received == sent,
            "{} bytes of {}",
            received.len(),
            sent.len()
        );
        assert_eq!(code, Some(0));
    })
    .await;
}

#[tokio::test]
async fn a_part_of_a_line_passes_before_the_line_is_complete() {
    in_time(async {
        let mut tap = Program::start(&["tap", "--", "cat"]);
        for part in [&b"{\"json"[..], b"rpc\":", b"\"2.0\"}\n", b"\n"] {
            tap.write(part).await;
            assert_eq!(tap.read(part.len()).await, part);
        }
        assert_eq!(tap.finish().await, (Vec::new(), Some(0)));
    })
    .await;
}

#[tokio::test]
async fn the_end_of_stdin_signals_and_the_exit_code_are_passed_on() {
    in_time(async {
        for (script, signal, code) in [
            ("cat > /dev/null; exit 7", None, 7),
            ("kill -9 $$", None, 137),
            (
                "trap 'exit 9' TERM; echo ready; while :; do sleep 0.02; done",
                Some("TERM"),
                9,
            ),
            (
                "trap 'exit 8' INT; echo ready; while :; do sleep 0.02; done",
                Some("INT"),
                8,
            ),
            (
                "trap 'exit 6' HUP; echo ready; while :; do sleep 0.02; done",
                Some("HUP"),
                6,
            ),
        ] {
            let mut tap = Program::start(&["tap", "--", "sh", "-c", script]);
            if let Some(signal) = signal {
                assert_eq!(tap.read_line().await, "ready");
                tap.signal(signal).await;
            }
            let (_, exit) = tap.finish().await;
            assert_eq!(exit, Some(code), "{script}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_command_that_cannot_be_started_is_an_error() {
    in_time(async {
        let tap = Program::start(&["tap", "--", "/no/such/program"]);
        assert_eq!(tap.finish().await.1, Some(3));
    })
    .await;
}

#[tokio::test]
async fn a_killed_tap_leaves_no_command_behind() {
    in_time(async {
        let script = "trap '' TERM; echo $$; while :; do sleep 0.1; done";
        let mut tap = Program::start(&["tap", "--", "sh", "-c", script]);
        let pid = tap.read_line().await;

        tap.signal("KILL").await;

        wait_for_exit(&pid).await;
    })
    .await;
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_is_recorded_with_the_call_that_hung() {
    in_time(async {
        let folder = Folder::new();
        let file = folder.file("a.jsonl");
        let mut tap = Program::start(&[
            "tap",
            "--record",
            &file,
            "--",
            "sh",
            "-c",
            "read line; echo bye >&2; exit 3",
        ]);
        tap.write(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n")
            .await;
        // Stdin stays open: the server ends the connection.
        assert_eq!(tap.child.wait().await.unwrap().code(), Some(3));

        let recorded = Recorded::open(&file);
        assert_eq!(
            recorded.timeline.exchange(1).unwrap().state,
            ExchangeState::Hung
        );
        let close = &recorded.recording.events.last().unwrap().kind;
        let exit = Some(ChildExit::Code(3));
        assert_eq!(
            *close,
            EventKind::Close {
                by: EndedBy::Server,
                exit
            }
        );
        let stderr = EventKind::Stderr { text: "bye".into() };
        assert!(
            recorded
                .recording
                .events
                .iter()
                .any(|event| event.kind == stderr)
        );
    })
    .await;
}

#[tokio::test]
async fn messages_pass_although_the_view_is_not_read() {
    in_time(async {
        let mut tap = Program::start(&["tap", "--", "cat"]);
        let message = b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\",\"params\":{}}\n";
        let sent = message.repeat(20_000);
        let mut stdin = tap.stdin.take().unwrap();
        let to_send = sent.clone();
        let writing = tokio::spawn(async move {
            tokio::io::AsyncWriteExt::write_all(&mut stdin, &to_send)
                .await
                .unwrap();
        });
        // Stderr is a pipe that holds far less than what the view prints, and it is not read.
        let received = tap.read(sent.len()).await;
        writing.await.unwrap();

        assert!(received == sent);
        assert_eq!(tap.child.wait().await.unwrap().code(), Some(0));
    })
    .await;
}

#[tokio::test]
async fn messages_pass_although_nothing_can_be_recorded() {
    in_time(async {
        let mut tap = Program::start(&["tap", "--record", "/no/such/folder/a.jsonl", "--", "cat"]);
        tap.write(b"hello\n").await;

        assert_eq!(tap.read_line().await, "hello");
        let why = tap.stderr_line("bowline: failed to record to ").await;
        assert!(why.starts_with("/no/such/folder/a.jsonl: "), "{why}");
        assert_eq!(tap.finish().await.1, Some(0));
    })
    .await;
}

#[tokio::test]
async fn secrets_are_redacted_unless_asked_for() {
    in_time(async {
        let message = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"x\",\"arguments\":{\"api_key\":\"hunter2\"}}}\n";
        for (option, is_redacted) in [("--quiet", true), ("--no-redact", false)] {
            let folder = Folder::new();
            let file = folder.file("a.jsonl");
            let mut tap = Program::start(&["tap", option, "--record", &file, "--", "cat"]);
            tap.write(message.as_bytes()).await;
            let (received, _) = tap.finish().await;

            assert_eq!(received, message.as_bytes(), "what passes is not changed");
            let recorded = std::fs::read_to_string(&file).unwrap();
            assert_eq!(!recorded.contains("hunter2"), is_redacted, "{recorded}");
            assert!(recorded.contains("api_key"));
        }
    })
    .await;
}

#[tokio::test]
async fn the_view_shows_requests_answers_cancels_and_noise_on_stderr() {
    in_time(async {
        let script = "echo Starting; read a; read b; read c; echo '{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}'; cat";
        let mut tap = Program::start(&["tap", "--", "sh", "-c", script]);
        assert_eq!(tap.read_line().await, "Starting");
        for message in [
            r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"slow"}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2,"reason":"enough"}}"#,
        ] {
            tap.write(format!("{message}\n").as_bytes()).await;
        }
        tap.read_line().await;
        tap.stdin = None;
        let mut view = Vec::new();
        let stderr = tap.stderr.as_mut().unwrap();
        while let Some(line) = stderr.next_line().await.unwrap() {
            assert!(line.chars().count() <= 80, "{line}");
            view.push(line);
        }

        for (arrow, text) in [
            ("←", "‼ malformed"),
            ("→", "#1   ping"),
            ("→", "#2   tools/call slow"),
            ("✗→", "#2   cancel by frame: enough"),
            ("←", "#1   result"),
        ] {
            let is_it = |line: &&String| line.contains(arrow) && line.contains(text);
            assert!(view.iter().any(|line| is_it(&line)), "{text}: {view:#?}");
        }
    })
    .await;
}
