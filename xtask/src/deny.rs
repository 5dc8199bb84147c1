//! `cargo xtask deny`: what the project is built from, checked by cargo-deny against `deny.toml`: licenses, sources and
//! bans, which need crates.io and nothing else; and known vulnerabilities, if their database can be fetched.
//!
//! cargo-deny comes from crates.io, in one pinned version, and is installed in the target folder.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::process::{self, End};

/// Checks everything that can be checked; true if nothing is wrong.
pub(crate) fn run(root: &Path) -> bool {
    match check(root) {
        Ok(checked) => {
            println!("{}", checked.note());
            checked.passed
        }
        Err(error) => {
            println!("cargo-deny could not be run: {error}");
            false
        }
    }
}

/// How a check went.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) passed: bool,
    /// Whether the database of vulnerabilities was there.
    advisories: bool,
}

impl Checked {
    /// A sentence about what was not checked.
    pub(crate) fn note(&self) -> &'static str {
        match self.advisories {
            true => "licenses, sources, bans and advisories",
            false => {
                "licenses, sources and bans; advisories DID NOT RUN: their database cannot be fetched"
            }
        }
    }
}

pub(crate) fn check(root: &Path) -> io::Result<Checked> {
    let deny = install(root)?;
    // Crates for other platforms may still have to be fetched from crates.io, as for a build.
    let local = ["check", "bans", "licenses", "sources"];
    let is_clean = process::show(&mut command(root, &deny, &local))?;
    let fetched = process::keep(&mut command(root, &deny, &["fetch", "db"]), FETCH_LIMIT)?;
    if fetched.end != End::Success {
        return Ok(Checked {
            passed: is_clean,
            advisories: false,
        });
    }
    let is_safe = process::show(&mut command(
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
    // The subcommand's own program wants to be called as cargo would call it.
    command.current_dir(root).args(["--all-features"]);
    command.args(words);
    command
}

/// Where cargo-deny is; it is built once.
fn install(root: &Path) -> io::Result<PathBuf> {
    let folder = process::target_folder(root).join("deny");
    let program = folder.join("bin/cargo-deny");
    let version = Command::new(&program).arg("--version").output();
    let is_there = version.is_ok_and(|it| String::from_utf8_lossy(&it.stdout).contains(VERSION));
    if is_there {
        return Ok(program);
    }
    let mut install = process::cargo(root);
    // Without optimization: it runs for seconds, and building it takes minutes.
    install.args(["install", "cargo-deny", "--debug", "--locked"]);
    install.args(["--version", VERSION]);
    install.arg("--root").arg(&folder);
    match process::show(&mut install)? {
        true => Ok(program),
        false => Err(io::Error::other("cargo could not install cargo-deny")),
    }
}

const VERSION: &str = "0.20.2";
/// How long fetching the database may take.
const FETCH_LIMIT: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_checked_is_said() {
        let checked = Checked {
            passed: true,
            advisories: false,
        };

        assert!(checked.note().contains("DID NOT RUN"));
    }
}
