//! `cargo xtask bench` and `cargo xtask counts`: what a message costs, next to other programs and next to what it
//! cost before. Both build the workspace in `bench/` and leave the rest to its `bench-run`.

use std::io;
use std::path::Path;
use std::process::Command;

use crate::process;

/// What to do about the counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counts {
    /// Fail if one has grown.
    Check,
    /// Agree upon what they are.
    Bless,
}

/// Builds every program under test, runs the legs that `words` name, and prints the table. A whole run also
/// writes `bench/RESULTS.md` and `bench/growth.svg`.
pub(crate) fn run(root: &Path, words: &[String]) -> bool {
    let is_whole = words.iter().all(|word| word == "--json");
    let outcome = cargo(root, "build", &[]).and_then(|built| {
        let mut run = runner(root);
        run.args(words);
        if is_whole {
            run.arg("--write").arg(root.join("bench"));
        }
        Ok(built && process::show(&mut run)?)
    });
    said(outcome)
}

/// The tests of what measures. They are built as the counts are, so that they cost little beside them.
pub(crate) fn test(root: &Path) -> bool {
    said(cargo(root, "test", &COUNTING))
}

/// Counts instructions, one message of each kind.
pub(crate) fn counts(root: &Path, act: Counts) -> bool {
    let outcome = cargo(root, "build", &COUNTING).and_then(|built| {
        let act = match act {
            Counts::Check => "--check-counts",
            Counts::Bless => "--bless-counts",
        };
        let mut run = runner(root);
        run.arg(act).arg(root.join("bench/counts.txt"));
        Ok(built && process::show(&mut run)?)
    });
    said(outcome)
}

fn cargo(root: &Path, act: &str, packages: &[&str]) -> io::Result<bool> {
    let mut cargo = process::cargo(&root.join("bench"));
    // Not `--locked`: this lock file follows what the crates of the project depend on.
    cargo.args([act, "--release"]).args(packages);
    process::show(cargo.env("CARGO_TARGET_DIR", target(root)))
}

fn runner(root: &Path) -> Command {
    Command::new(target(root).join("release/bench-run"))
}

/// Apart from the rest, for its features and its lock file are others.
fn target(root: &Path) -> std::path::PathBuf {
    process::target_folder(root).join("bench")
}

fn said(outcome: io::Result<bool>) -> bool {
    outcome.unwrap_or_else(|error| {
        println!("the benchmark could not be run: {error}");
        false
    })
}

/// What counting needs; the other programs under test are not built for it.
const COUNTING: [&str; 4] = ["--package", "bench-counts", "--package", "bench-run"];
