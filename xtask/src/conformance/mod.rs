//! `cargo xtask conformance`: the official conformance suite against our server and our client.
//!
//! The suite comes from npm, in one pinned version, and is installed in the target folder. What is known to
//! be missing stands in `conformance/expected-missing.txt`; anything else that does not pass is a failure,
//! and so is a line there that is out of date.

mod expected;
mod results;
mod suite;

use std::fmt;
use std::io;
use std::path::Path;
use std::thread;

use expected::Expected;
use results::{Judged, Scenarios};
use suite::Suite;

/// Runs every scenario of every set; true if all went as expected.
pub(crate) fn run(root: &Path) -> bool {
    check(root).unwrap_or_else(|error| {
        println!("the conformance suite could not be run: {error}");
        false
    })
}

/// Which of our programs is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Leg {
    Server,
    Client,
}

/// Which scenarios are run, and in which version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Set {
    /// What a revision requires; frozen when it was released.
    Required(&'static str),
    /// What applies to a version that has no such set.
    Applying(&'static str),
}

impl Leg {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
        }
    }
}

impl Set {
    pub(crate) fn version(self) -> &'static str {
        match self {
            Self::Required(version) | Self::Applying(version) => version,
        }
    }
}

fn check(root: &Path) -> io::Result<bool> {
    let text = std::fs::read_to_string(root.join(EXPECTED_MISSING))?;
    let expected = Expected::parse(&text).map_err(io::Error::other)?;
    let suite = Suite::install(root)?;
    let mut reports = Vec::new();
    for set in SETS {
        let scenarios = suite.scenarios(set)?;
        let run = |leg| Report::of(&suite, leg, set, &scenarios, &expected);
        // Both wait more than they work.
        let (server, client) = thread::scope(|scope| {
            let server = scope.spawn(|| run(Leg::Server));
            let client = run(Leg::Client);
            (server.join().expect("a failure is an error here"), client)
        });
        for report in [server?, client?] {
            print!("{report}");
            reports.push(report);
        }
    }
    println!("\nleg     version     counted  not scored");
    reports
        .iter()
        .for_each(|report| println!("{}", report.row()));
    let stale = expected.unknown(|leg, version, scenario| {
        let mut reports = reports.iter();
        reports.any(|report| report.is_about(leg, version, scenario))
    });
    for line in &stale {
        println!("{EXPECTED_MISSING} is out of date: there is no `{line}`");
    }
    Ok(stale.is_empty() && reports.iter().all(Report::is_as_expected))
}

/// How one leg of one set went.
struct Report {
    leg: Leg,
    set: Set,
    counted: Vec<Line>,
    /// What the suite runs, and counts for nobody.
    not_scored: Vec<Line>,
}

struct Line {
    scenario: String,
    judged: Judged,
    is_missing: bool,
}

impl Report {
    fn of(
        suite: &Suite,
        leg: Leg,
        set: Set,
        scenarios: &Scenarios,
        expected: &Expected,
    ) -> io::Result<Self> {
        let results = suite.run(leg, set)?;
        let lines = |scenarios: &[String]| {
            let scenarios = scenarios.iter();
            let lines = scenarios.map(|scenario| Line {
                scenario: scenario.clone(),
                judged: results.judge(scenario),
                is_missing: expected.names(leg, set.version(), scenario),
            });
            lines.collect()
        };
        Ok(Self {
            leg,
            set,
            counted: lines(scenarios.counted(leg)),
            not_scored: lines(scenarios.not_scored(leg)),
        })
    }

    fn is_as_expected(&self) -> bool {
        // A run of nothing proves nothing.
        !self.counted.is_empty() && self.counted.iter().all(Line::is_as_expected)
    }

    fn is_about(&self, leg: Leg, version: &str, scenario: &str) -> bool {
        let mut lines = self.counted.iter();
        (self.leg, self.set.version()) == (leg, version)
            && lines.any(|line| line.scenario == scenario)
    }

    fn row(&self) -> String {
        let passed = |lines: &[Line]| {
            let passed = lines.iter().filter(|line| line.judged.passed()).count();
            format!("{passed}/{}", lines.len())
        };
        let (leg, version) = (self.leg.name(), self.set.version());
        let (counted, not_scored) = (passed(&self.counted), passed(&self.not_scored));
        format!("{leg:7} {version:11} {counted:8} {not_scored}")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {}", self.leg.name(), self.set.version())?;
        for line in &self.counted {
            let (scenario, judged) = (&line.scenario, &line.judged);
            match (judged.passed(), line.is_missing) {
                (true, false) => {}
                (false, false) => writeln!(f, "  FAILS   {scenario}: {judged}")?,
                (false, true) => writeln!(f, "  missing {scenario}")?,
                (true, true) => {
                    writeln!(f, "  PASSES  {scenario}, which is expected to be missing")?
                }
            }
        }
        for Line {
            scenario, judged, ..
        } in &self.not_scored
        {
            if !judged.passed() {
                writeln!(f, "  not scored, does not pass: {scenario}: {judged}")?;
            }
        }
        Ok(())
    }
}

impl Line {
    fn is_as_expected(&self) -> bool {
        self.judged.passed() != self.is_missing
    }
}

const SETS: [Set; 4] = [
    Set::Required("2026-07-28"),
    Set::Required("2025-11-25"),
    Set::Applying("2025-06-18"),
    Set::Applying("2025-03-26"),
];

const EXPECTED_MISSING: &str = "conformance/expected-missing.txt";
