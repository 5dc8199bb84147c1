//! `cargo xtask crash`: kills servers with tasks at random moments, in more rounds than the test does.

use std::path::Path;

use crate::process;

/// Runs the rounds; returns whether no task was lost or doubled.
pub(crate) fn run(root: &Path, options: &CrashOptions) -> bool {
    let mut crash = process::cargo(root);
    crash
        .args(["test", "--package", "bowline-tasks", "--test", "crash"])
        .args(["--", TEST, "--exact", "--nocapture"])
        .env("BOWLINE_CRASH_ROUNDS", options.rounds.to_string())
        .env("BOWLINE_CRASH_TASKS", options.tasks.to_string())
        .env("BOWLINE_CRASH_LEASE_MS", options.lease_ms.to_string());
    process::run(&mut crash).unwrap_or_else(|error| {
        println!("failed to start the crash test: {error}");
        false
    })
}

/// How much to run.
#[derive(Debug, PartialEq)]
pub(crate) struct CrashOptions {
    rounds: u64,
    tasks: u64,
    lease_ms: u64,
}

impl CrashOptions {
    pub(crate) fn parse(words: &[String]) -> Result<Self, String> {
        let mut options = Self {
            rounds: 10,
            tasks: 1000,
            lease_ms: DEFAULT_LEASE_MS,
        };
        for pair in words.chunks(2) {
            let [flag, value] = pair else {
                return Err(format!("`{}` needs a value", pair[0]));
            };
            let number = match flag.as_str() {
                "--rounds" => &mut options.rounds,
                "--tasks" => &mut options.tasks,
                "--lease-ms" => &mut options.lease_ms,
                _ => return Err(format!("unknown option `{flag}` of `crash`")),
            };
            *number = value
                .parse()
                .map_err(|_| format!("`{value}` is not a number"))?;
        }
        Ok(options)
    }
}

const TEST: &str = "no_task_is_lost_or_doubled_by_kill_9";
/// That of `Tasks`.
const DEFAULT_LEASE_MS: u64 = 6000;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<CrashOptions, String> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        CrashOptions::parse(&words)
    }

    #[test]
    fn rounds_and_tasks_can_be_set() {
        let options = CrashOptions {
            rounds: 2,
            tasks: 50,
            lease_ms: DEFAULT_LEASE_MS,
        };

        assert_eq!(parse("--rounds 2 --tasks 50"), Ok(options));
    }

    #[test]
    fn an_unknown_option_or_value_is_named() {
        assert!(parse("--forever 1").unwrap_err().contains("`--forever`"));
        assert!(parse("--tasks many").unwrap_err().contains("`many`"));
        assert!(parse("--rounds").unwrap_err().contains("`--rounds`"));
    }

    #[test]
    fn the_test_exists() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let test = root.join("crates/bowline-tasks/tests/crash/main.rs");

        let text = std::fs::read_to_string(test).unwrap();

        assert!(text.contains(&format!("async fn {TEST}()")));
    }
}
