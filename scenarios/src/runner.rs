//! Runs every scenario in every column that it applies to.
//!
//! The output is that of Rust's own test harness, a line a test; what else is printed is about failures.
//! A word on the command line selects the tests whose line contains it. Without one, the coverage and the
//! table are checked too; with `BLESS=1` in the environment the table is written instead.
#![allow(
    clippy::print_stdout,
    reason = "what a test harness has to say goes to standard output"
)]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bowline_core::era::Dialect;

use crate::behaviours::{Behaviours, Coverage};
use crate::world::Role;
use crate::{Column, Scenario, Transport, World, table};

/// One scenario in one column, and how it went.
#[derive(Debug)]
pub(crate) struct Ran<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) column: Column,
    /// What was seen, if it failed.
    pub(crate) failure: Option<String>,
}

/// Runs what the command line asks for.
#[must_use]
pub fn main(scenarios: &[Scenario]) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [serve, path, version, nth] = arguments.as_slice()
        && serve == "--serve"
    {
        return serve_child(scenarios, path, version, nth);
    }
    let asked = Asked::parse(arguments.into_iter());
    let tests: Vec<(&Scenario, Column)> = scenarios
        .iter()
        .flat_map(|scenario| Column::all().map(move |column| (scenario, column)))
        .filter(|(scenario, column)| scenario.applies_to(*column))
        .filter(|(scenario, column)| asked.wants(&line(scenario, *column)))
        .collect();
    if asked.list {
        tests
            .iter()
            .for_each(|(scenario, column)| println!("{}: test", line(scenario, *column)));
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", tests.len());
    std::panic::set_hook(Box::new(|panic| {
        SEEN.with_borrow_mut(|seen| seen.push(panic.to_string()));
    }));
    let ran = run_all(tests);
    let mut failures: Vec<(String, String)> = ran
        .iter()
        .filter_map(|ran| Some((line(ran.scenario, ran.column), ran.failure.clone()?)))
        .collect();
    let mut passed = ran.len() - failures.len();
    if asked.words.is_empty() {
        let checks = check(scenarios, &ran);
        passed += checks
            .iter()
            .filter(|(_, failure)| failure.is_none())
            .count();
        failures.extend(
            checks
                .into_iter()
                .filter_map(|(name, failure)| Some((name.to_owned(), failure?))),
        );
    }
    for (name, failure) in &failures {
        println!("\n---- {name} ----\n{failure}");
    }
    let verdict = if failures.is_empty() { "ok" } else { "FAILED" };
    let failed = failures.len();
    println!("\ntest result: {verdict}. {passed} passed; {failed} failed; 0 ignored\n");
    if failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Serves one connection of a scenario, as a child of the process that runs it.
fn serve_child(scenarios: &[Scenario], path: &str, version: &str, nth: &str) -> ExitCode {
    let scenario = scenarios.iter().find(|one| one.path() == path);
    let (Some(scenario), Some(dialect), Ok(nth)) = (scenario, Dialect::of(version), nth.parse())
    else {
        return ExitCode::FAILURE;
    };
    let column = Column {
        transport: Transport::Stdio,
        dialect,
    };
    let world = World::new(scenario, column, Role::Serve(nth));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(scenario.run(world));
    // A scenario that never connects has nothing to serve.
    ExitCode::FAILURE
}

/// What the command line asks for.
#[derive(Debug, Default)]
struct Asked {
    words: Vec<String>,
    list: bool,
}

impl Asked {
    fn parse(arguments: impl Iterator<Item = String>) -> Self {
        let mut asked = Self::default();
        for argument in arguments {
            match argument.as_str() {
                "--list" => asked.list = true,
                // The other options of Rust's own harness change nothing here.
                option if option.starts_with('-') => {}
                _ => asked.words.push(argument),
            }
        }
        asked
    }

    fn wants(&self, line: &str) -> bool {
        self.words.is_empty() || self.words.iter().any(|word| line.contains(word.as_str()))
    }
}

fn line(scenario: &Scenario, column: Column) -> String {
    format!("{} ({column})", scenario.path())
}

fn run_all<'a>(tests: Vec<(&'a Scenario, Column)>) -> Vec<Ran<'a>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let queue = Mutex::new(VecDeque::from(tests));
    let ran = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((scenario, column)) = next(&queue) {
                    let failure = run(scenario, column);
                    let verdict = if failure.is_none() { "ok" } else { "FAILED" };
                    println!("test {} ... {verdict}", line(scenario, column));
                    let mut ran = ran.lock().unwrap_or_else(PoisonError::into_inner);
                    ran.push(Ran {
                        scenario,
                        column,
                        failure,
                    });
                }
            });
        }
    });
    ran.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn next<T>(queue: &Mutex<VecDeque<T>>) -> Option<T> {
    let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
    queue.pop_front()
}

/// Runs one scenario in one column, and returns what was seen if it failed.
fn run(scenario: &Scenario, column: Column) -> Option<String> {
    SEEN.with_borrow_mut(Vec::clear);
    let ended = catch_unwind(AssertUnwindSafe(|| {
        // Where the clock of the other side cannot be stopped, ours goes on too.
        let is_alone = column.transport.stops_clocks();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(is_alone)
            .build()
            .unwrap();
        runtime.block_on(async {
            let running = scenario.run(World::new(scenario, column, Role::Run));
            let patience = if is_alone {
                PATIENCE
            } else {
                PATIENCE_IN_REAL_TIME
            };
            tokio::time::timeout(patience, running).await
        })
    }));
    match ended {
        Ok(Ok(())) => None,
        Ok(Err(_)) => Some(format!("nothing happened any more\n{}", seen())),
        Err(_) => Some(seen()),
    }
}

/// The panics of this thread.
fn seen() -> String {
    SEEN.with_borrow_mut(std::mem::take).join("\n")
}

/// Checks what only a whole run can tell.
fn check(scenarios: &[Scenario], ran: &[Ran<'_>]) -> Vec<(&'static str, Option<String>)> {
    let behaviours = Behaviours::read();
    let coverage = behaviours.map(|behaviours| Coverage::of(behaviours, scenarios));
    let (coverage, complaints) = match &coverage {
        Ok(coverage) => (Some(coverage), coverage.complaints()),
        Err(error) => (None, vec![error.clone()]),
    };
    let complaints = (!complaints.is_empty()).then(|| complaints.join("\n"));
    let table = coverage.and_then(|coverage| table::check(scenarios, ran, coverage).err());
    let checks = [
        ("every behaviour is covered or listed", complaints),
        ("the table in README.md is that of this run", table),
    ];
    for (name, failure) in &checks {
        let verdict = if failure.is_none() { "ok" } else { "FAILED" };
        println!("test {name} ... {verdict}");
    }
    checks.into()
}

thread_local! {
    /// What panics on this thread had to say.
    static SEEN: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Where the clock is stopped this passes at once when nothing else happens.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Where it is not, nothing takes as long as this.
const PATIENCE_IN_REAL_TIME: Duration = Duration::from_secs(60);
