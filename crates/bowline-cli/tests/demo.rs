//! Runs the command `bowline` as a child process.

#![allow(clippy::unwrap_used, reason = "test helpers may panic")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn bowline(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bowline"));
    command.args(arguments).output().unwrap()
}

#[test]
fn every_dropped_call_stops_its_handler_and_leaks_nothing() {
    let output = bowline(&["demo", "--json"]);

    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let cells: Vec<(&str, &str, Option<&str>)> = (rows.iter())
        .map(|row| {
            let (transport, version) = (&row["transport"], &row["version"]);
            let received = row["wire"][0]["what"].as_str();
            (
                transport.as_str().unwrap(),
                version.as_str().unwrap(),
                received,
            )
        })
        .collect();
    assert_eq!(
        cells,
        [
            ("in process", "2026-07-28", None),
            ("in process", "2025-11-25", None),
            ("memory", "2026-07-28", Some("notifications/cancelled")),
            ("memory", "2025-11-25", Some("notifications/cancelled")),
            ("stdio", "2026-07-28", Some("notifications/cancelled")),
            ("stdio", "2025-11-25", Some("notifications/cancelled")),
            ("http", "2026-07-28", Some("connection closed")),
            ("http", "2025-11-25", Some("POST notifications/cancelled")),
            ("http/2", "2026-07-28", Some("stream reset")),
            ("http/2", "2025-11-25", Some("POST notifications/cancelled")),
        ]
    );
    for row in rows {
        let calls = row["calls"].as_u64().unwrap();
        assert!(calls > 0, "{row}");
        assert_eq!(row["stopped"], calls, "{row}");
        let received = row["wire"].as_array().unwrap();
        assert!(received.len() <= 1, "{row}");
        assert!(
            received.iter().all(|signal| signal["times"] == calls),
            "{row}"
        );
        let left = row["left"].as_object().unwrap();
        assert_eq!(left.len(), 5, "{row}");
        assert!(left.values().all(|count| count == 0), "{row}");
        assert!(
            row["microseconds"]["median"].as_f64().unwrap() > 0.0,
            "{row}"
        );
        assert!(row["failure"].is_null(), "{row}");
    }
    assert_eq!(report["is_clean"], true, "{report}");
    assert!(output.status.success());
}

#[test]
fn output_without_a_terminal_has_no_escape_codes_and_ends_with_the_verdict() {
    for arguments in [&["demo"][..], &["demo", "--plain"]] {
        let output = bowline(arguments);

        assert!(!output.stdout.contains(&0x1b));
        assert!(!output.stdout.contains(&b'\r'));
        let text = String::from_utf8(output.stdout).unwrap();
        let verdict = text.lines().last().unwrap();
        assert_eq!(
            verdict, "200 calls were dropped, 200 handlers stopped, and no resources leaked.",
            "{text}"
        );
    }
}

#[test]
fn an_http_server_prints_its_url() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_bowline"))
        .args(["serve-demo", "--transport", "http", "--port", "0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();

    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();

    assert!(line.starts_with("READY http://127.0.0.1:"), "{line}");
    assert!(line.ends_with("/mcp\n"), "{line}");
}

#[test]
fn unknown_commands_are_rejected_with_the_command_for_help() {
    let output = bowline(&["dance"]);

    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("try: bowline --help"));
}
