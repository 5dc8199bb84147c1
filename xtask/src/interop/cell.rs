//! One client against one server, over one transport, in one mode: what each check came to.

use std::fmt;
use std::io;
use std::process::Command;
use std::time::Duration;

use super::cannot::Cannot;
use crate::process::{self, End};

/// What was seen of a peer in one way of reaching it.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) peer: &'static str,
    pub(crate) side: Side,
    pub(crate) transport: Transport,
    pub(crate) mode: String,
    pub(crate) version: String,
    pub(crate) checks: &'static [&'static str],
    /// One for each check.
    pub(crate) verdicts: Vec<Verdict>,
}

/// A cell that has not been run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair<'a> {
    pub(crate) peer: &'static str,
    pub(crate) side: Side,
    pub(crate) transport: Transport,
    pub(crate) mode: &'a str,
    /// The checks that the client makes.
    pub(crate) checks: &'static [&'static str],
    /// The version that they have to agree upon; any will do if there is none.
    pub(crate) version: Option<&'a str>,
}

/// What the peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Stdio,
    Http,
    /// The two endpoints that HTTP had at first.
    HttpSse,
}

/// What a check came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Ok,
    /// It makes no sense in that version.
    Skipped(String),
    /// It was not made, since there is no connection.
    Unreached,
    /// It fails, as is known of this peer.
    Cannot,
    /// It fails.
    Failed(String),
    /// It passes, although this peer is known to fail.
    Unexpected,
}

impl Pair<'_> {
    /// Runs `client`, which has its target among its arguments.
    pub(crate) fn run(self, client: &mut Command, cannot: &Cannot) -> io::Result<Cell> {
        let finished = process::keep(client, LIMIT)?;
        let mut report = Report::read(&finished.output);
        report.check_end(finished.end, self.version);
        let verdicts = self.checks.iter().map(|check| {
            let is_listed = cannot.names(self.peer, self.side, self.transport, check);
            match (report.verdict(check), is_listed) {
                (Verdict::Failed(_), true) => Verdict::Cannot,
                (Verdict::Ok, true) => Verdict::Unexpected,
                (verdict, _) => verdict,
            }
        });
        Ok(Cell {
            peer: self.peer,
            side: self.side,
            transport: self.transport,
            mode: self.mode.to_owned(),
            version: report.version.clone(),
            checks: self.checks,
            verdicts: verdicts.collect(),
        })
    }
}

impl Cell {
    /// Each check and what it came to.
    pub(crate) fn checks(&self) -> impl Iterator<Item = (&'static str, &Verdict)> {
        self.checks.iter().copied().zip(&self.verdicts)
    }

