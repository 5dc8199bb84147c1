//! Runs every test in a separate process, and then checks the results of the whole run. Whether the tests listed in
//! `sentences.txt` ran and passed is checked by `cargo xtask ci`.

use std::process::{Command, ExitCode};

use scenarios::libtest::{CommandLine, Failure};

use crate::test::Test;
use crate::{sentences, table};

pub(crate) fn main(arguments: Vec<String>) -> ExitCode {
    let command_line = CommandLine::parse(arguments.into_iter());
    let calls = command_line.calls.unwrap_or(CALLS);
    command_line.run(
        Test::all(calls),
        Test::to_string,
        |test| run(*test, calls),
        check,
    )
}

/// Runs the future of a cell or a server.
pub(crate) fn block_on(threads: usize, running: impl Future<Output = ()>) {
    let mut builder = match threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder
        .worker_threads(threads)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(running);
}

/// Checks that need the results of the whole run.
fn check(ran: &[(Test, Failure)]) -> Vec<(&'static str, Failure)> {
    let passed = ran.iter().filter(|(_, failure)| failure.is_none());
    let passed: Vec<Test> = passed.map(|(test, _)| *test).collect();
    vec![
        ("every cell passed", table::check_cells(&passed).err()),
        (
            "every requirement names tests that exist",
            sentences::check().err(),
        ),
        (
            "CANCELLATION.md matches this run",
            table::check(&passed).err(),
        ),
    ]
}

/// Runs one test in a separate process; returns its stderr if it failed.
fn run(test: Test, calls: usize) -> Failure {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let command = command
        .args(["--run", &test.to_string(), "--calls", &calls.to_string()])
        .env("RUST_BACKTRACE", "0");
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (!output.status.success()).then(|| format!("{}\n{stderr}", output.status))
}

/// The number of abandoned calls without `--calls`.
const CALLS: usize = 2000;
