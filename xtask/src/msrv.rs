//! `cargo xtask msrv`: checks that the published crates build with the `rust-version` of the workspace, if that
//! toolchain is installed.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use crate::external_tools::parse_version;
use crate::package::PUBLISHED;
use crate::process;

/// The result of the check, with a note on what was checked.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) passed: bool,
    pub(crate) note: String,
}

/// Runs the check and prints its note; returns whether it passed.
pub(crate) fn run(root: &Path) -> io::Result<bool> {
    let checked = check(root)?;
    println!("{}", checked.note);
    Ok(checked.passed)
}

pub(crate) fn check(root: &Path) -> io::Result<Checked> {
    let manifest = fs::read_to_string(root.join("Cargo.toml"))?;
    let version = rust_version(&manifest)
        .ok_or_else(|| io::Error::other("expected a `rust-version` in Cargo.toml"))?;
    if version_of(Command::new("rustc").current_dir(root)) == parse_version(version) {
        let note = format!("Rust {version} is the toolchain of every other step");
        return Ok(Checked { passed: true, note });
    }
    let names = [version.to_owned(), format!("{version}.0")];
    let installed = names
        .into_iter()
        .find(|name| version_of(Command::new("rustup").args(["run", name, "rustc"])).is_some());
    let Some(toolchain) = installed else {
        let note = format!("DID NOT RUN: `rustup toolchain install {version}` first");
        return Ok(Checked { passed: true, note });
    };
    let mut command = Command::new("rustup");
    command.current_dir(root);
    command.args(["run", &toolchain, "cargo", "check", "--all-features"]);
    command.args(PUBLISHED.iter().flat_map(|name| ["--package", name]));
    command.env(
        "CARGO_TARGET_DIR",
        process::target_folder(root).join("msrv"),
    );
    let passed = process::run(&mut command)?;
    let note = format!("checked with Rust {toolchain}");
    Ok(Checked { passed, note })
}

/// Returns the `rust-version` of a manifest.
fn rust_version(manifest: &str) -> Option<&str> {
    let mut lines = manifest.lines();
    lines.find_map(|line| line.strip_prefix("rust-version = \"")?.strip_suffix('"'))
}

/// Returns the first two numbers of what the program prints as its version.
fn version_of(program: &mut Command) -> Option<(u32, u32)> {
    let output = program.arg("--version").output().ok()?;
    parse_version(&String::from_utf8_lossy(&output.stdout))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rust_version_is_read_from_the_manifest() {
        let manifest = "[workspace.package]\nedition = \"2024\"\nrust-version = \"1.95\"\n";

        assert_eq!(rust_version(manifest), Some("1.95"));
        assert_eq!(rust_version("edition = \"2024\""), None);
    }
}
