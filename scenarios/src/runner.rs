//! Runs every scenario in every column to which it applies.
//!
//! Without a word on the command line, the coverage and the table are checked too; `BLESS=1` writes the table instead. With
//! [`Replicas`], only the columns over HTTP are run, and what could not be replicated is printed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bowline_core::era::Dialect;

use crate::behaviours::{Behaviours, Coverage};
use crate::libtest::{CommandLine, Failure};
use crate::replicas::{self, Served};
use crate::scenario_env::ProcessRole;
use crate::{Column, Replicas, Scenario, ScenarioEnv, Transport, table};

/// Runs the tests selected on the command line, or serves as the child process of a scenario.
#[must_use]
pub fn main(scenarios: &[Scenario]) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [serve, path, version, nth] = arguments.as_slice()
        && serve == "--serve"
    {
        return serve_child(scenarios, path, version, nth);
    }
    let tests: Vec<(&Scenario, Column)> = scenarios
        .iter()
        .flat_map(|scenario| Column::all().map(move |column| (scenario, column)))
        .filter(|(scenario, column)| scenario.applies_to(*column))
        .collect();
    std::panic::set_hook(Box::new(|panic| {
        PANICS.with_borrow_mut(|panics| panics.push(panic.to_string()));
    }));
    if let Some(replicas) = Replicas::of_environment() {
        return run_replicated(tests, &replicas, arguments.into_iter());
    }
    CommandLine::parse(arguments.into_iter()).run(
        tests,
        |(scenario, column)| format!("{} ({column})", scenario.path()),
        |(scenario, column)| {
            run(
                ScenarioEnv::new(scenario, *column, ProcessRole::Run),
                scenario,
            )
        },
        |ran| check(scenarios, ran),
    )
}

/// Runs the tests over HTTP with replicas of their servers.
fn run_replicated(
    mut tests: Vec<(&Scenario, Column)>,
    replicas: &Replicas,
    arguments: impl Iterator<Item = String>,
) -> ExitCode {
    tests.retain(|(_, column)| column.transport.is_http());
    let mut excluded = BTreeMap::new();
    tests.retain(|(scenario, _)| match Replicas::reason_against(scenario) {
        Some(reason) => {
            excluded.insert(scenario.path(), reason);
            false
        }
        None => true,
    });
    let (nth, servings) = (AtomicU32::new(0), replicas::Servings::default());
    let code = CommandLine::parse(arguments).run(
        tests,
        |(scenario, column)| format!("{} ({column}, {replicas})", scenario.path()),
        |(scenario, column)| {
            let replicas = replicas.of_scenario(nth.fetch_add(1, Ordering::Relaxed));
            let served = Rc::new(RefCell::new(Served::Nothing));
            let env = ScenarioEnv::new(scenario, *column, ProcessRole::Run);
            let failure = run(env.with_replicas(replicas, served.clone()), scenario);
            servings.add(&scenario.path(), *served.borrow());
            failure
        },
        |_| Vec::new(),
    );
    servings.print(&excluded);
    code
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

/// Runs one scenario in one column; returns its panics if it failed.
fn run(env: ScenarioEnv, scenario: &Scenario) -> Option<String> {
    PANICS.with_borrow_mut(Vec::clear);
    let ended = catch_unwind(AssertUnwindSafe(|| {
        // A paused clock advances while sockets and child processes still work, so it needs a transport without them.
        let is_paused = env.can_pause_time();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(is_paused)
            .build()
            .unwrap();
        runtime.block_on(async {
            let running = scenario.run(env);
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
fn check(
    scenarios: &[Scenario],
    ran: &[((&Scenario, Column), Failure)],
) -> Vec<(&'static str, Failure)> {
    let behaviours = Behaviours::read();
    let coverage = behaviours.map(|behaviours| Coverage::of(behaviours, scenarios));
    let (coverage, problems) = match &coverage {
        Ok(coverage) => (Some(coverage), coverage.problems()),
        Err(error) => (None, vec![error.clone()]),
    };
    let problems = (!problems.is_empty()).then(|| problems.join("\n"));
    let table = coverage.and_then(|coverage| table::check(scenarios, ran, coverage).err());
    vec![
        ("every behaviour is covered or listed", problems),
        ("the table in README.md matches this run", table),
    ]
}

thread_local! {
    /// The panic messages of this thread.
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// The time limit with a paused clock, which advances as soon as every task is idle.
const TIME_LIMIT: Duration = Duration::from_secs(3600);
/// The time limit with a running clock.
const REAL_TIME_LIMIT: Duration = Duration::from_secs(60);
