//! `cargo xtask conformance`: the official conformance suite against our server and our client.
//!
//! The suite comes from npm, in one pinned version, and is installed in the target folder. What is known to
//! be missing stands in `conformance/expected-missing.txt`; anything else that does not pass is a failure,
//! and so is a line there that is out of date.

mod expected;
mod results;
mod suite;

use std::io;
use std::path::Path;

use expected::Expected;
use results::{Judged, Results};
use suite::Suite;

/// Runs every required scenario of every revision; true if all went as expected.
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

impl Leg {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
        }
    }
}

fn check(root: &Path) -> io::Result<bool> {
    let text = std::fs::read_to_string(root.join("conformance/expected-missing.txt"))?;
    let expected = Expected::parse(&text).map_err(io::Error::other)?;
    let suite = Suite::install(root)?;
    let mut as_expected = true;
    for revision in REVISIONS {
        let required = suite.required(revision)?;
        for leg in [Leg::Server, Leg::Client] {
            let folder = suite.run(leg, revision)?;
            let results = Results::read(&folder, leg)?;
            let scenarios = required.of(leg);
            let judged = scenarios.iter().map(|name| results.judge(name)).collect();
            as_expected &= report(leg, revision, scenarios, judged, &expected);
        }
    }
    Ok(as_expected)
}

/// Says how one leg went; true if it went as expected.
fn report(
    leg: Leg,
    revision: &str,
    scenarios: &[String],
    judged: Vec<Judged>,
    expected: &Expected,
) -> bool {
    let passed = judged.iter().filter(|it| it.passed()).count();
    println!(
        "{:6} {revision}: {passed} of {} required scenarios pass",
        leg.name(),
        scenarios.len()
    );
    let mut as_expected = true;
    for (scenario, judged) in scenarios.iter().zip(judged) {
        let known = expected.names(leg, revision, scenario);
        as_expected &= judged.passed() != known;
        match (judged.passed(), known) {
            (false, false) => println!("  FAILS   {scenario}: {judged}"),
            (false, true) => println!("  missing {scenario}"),
            (true, true) => println!("  PASSES  {scenario}, which is expected to be missing"),
            (true, false) if judged.has_warnings() => println!("  warned  {scenario}: {judged}"),
            (true, false) => {}
        }
    }
    as_expected
}

const REVISIONS: [&str; 2] = ["2026-07-28", "2025-11-25"];
