//! Runs every scenario in every column to which it applies.
//!
//! The output has the format of libtest, one line per test. A word on the command line selects the tests whose line
//! contains it. Without one, the coverage and the table are checked too; `BLESS=1` writes the table instead.
#![allow(
    clippy::print_stdout,
    reason = "a test harness prints to standard output"
)]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bowline_core::era::Dialect;

use crate::behaviours::{Behaviours, Coverage};
use crate::scenario_env::ProcessRole;
use crate::{Column, Scenario, ScenarioEnv, Transport, table};

/// The result of one scenario in one column.
#[derive(Debug)]
pub(crate) struct TestRun<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) column: Column,
    /// The panics of a failed run.
    pub(crate) failure: Option<String>,
}

/// Runs the tests selected on the command line, or serves as the child process of a scenario.
#[must_use]
pub fn main(scenarios: &[Scenario]) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [serve, path, version, nth] = arguments.as_slice()
        && serve == "--serve"
    {
        return serve_child(scenarios, path, version, nth);
    }
    let command_line = CommandLine::parse(arguments.into_iter());
    let tests: Vec<(&Scenario, Column)> = scenarios
        .iter()
        .flat_map(|scenario| Column::all().map(move |column| (scenario, column)))
        .filter(|(scenario, column)| scenario.applies_to(*column))
        .filter(|(scenario, column)| command_line.selects(&line(scenario, *column)))
        .collect();
    if command_line.list {
        tests
            .iter()
            .for_each(|(scenario, column)| println!("{}: test", line(scenario, *column)));
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", tests.len());
    std::panic::set_hook(Box::new(|panic| {
        PANICS.with_borrow_mut(|panics| panics.push(panic.to_string()));
    }));
    let ran = run_all(tests);
    let mut failures: Vec<(String, String)> = ran
        .iter()
        .filter_map(|ran| Some((line(ran.scenario, ran.column), ran.failure.clone()?)))
        .collect();
    let mut passed = ran.len() - failures.len();
    if command_line.words.is_empty() {
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
    let env = ScenarioEnv::new(scenario, column, ProcessRole::Serve(nth));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(scenario.run(env));
    // The scenario ended before its `nth` connection.
    ExitCode::FAILURE
}

/// The parsed command line.
#[derive(Debug, Default)]
struct CommandLine {
    words: Vec<String>,
    list: bool,
}

impl CommandLine {
    fn parse(arguments: impl Iterator<Item = String>) -> Self {
        let mut command_line = Self::default();
        for argument in arguments {
            match argument.as_str() {
                "--list" => command_line.list = true,
                // Other options of libtest are ignored.
                option if option.starts_with('-') => {}
                _ => command_line.words.push(argument),
            }
        }
        command_line
    }

    fn selects(&self, line: &str) -> bool {
        self.words.is_empty() || self.words.iter().any(|word| line.contains(word.as_str()))
    }
}

fn line(scenario: &Scenario, column: Column) -> String {
    format!("{} ({column})", scenario.path())
}

fn run_all<'a>(tests: Vec<(&'a Scenario, Column)>) -> Vec<TestRun<'a>> {
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
                    ran.push(TestRun {
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

/// Runs one scenario in one column; returns its panics if it failed.
fn run(scenario: &Scenario, column: Column) -> Option<String> {
    PANICS.with_borrow_mut(Vec::clear);
    let ended = catch_unwind(AssertUnwindSafe(|| {
        // A paused clock advances while sockets and child processes still work, so it needs a transport without them.
        let is_paused = column.transport.can_pause_time();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(is_paused)
            .build()
            .unwrap();
        runtime.block_on(async {
            let running = scenario.run(ScenarioEnv::new(scenario, column, ProcessRole::Run));
            let limit = if is_paused {
                TIME_LIMIT
            } else {
                REAL_TIME_LIMIT
            };
            tokio::time::timeout(limit, running).await
        })
    }));
    match ended {
        Ok(Ok(())) => None,
        Ok(Err(_)) => Some(format!("timed out\n{}", take_panics())),
        Err(_) => Some(take_panics()),
    }
}

/// Takes the panic messages of this thread.
fn take_panics() -> String {
    PANICS.with_borrow_mut(std::mem::take).join("\n")
}

/// Runs the checks that need the results of the whole run.
fn check(scenarios: &[Scenario], ran: &[TestRun<'_>]) -> Vec<(&'static str, Option<String>)> {
    let behaviours = Behaviours::read();
    let coverage = behaviours.map(|behaviours| Coverage::of(behaviours, scenarios));
    let (coverage, problems) = match &coverage {
        Ok(coverage) => (Some(coverage), coverage.problems()),
        Err(error) => (None, vec![error.clone()]),
    };
    let problems = (!problems.is_empty()).then(|| problems.join("\n"));
    let table = coverage.and_then(|coverage| table::check(scenarios, ran, coverage).err());
    let checks = [
        ("every behaviour is covered or listed", problems),
        ("the table in README.md matches this run", table),
    ];
    for (name, failure) in &checks {
        let verdict = if failure.is_none() { "ok" } else { "FAILED" };
        println!("test {name} ... {verdict}");
    }
    checks.into()
}

thread_local! {
    /// The panic messages of this thread.
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// The time limit with a paused clock, which advances as soon as every task is idle.
const TIME_LIMIT: Duration = Duration::from_secs(3600);
/// The time limit with a running clock.
const REAL_TIME_LIMIT: Duration = Duration::from_secs(60);
