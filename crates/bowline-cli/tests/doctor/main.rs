//! `bowline doctor` as a process, against servers with one planted fault each, and against healthy ones.
//!
//! No timing decides: where a fault is a server that stays silent, the doctor is told to wait only briefly, and
//! everywhere else far longer than an answer takes on a busy machine.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may panic, too"
)]

mod config;
mod faults;
mod healthy;
mod http_server;
mod shell_server;
mod tls_server;

use std::collections::BTreeMap;
use std::process::{Command, Output};

use serde_json::Value;

pub(crate) const BOWLINE: &str = env!("CARGO_BIN_EXE_bowline");

/// What the doctor found: the severity of each code.
#[derive(Debug)]
pub(crate) struct Examined {
    pub(crate) findings: BTreeMap<String, String>,
    pub(crate) report: Value,
    pub(crate) exit_code: i32,
}

impl Examined {
    /// The codes of errors and warnings. What is only worth knowing is left out.
    pub(crate) fn faults(&self) -> Vec<&str> {
        let faults = self
            .findings
            .iter()
            .filter(|(_, severity)| *severity != "note");
        faults.map(|(code, _)| code.as_str()).collect()
    }

    /// The value of a line of the report.
    pub(crate) fn fact(&self, name: &str) -> Option<&str> {
        let facts = self.report["facts"].as_array().unwrap();
        facts.iter().find(|it| it["name"] == name)?["value"].as_str()
    }
}

/// Runs the doctor with these arguments, after those with which no wait is too short.
pub(crate) fn doctor(arguments: &[&str]) -> Examined {
    doctor_with(arguments, &[])
}

/// Runs the doctor with these arguments and environment variables.
pub(crate) fn doctor_with(arguments: &[&str], variables: &[(&str, &str)]) -> Examined {
    let mut words = vec!["doctor", "--json", "--max-time", "5m"];
    let patient = [
        "--timeout",
        "--stream-wait",
        "--exit-wait",
        "--slow-start",
        "--cancel-wait",
    ];
    for option in patient {
        if !arguments.contains(&option) {
            words.extend([option, "60s"]);
        }
    }
    words.extend(arguments);
    let output = bowline(&words, variables);
    let stdout = String::from_utf8(output.stdout).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let report: Value =
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}"));
    let findings = report["findings"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    Examined {
        findings: findings
            .map(|it| (text(&it["code"]), text(&it["severity"])))
            .collect(),
        exit_code: output.status.code().unwrap(),
        report,
    }
}

pub(crate) fn bowline(words: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(BOWLINE);
    // A proxy of the machine must not matter.
    for proxy in [
        "HTTP_PROXY",
        "http_proxy",
        "HTTPS_PROXY",
        "https_proxy",
        "ALL_PROXY",
        "all_proxy",
    ] {
        command.env_remove(proxy);
    }
    command.args(words).envs(variables.iter().copied());
    command.output().unwrap()
}

/// Fails with the whole report if the faults are others than these.
#[track_caller]
pub(crate) fn assert_faults(examined: &Examined, expected: &[&str]) {
    assert_eq!(examined.faults(), expected, "{:#}", examined.report);
    let has_errors = examined
        .findings
        .values()
        .any(|severity| severity == "error");
    assert_eq!(examined.exit_code, if has_errors { 6 } else { 0 });
}
