//! `cargo xtask deny`: checks the dependencies with cargo-deny and `deny.toml`: licenses, sources and bans, which need
//! only crates.io, and advisories, if their database can be fetched.
//!
//! cargo-deny is installed from crates.io at a pinned version, into the target folder.

use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::external_tools;
use crate::process::{self, ExitKind};

/// Runs all possible checks; returns whether they passed.
pub(crate) fn run(root: &Path) -> bool {
    match check(root) {
        Ok(checked) => {
            println!("{}", checked.note());
            checked.passed
        }
        Err(error) => {
            println!("failed to run cargo-deny: {error}");
            false
        }
    }
}

/// The result of all checks.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) passed: bool,
    /// Whether advisories were checked.
    advisories: bool,
}

impl Checked {
    /// Describes which checks ran.
    pub(crate) fn note(&self) -> &'static str {
        match self.advisories {
            true => "licenses, sources, bans and advisories",
            false => {
                "licenses, sources and bans; advisories DID NOT RUN: failed to fetch their database"
            }
        }
    }
}

pub(crate) fn check(root: &Path) -> io::Result<Checked> {
    let deny = external_tools::cargo_install(root, "cargo-deny", VERSION)?;
    // May fetch crates for other platforms from crates.io.
    let local = ["check", "bans", "licenses", "sources"];
    let is_clean = process::run(&mut command(root, &deny, &local))?;
    let fetched = process::capture(&mut command(root, &deny, &["fetch", "db"]), FETCH_LIMIT)?;
    if fetched.end != ExitKind::Success {
        return Ok(Checked {
            passed: is_clean,
            advisories: false,
        });
    }
    let is_safe = process::run(&mut command(
        root,
        &deny,
        &["--offline", "check", "advisories"],
    ))?;
    Ok(Checked {
        passed: is_clean && is_safe,
        advisories: true,
    })
}

fn command(root: &Path, deny: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(deny);
    command.current_dir(root).args(["--all-features"]);
    command.args(words);
    command
}

const VERSION: &str = "0.20.2";
/// The timeout for fetching the advisory database.
const FETCH_LIMIT: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_did_not_run_is_reported() {
        let checked = Checked {
            passed: true,
            advisories: false,
        };

        assert!(checked.note().contains("DID NOT RUN"));
    }
}
