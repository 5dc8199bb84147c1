//! Two server processes with one SQLite database, killed with SIGKILL at random moments.
//!
//! Each handler writes a line to a log before and after each step. The [audit](audit) of the log shows whether a task
//! was lost, a step ran twice that must run at most once, or a step ran again after its journal entry was committed.
//!
//! The test is small; `cargo xtask crash` runs more tasks and rounds with the default lease.
#![cfg(all(unix, feature = "sqlite"))]
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "clippy exempts only `#[test]` functions, not their helpers"
)]

mod audit;
mod event_log;
mod rounds;
mod server_process;

#[path = "../store/sqlite/temp_dir.rs"]
mod temp_dir;

use std::time::Duration;

use rounds::CrashOptions;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_task_is_lost_or_doubled_by_kill_9() {
    if server_process::is_server() {
        return server_process::serve_until_killed().await;
    }
    let options = CrashOptions {
        rounds: variable("BOWLINE_CRASH_ROUNDS").unwrap_or(3),
        tasks: variable("BOWLINE_CRASH_TASKS").unwrap_or(60),
        lease: Duration::from_millis(variable("BOWLINE_CRASH_LEASE_MS").unwrap_or(2000) as u64),
    };

    let report = rounds::run(&options).await;

    println!("{report}");
    assert_eq!(report.violations, [""; 0]);
    assert_eq!(report.acknowledged, options.tasks);
    assert!(!report.recoveries.is_empty(), "no task was interrupted");
}

fn variable(name: &str) -> Option<usize> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}
