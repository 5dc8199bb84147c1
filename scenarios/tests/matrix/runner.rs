//! Runs every test in a separate process, and then checks the results of the whole run.
//!
//! The output has the format of libtest, one line per test. A word on the command line selects the tests whose line
//! contains it.

use std::collections::VecDeque;
use std::process::{Command, ExitCode};
use std::sync::{Mutex, PoisonError};

use crate::test::Test;
use crate::{sentences, table};

pub(crate) fn main(arguments: Vec<String>) -> ExitCode {
    let command_line = CommandLine::parse(arguments.into_iter());
    let tests: Vec<Test> = Test::all(command_line.calls.unwrap_or(CALLS))
        .into_iter()
        .filter(|test| command_line.selects(&test.to_string()))
        .collect();
    if command_line.list {
        tests.iter().for_each(|test| println!("{test}: test"));
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", tests.len());
    let ran = run_all(tests);
    let mut failures: Vec<(String, String)> = ran
        .iter()
        .filter_map(|(test, failure)| Some((test.to_string(), failure.clone()?)))
        .collect();
    if command_line.words.is_empty() {
        let passed = ran.iter().filter(|(_, failure)| failure.is_none());
        let passed: Vec<Test> = passed.map(|(test, _)| *test).collect();
        for (name, failure) in checks(&passed) {
            report(name, failure.is_none());
            failures.extend(failure.map(|failure| (name.to_owned(), failure)));
        }
        println!("{NOT_CHECKED}");
    }
    for (name, failure) in &failures {
        println!("\n---- {name} ----\n{failure}");
    }
    match failures.len() {
        0 => {
            println!("\ntest result: ok\n");
            ExitCode::SUCCESS
        }
        failed => {
            println!("\ntest result: FAILED. {failed} failed\n");
            ExitCode::FAILURE
        }
    }
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
fn checks(passed: &[Test]) -> [(&'static str, Option<String>); 3] {
    [
        ("every cell passed", table::check_cells(passed).err()),
        (
            "every requirement names tests that exist",
            sentences::check().err(),
        ),
        (
            "CANCELLATION.md matches this run",
            table::check(passed).err(),
        ),
    ]
}

/// Runs as many tests concurrently as there are processors; returns each with its failure, if any.
fn run_all(tests: Vec<Test>) -> Vec<(Test, Option<String>)> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (queue, ran) = (Mutex::new(VecDeque::from(tests)), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(test) = lock(&queue).pop_front() {
                    let failure = run(test);
                    report(&test.to_string(), failure.is_none());
                    lock(&ran).push((test, failure));
                }
            });
        }
    });
    ran.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Runs one test in a separate process; returns its stderr if it failed.
fn run(test: Test) -> Option<String> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let command = command
        .args(["--run", &test.key()])
        .env("RUST_BACKTRACE", "0");
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (!output.status.success()).then(|| format!("{}\n{stderr}", output.status))
}

fn report(name: &str, passed: bool) {
    let verdict = if passed { "ok" } else { "FAILED" };
    println!("test {name} ... {verdict}");
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The parsed command line.
#[derive(Debug, Default)]
struct CommandLine {
    words: Vec<String>,
    list: bool,
    calls: Option<usize>,
}

impl CommandLine {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Self {
        let mut command_line = Self::default();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--list" => command_line.list = true,
                "--calls" => {
                    command_line.calls = arguments.next().and_then(|calls| calls.parse().ok())
                }
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

const NOT_CHECKED: &str = "\
not checked here: whether the tests listed in sentences.txt ran and passed; `cargo xtask ci` checks that.";

/// The number of abandoned calls without `--calls`.
const CALLS: usize = 2000;
