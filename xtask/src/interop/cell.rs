//! `Cell`: the results of all checks of one client against one server, over one transport, in one mode.

use std::fmt;
use std::io;
use std::process::Command;
use std::time::Duration;

use super::known_failures::{CellKey, KnownFailures};
use crate::process::{self, ExitKind};
use crate::unsteady;

/// The results of one peer over one transport in one mode.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) peer: &'static str,
    pub(crate) side: Side,
    pub(crate) transport: Transport,
    pub(crate) mode: String,
    pub(crate) version: String,
    pub(crate) checks: &'static [&'static str],
    /// One result per check.
    pub(crate) results: Vec<CheckResult>,
}

/// The parameters of a cell that is to be run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CellSpec<'a> {
    pub(crate) peer: &'static str,
    pub(crate) side: Side,
    pub(crate) transport: Transport,
    pub(crate) mode: &'a str,
    /// The checks that the client runs.
    pub(crate) checks: &'static [&'static str],
    /// The protocol version that must be negotiated; any if `None`.
    pub(crate) version: Option<&'a str>,
}

/// The role of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Stdio,
    Http,
    /// The HTTP+SSE transport of 2024-11-05, with two endpoints.
    HttpSse,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CheckResult {
    Ok,
    /// The check does not apply to the version.
    Skipped(String),
    /// The check did not run, because the connection failed.
    Unreached,
    /// The check fails, and is listed as a known failure.
    KnownFailure,
    /// The check fails.
    Failed(String),
    /// The check passes although it is listed as a known failure.
    Unexpected,
}

impl CellSpec<'_> {
    /// Runs `client`, whose arguments contain the target; once more if its results are not as expected.
    pub(crate) fn run(
        self,
        client: &mut Command,
        known_failures: &KnownFailures,
    ) -> io::Result<Cell> {
        let first = self.run_once(client, known_failures)?;
        if first.is_as_expected() {
            return Ok(first);
        }
        println!("{first}\n--- again:");
        let second = self.run_once(client, known_failures)?;
        if second.is_as_expected() {
            let failed = first
                .checks()
                .filter(|(_, result)| !result.is_as_expected());
            let failed: Vec<_> = failed.map(|(check, _)| check).collect();
            let (side, transport) = (self.side.name(), self.transport.name());
            let cell = format!("{} {side} {transport} {}", self.peer, self.mode);
            unsteady::record(format!("{} ({cell})", failed.join(", ")));
        }
        Ok(second)
    }

    fn run_once(self, client: &mut Command, known_failures: &KnownFailures) -> io::Result<Cell> {
        let captured = process::capture(client, LIMIT)?;
        let mut report = ClientReport::read(&captured.output);
        report.check_end(captured.end, self.version);
        let key = CellKey {
            peer: self.peer,
            side: self.side,
            transport: self.transport,
            mode: self.mode,
        };
        let results = self.checks.iter().map(|check| {
            let is_listed = known_failures.names(key, check);
            let help = report.help(check);
            if let Some(how) = help.filter(|how| !known_failures.lists_help(key, check, how)) {
                return CheckResult::Failed(format!("passes with help only: our program {how}"));
            }
            match (report.result(check), is_listed) {
                (CheckResult::Failed(_), true) => CheckResult::KnownFailure,
                (CheckResult::Ok, true) => CheckResult::Unexpected,
                (result, _) => result,
            }
        });
        Ok(Cell {
            peer: self.peer,
            side: self.side,
            transport: self.transport,
            mode: self.mode.to_owned(),
            version: report.version.clone(),
            checks: self.checks,
            results: results.collect(),
        })
    }
}

impl Cell {
    /// Iterates over the checks and their results.
    pub(crate) fn checks(&self) -> impl Iterator<Item = (&'static str, &CheckResult)> {
        self.checks.iter().copied().zip(&self.results)
    }

