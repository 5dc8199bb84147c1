//! `cargo xtask bench` and `cargo xtask counts`: the cost of a message, compared with other programs and with a
//! committed baseline. Both build the workspace in `bench/` and run its `bench-run`.

mod bridges;

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
/// `bench/RESULTS.md` and `bench/growth.svg`, and a run of the legs of bridges their section in `bench/RESULTS.md`.
pub(crate) fn run(root: &Path, words: &[String]) -> bool {
    report(try_run(root, words))
}

fn try_run(root: &Path, words: &[String]) -> io::Result<bool> {
    let legs: Vec<&str> = words.iter().map(String::as_str).collect();
    let is_complete = legs.iter().all(|word| *word == "--json");
    let names_no_leg = legs.iter().all(|word| word.starts_with("--"));
    let wants = |names: &[&str]| names_no_leg || legs.iter().any(|leg| names.contains(leg));
    let has_bridges = wants(&BRIDGE_LEGS);
    let built = cargo(root, "build", &[])?
        && (!has_bridges || build_bowline(root)?)
        && (!wants(&[TELEMETRY_LEG]) || build_telemetry(root)?);
    if !built {
        return Ok(false);
    }
    let mut run = runner(root);
    run.args(words);
    if has_bridges {
        run.arg("--bridges").arg(bridges::install(root)?);
    }
    if is_complete || legs == BRIDGE_LEGS {
        run.arg("--write").arg(root.join("bench"));
    }
    process::run(&mut run)
}

/// Runs the tests of the benchmark. They use the same build as the counts.
pub(crate) fn test(root: &Path) -> bool {
    report(cargo(root, "test", &COUNTING))
}

/// Counts the instructions of one message of each kind.
pub(crate) fn counts(root: &Path, mode: CountsMode) -> bool {
    let outcome = cargo(root, "build", &COUNTING).and_then(|built| {
        // Each alone: together their features would be added up, and these have `otel`.
        let built = built && build_telemetry(root)?;
        let built = built && cargo(root, "build", &["--package", "bench-bridge"])?;
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

fn build_telemetry(root: &Path) -> io::Result<bool> {
    cargo(root, "build", &["--package", "bench-telemetry"])
}

/// Builds the command `bowline` next to the other programs under test. It is not a package of their workspace, because
/// its dependencies would add features to those of the servers.
fn build_bowline(root: &Path) -> io::Result<bool> {
    let mut cargo = process::cargo(root);
    // Without debug information: it would change the names of the symbols, and `symbols.txt` would have no effect.
    cargo.args(["build", "--release", "--locked", "--package", "bowline-cli"]);
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

/// The leg that needs `bench-telemetry`.
const TELEMETRY_LEG: &str = "telemetry";

/// The legs that need the command `bowline` and the bridges of others.
const BRIDGE_LEGS: [&str; 3] = ["bridge", "bridge-hanging", "bridge-drops"];
