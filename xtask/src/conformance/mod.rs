//! `cargo xtask conformance`: the official conformance suite against our server, directly and through a bridge, and
//! against our client.
//!
//! The suite is installed from npm at a pinned version, into the target folder. Scenarios that are known to fail are
//! listed in `conformance/expected-missing.txt`; any other failure fails the command, and so does an outdated line
//! there. That includes the scenarios that the suite runs without scoring them, such as those of extensions.

mod expected_missing;
mod results;
mod suite;

use std::fmt;
use std::io;
use std::path::Path;
use std::thread;

use expected_missing::ExpectedMissing;
use results::{ScenarioResult, Scenarios};
use suite::Suite;

use crate::unsteady;

/// Runs every scenario of every set; returns whether all results are as expected.
pub(crate) fn run(root: &Path) -> bool {
    check(root).unwrap_or_else(|error| {
        println!("failed to run the conformance suite: {error}");
        false
    })
}

/// Which of our programs is under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Leg {
    Server,
    Client,
    /// The client, through `bowline bridge` with an HTTP front, which signs in for it.
    BridgedClient,
    /// The server, through `bowline bridge` with an HTTP front.
    Bridge(Behind),
}

/// How the bridge reaches the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Behind {
    /// Over HTTP, to a server of 2026-07-28 only.
    Modern,
    /// Over HTTP, to a server of the versions before it.
    Legacy,
    /// As a child process that serves all versions.
    Stdio,
    /// As a child process of the versions before 2026-07-28.
    LegacyStdio,
}

/// Which scenarios run, and in which version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScenarioSet {
    /// The scenarios that a revision requires; frozen at its release.
    Required(&'static str),
    /// The scenarios that apply to a version without a required set.
    Applying(&'static str),
}

impl Leg {
    /// All, as they run: those of a row one after the other.
    const IN_PARALLEL: [&[Self]; 6] = [
        &[Self::Server],
        &[Self::Client, Self::BridgedClient],
        &[Self::Bridge(Behind::Modern)],
        &[Self::Bridge(Behind::Legacy)],
        &[Self::Bridge(Behind::Stdio)],
        &[Self::Bridge(Behind::LegacyStdio)],
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
            Self::BridgedClient => "client-through-bridge",
            Self::Bridge(Behind::Modern) => "bridge-to-modern",
            Self::Bridge(Behind::Legacy) => "bridge-to-legacy",
            Self::Bridge(Behind::Stdio) => "bridge-to-stdio",
            Self::Bridge(Behind::LegacyStdio) => "bridge-to-legacy-stdio",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        let mut all = Self::IN_PARALLEL.into_iter().flatten().copied();
        all.find(|leg| leg.name() == name)
    }

    /// Returns the leg of the suite whose scenarios run.
    pub(crate) fn of_suite(self) -> Self {
        match self {
            Self::Server | Self::Bridge(_) => Self::Server,
            Self::Client | Self::BridgedClient => Self::Client,
        }
    }
}

impl ScenarioSet {
    pub(crate) fn version(self) -> &'static str {
        match self {
            Self::Required(version) | Self::Applying(version) => version,
        }
    }
}

fn check(root: &Path) -> io::Result<bool> {
    let text = std::fs::read_to_string(root.join(EXPECTED_MISSING))?;
    let expected = ExpectedMissing::parse(&text).map_err(io::Error::other)?;
    let suite = Suite::install(root)?;
    let mut reports = Vec::new();
    for set in SETS {
        let scenarios = suite.scenarios(set)?;
        let run = |leg| LegReport::of(&suite, leg, set, &scenarios, &expected);
        // In parallel, because most of them wait; those of clients one after the other, because they start a process for
        // each scenario at once.
        let of_set: Vec<_> = thread::scope(|scope| {
            let threads = Leg::IN_PARALLEL.map(|legs| {
                scope.spawn(move || legs.iter().map(|leg| run(*leg)).collect::<Vec<_>>())
            });
            let joined = threads.map(|it| it.join().expect("a failure is returned as an error"));
            joined.into_iter().flatten().collect::<io::Result<_>>()
        })?;
        for mut report in of_set {
            if !report.is_as_expected() {
                // The suite gives a server half a second for some answers, which it may miss beside the other legs.
                println!("{report}--- again, alone:");
                let (leg, version) = (report.leg, set.version());
                for scenario in report.replace_unexpected(&run(leg)?) {
                    unsteady::record(format!("{scenario} ({}, {version})", leg.name()));
                }
            }
            print!("{report}");
            reports.push(report);
        }
    }
    println!("\nleg                    version     counted  not scored");
    reports
        .iter()
        .for_each(|report| println!("{}", report.row()));
    let stale = expected.unknown(|leg, version, scenario| {
        let mut reports = reports.iter();
        reports.any(|report| report.is_about(leg, version, scenario))
    });
    for line in &stale {
        println!("{EXPECTED_MISSING} is out of date: unknown scenario `{line}`");
    }
    Ok(stale.is_empty() && reports.iter().all(LegReport::is_as_expected))
}

