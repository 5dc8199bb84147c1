//! The API documentation with the flags of docs.rs: `--cfg docsrs` enables `doc_cfg`, which shows the feature that an
//! item needs.
//!
//! docs.rs builds with a nightly toolchain; a stable rustdoc accepts the flags with `RUSTC_BOOTSTRAP`. Build scripts must
//! not see that variable: some detect it, and everything that depends on them would be built again. So cargo runs this
//! program in place of rustdoc, and this program runs rustdoc with the variable.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::process;

/// Builds the documentation of the workspace; returns whether it has no warnings.
pub(crate) fn run(root: &Path) -> io::Result<bool> {
    let mut command = process::cargo(root);
    command.args(["doc", "--workspace", "--no-deps", "--all-features"]);
    command.env("RUSTDOC", own_program()?);
    command.env(AS_RUSTDOC, "1");
    command.env("RUSTDOCFLAGS", "--cfg docsrs -D warnings");
    process::run(&mut command)
}

/// Returns the path of this program. If it was built again since it was started, that is the new file.
fn own_program() -> io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let replaced = program
        .to_str()
        .and_then(|it| it.strip_suffix(" (deleted)"));
    Ok(replaced.map(PathBuf::from).unwrap_or(program))
}

/// Runs rustdoc if cargo started this program in its place.
#[must_use]
pub fn run_as_rustdoc(arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    std::env::var_os(AS_RUSTDOC)?;
    let mut rustdoc = Command::new("rustdoc");
    rustdoc.args(arguments).env("RUSTC_BOOTSTRAP", "1");
    Some(match process::run(&mut rustdoc) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("failed to run rustdoc: {error}");
            ExitCode::FAILURE
        }
    })
}

const AS_RUSTDOC: &str = "BOWLINE_XTASK_AS_RUSTDOC";
