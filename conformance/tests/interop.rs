//! Tests the interop client against our own servers, as programs.

#![allow(clippy::panic, clippy::unwrap_used, reason = "test code")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

/// Runs the client, and returns its report.
fn check(mode: &str, target: &[&str]) -> (Output, Vec<String>) {
    let mut client = Command::new(env!("CARGO_BIN_EXE_interop-client"));
    let output = client.arg(mode).args(target).output().unwrap();
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    (output, report.lines().map(str::to_owned).collect())
}

/// A server process and its URL; killed on drop.
struct RunningServer(Child, String);

impl RunningServer {
    fn start(program: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let stdout = child.stdout.as_mut().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("READY ").unwrap().to_owned();
        Self(child, url)
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const SERVER: &str = env!("CARGO_BIN_EXE_interop-server");
const MODES: [&str; 6] = [
    "auto",
    "2026",
    "legacy",
    "legacy:2025-06-18",
    "legacy:2025-03-26",
    "legacy:2024-11-05",
];

#[test]
fn our_client_passes_all_checks_against_our_server() {
    let server = RunningServer::start(SERVER, &["--transport", "http"]);
    let targets = [vec![SERVER, "--transport", "stdio"], vec![&server.1]];

    for target in targets {
        for mode in MODES {
            let (output, report) = check(mode, &target);

            assert!(output.status.success(), "{mode} {target:?}: {report:#?}");
            let last = report.last().unwrap();
            assert!(last.ends_with(" passed, 0 failed"), "{mode}: {last}");
        }
    }
}

#[test]
fn our_client_passes_all_checks_of_tasks_against_our_server() {
    let server = RunningServer::start(SERVER, &["--transport", "http"]);
    let targets = [vec![SERVER, "--transport", "stdio"], vec![&server.1]];

    for target in targets {
        let (_, report) = check("2026", &[&["--tasks"], &target[..]].concat());

        let expected = [
            "ok open",
            "# 2026-07-28",
            "ok call",
            "ok attach",
            "ok ask",
            "ok errors",
            "ok cancel",
            "ok unknown",
            "ok close",
            "8 passed, 0 failed",
        ];
        assert_eq!(report, expected, "{target:?}");
    }
}

#[test]
fn a_server_without_tasks_fails_the_checks_of_tasks() {
    // In this version there is no extension.
    let target = ["--tasks", SERVER, "--transport", "stdio"];

    let (output, report) = check("legacy", &target);

    assert!(!output.status.success());
    assert_eq!(report[0], "ok open");
    for name in ["call", "attach", "ask", "errors", "cancel", "unknown"] {
        let failed = format!("FAILED {name}: ");
        let is_failed = report.iter().any(|line| line.starts_with(&failed));
        assert!(is_failed, "{name}: {report:#?}");
    }
}

#[test]
fn a_server_without_the_fixture_fails_its_checks() {
    let server = RunningServer::start(env!("CARGO_BIN_EXE_everything-server"), &[]);

    let (output, report) = check("2026", &[&server.1]);

    assert!(!output.status.success());
    assert!(report.iter().any(|line| line == "ok open"), "{report:#?}");
    for name in ["list", "call", "read", "ask", "abandon"] {
        let failed = format!("FAILED {name}: ");
        let is_failed = report.iter().any(|line| line.starts_with(&failed));
        assert!(is_failed, "{name}: {report:#?}");
    }
}

#[test]
fn a_server_that_fails_to_start_is_one_failure() {
    let (output, report) = check("legacy", &["no-such-program"]);

    assert!(!output.status.success());
    assert!(report[0].starts_with("FAILED open: "), "{report:?}");
    assert_eq!(report[1], "0 passed, 1 failed");
}

/// A tool case for a server without the fixture, with a slow tool.
const CASE: [&str; 7] = [
    "--tool",
    "add",
    r#"{"a": 2, "b": 40}"#,
    "42",
    "--slow",
    "slow",
    r#"{"seconds": 600}"#,
];

#[test]
fn any_server_can_be_checked_with_one_of_its_tools() {
    let server = RunningServer::start(SERVER, &["--transport", "http"]);
    let targets = [vec![SERVER, "--transport", "stdio"], vec![&server.1]];

    for target in targets {
        for case in [&CASE[..], &CASE[..4]] {
            let (output, report) = check("auto", &[case, &target].concat());

            assert!(output.status.success(), "{target:?}: {report:#?}");
            let expected = [
                "ok open",
                "# 2026-07-28",
                "ok list",
                "ok call",
                "ok abandon",
                "ok close",
                "5 passed, 0 failed",
            ];
            assert_eq!(report, expected, "{target:?}");
        }
    }
}

#[test]
fn an_unexpected_result_or_an_unknown_tool_fails() {
    let call = |tool, expected| {
        let call = ["--tool", tool, r#"{"a": 2, "b": 40}"#, expected];
        let server = [SERVER, "--transport", "stdio"];
        check("auto", &[&call[..], &server].concat()).1
    };
    let failed = |report: &[String], check: &str| {
        let failed = format!("FAILED {check}: ");
        report.iter().any(|line| line.starts_with(&failed))
    };

    let wrong = call("add", "41");
    let missing = call("subtract", "42");

    assert!(
        failed(&wrong, "call") && !failed(&wrong, "list"),
        "{wrong:#?}"
    );
    assert!(
        failed(&missing, "list") && failed(&missing, "call"),
        "{missing:#?}"
    );
}

#[test]
#[cfg(unix)]
fn a_server_that_does_not_exit_when_its_input_closes_fails() {
    let script = format!("{SERVER} --transport stdio; exec sleep 600");
    let target = ["sh", "-c", script.as_str()];

    let (output, report) = check("auto", &[&CASE[..], &target].concat());

    assert!(!output.status.success());
    let close = "FAILED close: the server does not exit when its input is closed";
    assert!(report.iter().any(|line| line == close), "{report:#?}");
}