    pub(crate) fn key(&self) -> CellKey<'_> {
        CellKey {
            peer: self.peer,
            side: self.side,
            transport: self.transport,
            mode: &self.mode,
        }
    }

    pub(crate) fn is_as_expected(&self) -> bool {
        self.results.iter().all(CheckResult::is_as_expected)
    }

    /// Returns how many checks passed, and how many did not or did not apply.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let results = self.results.iter();
        let passed = results.filter(|result| **result == CheckResult::Ok).count();
        (passed, self.results.len() - passed)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { peer, mode, .. } = self;
        let count = |wanted: fn(&CheckResult) -> bool| {
            let results = self.results.iter();
            results.filter(|result| wanted(result)).count()
        };
        let passed = count(|result| *result == CheckResult::Ok);
        let failed = count(|result| !result.is_as_expected());
        let (side, transport) = (self.side.name(), self.transport.name());
        write!(
            f,
            "{peer:16} {side} {transport:8} {mode:17} {passed:2} ok, {failed} failed"
        )?;
        for (check, result) in self.checks() {
            match result {
                CheckResult::Failed(why) => write!(f, "\n  FAILED {check}: {why}")?,
                CheckResult::Unexpected => {
                    write!(f, "\n  PASSED {check}, which is listed as a known failure")?
                }
                CheckResult::Ok
                | CheckResult::Skipped(_)
                | CheckResult::Unreached
                | CheckResult::KnownFailure => {}
            }
        }
        Ok(())
    }
}

impl Side {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

impl Transport {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::Http => "http",
            Self::HttpSse => "http+sse",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        let mut all = [Self::Stdio, Self::Http, Self::HttpSse].into_iter();
        all.find(|transport| transport.name() == name)
    }
}

impl CheckResult {
    pub(crate) fn is_as_expected(&self) -> bool {
        match self {
            Self::Ok | Self::Skipped(_) | Self::Unreached | Self::KnownFailure => true,
            Self::Failed(_) | Self::Unexpected => false,
        }
    }
}

/// The output of a client.
#[derive(Debug, Default)]
struct ClientReport {
    version: String,
    lines: Vec<(String, CheckResult)>,
    /// The checks that pass because the client works around a failure, and how.
    helped: Vec<(String, String)>,
    /// The counts of passed and failed checks in the last line.
    counts: Option<(usize, usize)>,
    /// Why the report is invalid, if it is.
    error: Option<String>,
}

impl ClientReport {
    fn read(output: &str) -> Self {
        let mut report = Self::default();
        for line in output.lines() {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let (name, why) = rest.split_once(": ").unwrap_or((rest, ""));
            let result = match word {
                "ok" => CheckResult::Ok,
                "skipped" => CheckResult::Skipped(why.to_owned()),
                "FAILED" => CheckResult::Failed(why.to_owned()),
                "#" => {
                    report.version = rest.to_owned();
                    continue;
                }
                _ => {
                    report.counts = counts(line).or(report.counts);
                    continue;
                }
            };
            if result == CheckResult::Ok && !why.is_empty() {
                report.helped.push((name.to_owned(), why.to_owned()));
            }
            report.lines.push((name.to_owned(), result));
        }
        report
    }

    /// Checks that the report is complete, and that the expected version was negotiated.
    fn check_end(&mut self, end: ExitKind, version: Option<&str>) {
        let of = |wanted: fn(&CheckResult) -> bool| {
            let lines = self.lines.iter();
            lines.filter(|(_, result)| wanted(result)).count()
        };
        let passed = of(|result| *result == CheckResult::Ok);
        let failed = of(|result| matches!(result, CheckResult::Failed(_)));
        self.error = if end == ExitKind::TimedOut {
            Some(format!(
                "the client did not exit within {} s",
                LIMIT.as_secs()
            ))
        } else if self.counts != Some((passed, failed)) {
            Some("the report of the client is incomplete".to_owned())
        } else if (end == ExitKind::Success) != (failed == 0) {
            Some("the exit status of the client contradicts its report".to_owned())
        } else {
            let other = version.filter(|&version| version != self.version);
            other.map(|version| format!("expected version `{version}`, got `{}`", self.version))
        };
    }

    /// Returns how the client helps the server to pass a check.
    fn help(&self, check: &str) -> Option<&str> {
        let mut helped = self.helped.iter();
        let (_, how) = helped.find(|(name, _)| name == check)?;
        Some(how)
    }

