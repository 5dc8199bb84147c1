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
/// writes `bench/RESULTS.md`.
pub(crate) fn run(root: &Path, words: &[String]) -> bool {
    let is_whole = words.iter().all(|word| word == "--json");
    let outcome = build(root, &[]).and_then(|built| {
        let mut run = runner(root);
        run.args(words);
        if is_whole {
            run.arg("--write").arg(root.join("bench/RESULTS.md"));
        }
        Ok(built && process::show(&mut run)?)
    });
    said(outcome)
}

/// Counts instructions, one message of each kind.
pub(crate) fn counts(root: &Path, act: Counts) -> bool {
    let only = ["--package", "bench-counts", "--package", "bench-run"];
    let outcome = build(root, &only).and_then(|built| {
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

fn build(root: &Path, packages: &[&str]) -> io::Result<bool> {
    let mut cargo = process::cargo(&root.join("bench"));
    cargo
        .args(["build", "--release", "--locked"])
        .args(packages);
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
