//! `cargo xtask mutants --sweep`: runs cargo-mutants over `bowline-core`.
//!
//! cargo-mutants changes one expression or function at a time and runs the unit tests of the crate. A mutant that
//! survives is a missing test, code that has no effect, or equivalent to the original. Equivalent ones are listed in
//! `mutants/sweep.toml`, each with the reason. A mutant that blocks the tests counts as caught.

use std::io;
use std::path::Path;
use std::process::Command;

use super::scratch::Scratch;
use crate::external_tools;
use crate::process;
use crate::tree::Tree;

/// Runs cargo-mutants with `options` on a copy of the project; returns whether no mutant survived.
pub(crate) fn sweep(root: &Path, options: &[String]) -> io::Result<bool> {
    let program = external_tools::cargo_install(root, "cargo-mutants", VERSION)?;
    let folder = process::target_folder(root).join("mutants");
    let scratch = Scratch::open(&folder)?;
    // Also restores a file that an interrupted run has left changed.
    scratch.sync(&Tree::read(root)?)?;
    let mut command = Command::new(program);
    command.args(["mutants", "--in-place", "--package", "bowline-core"]);
    command.arg("--config").arg(root.join("mutants/sweep.toml"));
    command.arg("--output").arg(&folder).args(options);
    scratch.prepare(&mut command);
    let status = command.status()?;
    println!(
        "the mutants are listed in {}",
        folder.join("mutants.out").display()
    );
    Ok(matches!(status.code(), Some(ALL_CAUGHT | SOME_TIMED_OUT)))
}

const VERSION: &str = "27.1.0";

/// Exit codes of cargo-mutants.
const ALL_CAUGHT: i32 = 0;
const SOME_TIMED_OUT: i32 = 3;