    pub(crate) fn is_as_expected(&self) -> bool {
        self.verdicts.iter().all(Verdict::is_as_expected)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { peer, mode, .. } = self;
        let count = |wanted: fn(&Verdict) -> bool| {
            let verdicts = self.verdicts.iter();
            verdicts.filter(|verdict| wanted(verdict)).count()
        };
        let passed = count(|verdict| *verdict == Verdict::Ok);
        let failed = count(|verdict| !verdict.is_as_expected());
        let (side, transport) = (self.side.name(), self.transport.name());
        write!(
            f,
            "{peer:16} {side} {transport:8} {mode:17} {passed:2} ok, {failed} failed"
        )?;
        for (check, verdict) in self.checks() {
            match verdict {
                Verdict::Failed(why) => write!(f, "\n  FAILED {check}: {why}")?,
                Verdict::Unexpected => write!(f, "\n  PASSED {check}, as it is known not to")?,
                Verdict::Ok | Verdict::Skipped(_) | Verdict::Unreached | Verdict::Cannot => {}
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

impl Verdict {
    pub(crate) fn is_as_expected(&self) -> bool {
        match self {
            Self::Ok | Self::Skipped(_) | Self::Unreached | Self::Cannot => true,
            Self::Failed(_) | Self::Unexpected => false,
        }
    }
}

/// What a client printed.
#[derive(Debug, Default)]
struct Report {
    version: String,
    lines: Vec<(String, Verdict)>,
    /// The counts of the last line.
    counts: Option<(usize, usize)>,
    /// What is wrong with the report as a whole.
    flaw: Option<String>,
}

impl Report {
    fn read(output: &str) -> Self {
        let mut report = Self::default();
        for line in output.lines() {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let (name, why) = rest.split_once(": ").unwrap_or((rest, ""));
            let verdict = match word {
                "ok" => Verdict::Ok,
                "skipped" => Verdict::Skipped(why.to_owned()),
                "FAILED" => Verdict::Failed(why.to_owned()),
                "#" => {
                    report.version = rest.to_owned();
                    continue;
                }
                _ => {
                    report.counts = counts(line).or(report.counts);
                    continue;
                }
            };
            report.lines.push((name.to_owned(), verdict));
        }
        report
    }

    /// Sees that the report is whole, and about what it should be about.
    fn check_end(&mut self, end: End, version: Option<&str>) {
        let of = |wanted: fn(&Verdict) -> bool| {
            let lines = self.lines.iter();
            lines.filter(|(_, verdict)| wanted(verdict)).count()
        };
        let passed = of(|verdict| *verdict == Verdict::Ok);
        let failed = of(|verdict| matches!(verdict, Verdict::Failed(_)));
        self.flaw = if end == End::Hung {
            Some(format!(
                "the client was not done after {} s",
                LIMIT.as_secs()
            ))
        } else if self.counts != Some((passed, failed)) {
            Some("the client did not come to its end".to_owned())
        } else if (end == End::Success) != (failed == 0) {
            Some("the exit status of the client is not what it says".to_owned())
        } else {
            let other = version.filter(|&version| version != self.version);
            other.map(|version| format!("`{}` is spoken instead of `{version}`", self.version))
        };
    }

    fn verdict(&self, check: &str) -> Verdict {
        if let Some(flaw) = &self.flaw {
            return Verdict::Failed(flaw.clone());
        }
        let find = |check: &str| {
            let mut lines = self.lines.iter();
            lines.find(|(name, _)| name == check)
        };
        match (find(check), find(OPEN)) {
            (Some((_, verdict)), _) => verdict.clone(),
            (None, Some((_, Verdict::Failed(_)))) => Verdict::Unreached,
            (None, _) => Verdict::Failed("it was not checked".to_owned()),
        }
    }
}

/// The numbers of `3 passed, 1 failed`.
fn counts(line: &str) -> Option<(usize, usize)> {
    let (passed, failed) = line.strip_suffix(" failed")?.split_once(" passed, ")?;
    Some((passed.parse().ok()?, failed.parse().ok()?))
}

/// The check that all others need.
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
    "subscribe",
    "abandon",
    "close",
];

/// How long one client may take. It takes a second or two, and gives each check 30.
const LIMIT: Duration = Duration::from_secs(240);

#[cfg(test)]
mod tests {
    use super::*;

    fn report(output: &str, end: End) -> Report {
        let mut report = Report::read(output);
        report.check_end(end, Some("2026-07-28"));
        report
    }

    #[test]
    fn each_line_of_a_report_is_one_check() {
        let report = report(
            "ok open\n# 2026-07-28\nskipped ask: too old\nFAILED call: it: broke\n1 passed, 1 failed\n",
            End::Failure,
        );

        assert_eq!(report.verdict("open"), Verdict::Ok);
        assert_eq!(
            report.verdict("ask"),
            Verdict::Skipped("too old".to_owned())
        );
        assert_eq!(
            report.verdict("call"),
            Verdict::Failed("it: broke".to_owned())
        );
        assert!(matches!(report.verdict("close"), Verdict::Failed(_)));
    }

    #[test]
    fn without_a_connection_nothing_else_is_judged() {
        let mut report = Report::read("FAILED open: it is shut\n0 passed, 1 failed\n");
        report.check_end(End::Failure, None);

        assert!(matches!(report.verdict("open"), Verdict::Failed(_)));
        assert_eq!(report.verdict("call"), Verdict::Unreached);
    }

    #[test]
    fn a_failure_is_never_as_expected() {
        assert!(!Verdict::Failed("why".to_owned()).is_as_expected());
        assert!(!Verdict::Unexpected.is_as_expected());
        assert!(Verdict::Ok.is_as_expected());
    }

    #[test]
    fn a_report_that_is_not_whole_proves_nothing() {
        let whole = "ok open\n# 2026-07-28\n1 passed, 0 failed\n";

        assert_eq!(report(whole, End::Success).verdict("open"), Verdict::Ok);
        let flawed = [
            ("ok open\n# 2026-07-28\n", End::Success),
            ("ok open\n# 2026-07-28\n2 passed, 0 failed", End::Success),
            ("ok open\n# 2025-11-25\n1 passed, 0 failed", End::Success),
            (whole, End::Failure),
            (whole, End::Hung),
        ];
        for (output, end) in flawed {
            let verdict = report(output, end).verdict("open");
            assert!(matches!(verdict, Verdict::Failed(_)), "{output} {end:?}");
        }
    }
}