/// The results of one leg of one set.
struct LegReport {
    leg: Leg,
    set: ScenarioSet,
    counted: Vec<ScenarioLine>,
    /// The scenarios that the suite runs but does not score.
    not_scored: Vec<ScenarioLine>,
}

struct ScenarioLine {
    scenario: String,
    result: ScenarioResult,
    is_missing: bool,
}

impl LegReport {
    fn of(
        suite: &Suite,
        leg: Leg,
        set: ScenarioSet,
        scenarios: &Scenarios,
        expected: &ExpectedMissing,
    ) -> io::Result<Self> {
        let results = suite.run(leg, set)?;
        let lines = |scenarios: &[String]| {
            let scenarios = scenarios.iter();
            let lines = scenarios.map(|scenario| ScenarioLine {
                scenario: scenario.clone(),
                result: results.evaluate(scenario),
                is_missing: expected.names(leg, set.version(), scenario),
            });
            lines.collect()
        };
        Ok(Self {
            leg,
            set,
            counted: lines(scenarios.counted(leg.of_suite())),
            not_scored: lines(scenarios.not_scored(leg.of_suite())),
        })
    }

    fn is_as_expected(&self) -> bool {
        // A run without scenarios must not pass.
        !self.counted.is_empty() && self.lines().all(ScenarioLine::is_as_expected)
    }

    /// Replaces the results that are not as expected by those of another run; returns the scenarios that are as expected
    /// now.
    fn replace_unexpected(&mut self, again: &Self) -> Vec<String> {
        let mut steady_now = Vec::new();
        let lines = self.counted.iter_mut().chain(&mut self.not_scored);
        for line in lines.filter(|line| !line.is_as_expected()) {
            let mut again = again.lines();
            if let Some(again) = again.find(|again| again.scenario == line.scenario) {
                line.result = again.result;
                if line.is_as_expected() {
                    steady_now.push(line.scenario.clone());
                }
            }
        }
        steady_now
    }

    fn is_about(&self, leg: Leg, version: &str, scenario: &str) -> bool {
        (self.leg, self.set.version()) == (leg, version)
            && self.lines().any(|line| line.scenario == scenario)
    }

    fn lines(&self) -> impl Iterator<Item = &ScenarioLine> {
        self.counted.iter().chain(&self.not_scored)
    }

    fn row(&self) -> String {
        let passed = |lines: &[ScenarioLine]| {
            let passed = lines.iter().filter(|line| line.result.passed()).count();
            format!("{passed}/{}", lines.len())
        };
        let (leg, version) = (self.leg.name(), self.set.version());
        let (counted, not_scored) = (passed(&self.counted), passed(&self.not_scored));
        format!("{leg:22} {version:11} {counted:8} {not_scored}")
    }
}

impl fmt::Display for LegReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {}", self.leg.name(), self.set.version())?;
        for line in self.lines() {
            let (scenario, result) = (&line.scenario, &line.result);
            match (result.passed(), line.is_missing) {
                (true, false) => {}
                (false, false) => writeln!(f, "  FAILS   {scenario}: {result}")?,
                (false, true) => writeln!(f, "  missing {scenario}")?,
                (true, true) => {
                    writeln!(f, "  PASSES  {scenario}, which is expected to be missing")?
                }
            }
        }
        Ok(())
    }
}

impl ScenarioLine {
    fn is_as_expected(&self) -> bool {
        self.result.passed() != self.is_missing
    }
}

const SETS: [ScenarioSet; 4] = [
    ScenarioSet::Required("2026-07-28"),
    ScenarioSet::Required("2025-11-25"),
    ScenarioSet::Applying("2025-06-18"),
    ScenarioSet::Applying("2025-03-26"),
];

const EXPECTED_MISSING: &str = "conformance/expected-missing.txt";

#[cfg(test)]
mod tests {
    use super::*;

    fn report(results: [(&str, ScenarioResult, bool); 3]) -> LegReport {
        let lines = results.map(|(scenario, result, is_missing)| ScenarioLine {
            scenario: scenario.to_owned(),
            result,
            is_missing,
        });
        LegReport {
            leg: Leg::Server,
            set: SETS[0],
            counted: lines.into(),
            not_scored: Vec::new(),
        }
    }

    #[test]
    fn another_run_replaces_only_what_was_not_as_expected() {
        let (passed, failed) = (ScenarioResult::of(1, 0), ScenarioResult::of(1, 1));
        let first = || {
            report([
                ("a", failed, false),
                ("b", passed, false),
                ("c", failed, true),
            ])
        };
        assert!(!first().is_as_expected());

        let mut late = first();
        let steady_now = late.replace_unexpected(&report([
            ("a", passed, false),
            ("b", failed, false),
            ("c", passed, true),
        ]));
        let mut wrong = first();
        let still_wrong = wrong.replace_unexpected(&first());

        assert_eq!(steady_now, ["a"]);
        assert!(still_wrong.is_empty());

        assert!(late.is_as_expected());
        assert!(!wrong.is_as_expected());
    }
}
