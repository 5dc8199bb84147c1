//! `cargo xtask bench` and `cargo xtask counts`: the cost of a message, compared with other programs and with a
//! committed baseline. Both build the workspace in `bench/` and run its `bench-run`.

use std::io;
use std::path::Path;
use std::process::Command;

use crate::process;

/// What to do with the counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountsMode {
    /// Fail if one exceeds the baseline.
    Check,
    /// Write the baseline.
    Bless,
}

/// Builds every program under test, runs the legs in `words`, and prints the table. A run of all legs also writes
/// `bench/RESULTS.md` and `bench/growth.svg`.
pub(crate) fn run(root: &Path, words: &[String]) -> bool {
    let is_complete = words.iter().all(|word| word == "--json");
    let outcome = cargo(root, "build", &[]).and_then(|built| {
        let mut run = runner(root);
        run.args(words);
        if is_complete {
            run.arg("--write").arg(root.join("bench"));
        }
        Ok(built && process::run(&mut run)?)
    });
    report(outcome)
}

/// Runs the tests of the benchmark. They use the same build as the counts.
pub(crate) fn test(root: &Path) -> bool {
    report(cargo(root, "test", &COUNTING))
}

/// Counts the instructions of one message of each kind.
pub(crate) fn counts(root: &Path, mode: CountsMode) -> bool {
    let outcome = cargo(root, "build", &COUNTING).and_then(|built| {
        let flag = match mode {
            CountsMode::Check => "--check-counts",
            CountsMode::Bless => "--bless-counts",
        };
        let mut run = runner(root);
        run.arg(flag).arg(root.join("bench/counts.txt"));
        Ok(built && process::run(&mut run)?)
    });
    report(outcome)
}

fn cargo(root: &Path, subcommand: &str, packages: &[&str]) -> io::Result<bool> {
    let mut cargo = process::cargo(&root.join("bench"));
    // Not `--locked`: this lock file changes with the dependencies of the SDK's crates.
    cargo.args([subcommand, "--release"]).args(packages);
    process::run(cargo.env("CARGO_TARGET_DIR", target(root)))
}

fn runner(root: &Path) -> Command {
    Command::new(target(root).join("release/bench-run"))
}

/// Returns a separate target folder, because features and lock file differ.
fn target(root: &Path) -> std::path::PathBuf {
    process::target_folder(root).join("bench")
}

fn report(outcome: io::Result<bool>) -> bool {
    outcome.unwrap_or_else(|error| {
        println!("failed to run the benchmark: {error}");
        false
    })
}

/// The packages for counting; the other programs under test are not built.
const COUNTING: [&str; 4] = ["--package", "bench-counts", "--package", "bench-run"];