    fn result(&self, check: &str) -> CheckResult {
        if let Some(error) = &self.error {
            return CheckResult::Failed(error.clone());
        }
        let find = |check: &str| {
            let mut lines = self.lines.iter();
            lines.find(|(name, _)| name == check)
        };
        match (find(check), find(OPEN)) {
            (Some((_, result)), _) => result.clone(),
            (None, Some((_, CheckResult::Failed(_)))) => CheckResult::Unreached,
            (None, _) => CheckResult::Failed("the client did not run this check".to_owned()),
        }
    }
}

/// Parses a line such as `3 passed, 1 failed`.
fn counts(line: &str) -> Option<(usize, usize)> {
    let (passed, failed) = line.strip_suffix(" failed")?.split_once(" passed, ")?;
    Some((passed.parse().ok()?, failed.parse().ok()?))
}

/// The check that all others depend on.
const OPEN: &str = "open";

/// Every check of the fixture, in the order in which clients run them.
pub(crate) const CHECKS: &[&str] = &[
    OPEN,
    "list",
    "call",
    "errors",
    "unknown",
    "read",
    "progress",
    "many",
    "ask",
    "sample",
    "subscribe",
    "lists",
    "log",
    "complete",
    "abandon",
    "close",
];

/// The timeout of one client. It usually takes one or two seconds; each of its checks has a timeout of its own.
const LIMIT: Duration = Duration::from_secs(900);

#[cfg(test)]
mod tests {
    use super::*;

    fn report(output: &str, end: ExitKind) -> ClientReport {
        let mut report = ClientReport::read(output);
        report.check_end(end, Some("2026-07-28"));
        report
    }

    #[test]
    fn each_line_of_a_report_is_one_check() {
        let report = report(
            "ok open\n# 2026-07-28\nskipped ask: too old\nFAILED call: a: b\n1 passed, 1 failed\n",
            ExitKind::Failure,
        );

        assert_eq!(report.result("open"), CheckResult::Ok);
        assert_eq!(
            report.result("ask"),
            CheckResult::Skipped("too old".to_owned())
        );
        assert_eq!(
            report.result("call"),
            CheckResult::Failed("a: b".to_owned())
        );
        assert!(matches!(report.result("close"), CheckResult::Failed(_)));
    }

    #[test]
    fn a_check_that_passes_with_help_says_how() {
        let report = report(
            "ok open\n# 2026-07-28\nok log: calls again\n2 passed, 0 failed\n",
            ExitKind::Success,
        );

        assert_eq!(report.result("log"), CheckResult::Ok);
        assert_eq!(report.help("log"), Some("calls again"));
        assert_eq!(report.help("open"), None);
    }

    #[test]
    fn without_a_connection_the_other_checks_are_unreached() {
        let mut report =
            ClientReport::read("FAILED open: connection refused\n0 passed, 1 failed\n");
        report.check_end(ExitKind::Failure, None);

        assert!(matches!(report.result("open"), CheckResult::Failed(_)));
        assert_eq!(report.result("call"), CheckResult::Unreached);
    }

    #[test]
    fn a_failure_is_never_as_expected() {
        assert!(!CheckResult::Failed("why".to_owned()).is_as_expected());
        assert!(!CheckResult::Unexpected.is_as_expected());
        assert!(CheckResult::Ok.is_as_expected());
    }

    #[test]
    fn an_incomplete_report_fails_every_check() {
        let complete = "ok open\n# 2026-07-28\n1 passed, 0 failed\n";

        assert_eq!(
            report(complete, ExitKind::Success).result("open"),
            CheckResult::Ok
        );
        let invalid = [
            ("ok open\n# 2026-07-28\n", ExitKind::Success),
            (
                "ok open\n# 2026-07-28\n2 passed, 0 failed",
                ExitKind::Success,
            ),
            (
                "ok open\n# 2025-11-25\n1 passed, 0 failed",
                ExitKind::Success,
            ),
            (complete, ExitKind::Failure),
            (complete, ExitKind::TimedOut),
        ];
        for (output, end) in invalid {
            let result = report(output, end).result("open");
            assert!(matches!(result, CheckResult::Failed(_)), "{output} {end:?}");
        }
    }
}
