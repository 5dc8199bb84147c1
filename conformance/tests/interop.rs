//! Our interop client against our own servers, as programs: what others are checked with must itself hold.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "what tests share is part of the tests"
)]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

/// Runs the client, and gives what it reports.
fn check(mode: &str, target: &[&str]) -> (Output, Vec<String>) {
    let mut client = Command::new(env!("CARGO_BIN_EXE_interop-client"));
    let output = client.arg(mode).args(target).output().unwrap();
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    (output, report.lines().map(str::to_owned).collect())
}

/// A server that is reached by its URL; dropping it ends it.
struct Serving(Child, String);

impl Serving {
    fn start(program: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = String::new();
        let stdout = child.stdout.as_mut().unwrap();
        BufReader::new(stdout).read_line(&mut said).unwrap();
        let url = said.trim().strip_prefix("READY ").unwrap().to_owned();
        Self(child, url)
    }
}

impl Drop for Serving {
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
fn our_client_has_nothing_to_find_fault_with_in_our_server() {
    let serving = Serving::start(SERVER, &["--transport", "http"]);
    let targets = [vec![SERVER, "--transport", "stdio"], vec![&serving.1]];

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
fn a_server_that_does_not_offer_the_fixture_fails_check_by_check() {
    let serving = Serving::start(env!("CARGO_BIN_EXE_everything-server"), &[]);

    let (output, report) = check("2026", &[&serving.1]);

    assert!(!output.status.success());
    assert!(report.iter().any(|line| line == "ok open"), "{report:#?}");
    for name in ["list", "call", "read", "ask", "abandon"] {
        let failed = format!("FAILED {name}: ");
        let is_failed = report.iter().any(|line| line.starts_with(&failed));
        assert!(is_failed, "{name}: {report:#?}");
    }
}

#[test]
fn a_server_that_cannot_be_started_is_one_failure() {
    let (output, report) = check("legacy", &["no-such-program"]);

    assert!(!output.status.success());
    assert!(report[0].starts_with("FAILED open: "), "{report:?}");
    assert_eq!(report[1], "0 passed, 1 failed");
}
