//! Runs every test in a separate process, and then checks the results of the whole run. Whether the tests listed in
//! `sentences.txt` ran and passed is checked by `cargo xtask ci`.

use std::io::Read as _;
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

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
    let command = command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let (ended, has_ended) = mpsc::channel();
    let reading = thread::spawn(move || {
        let mut text = Vec::new();
        // What was read before an error is shown all the same.
        let _ = stderr.read_to_end(&mut text);
        let _ = ended.send(()); // fails if the limit has passed
        String::from_utf8_lossy(&text).into_owned()
    });
    // A cell that hangs must not hang the run.
    let is_late = has_ended.recv_timeout(LIMIT).is_err();
    if is_late {
        child.kill().unwrap();
    }
    let status = child.wait().unwrap();
    if is_late {
        // Its own children may hold stderr open, so that it is not read to its end.
        return Some(format!("the cell did not end within {LIMIT:?}"));
    }
    let stderr = reading.join().unwrap();
    (!status.success()).then(|| format!("{status}\n{stderr}"))
}

/// Far more than a cell takes.
const LIMIT: Duration = Duration::from_secs(180);

/// The number of abandoned calls without `--calls`.
const CALLS: usize = 2000;
