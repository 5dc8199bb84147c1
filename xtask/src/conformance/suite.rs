//! The suite itself: installed from npm into the target folder, and run against our programs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::Leg;
use super::results::Required;
use crate::outside;
use crate::process::{self, End};
use crate::serving::Serving;

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
        let packages = folder.join("node_modules");
        let program = packages.join("@modelcontextprotocol/conformance/dist/index.js");
        if !program.exists() {
            let package = format!("@modelcontextprotocol/conformance@{VERSION}");
            outside::npm_install(&folder, &[&package])?;
        }
        let node = outside::node(&target)?;
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
                let mut server = Command::new(self.built.join("everything-server"));
                let server = Serving::start(&mut server)?;
                command.args(["--url", server.url()]);
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

const VERSION: &str = "0.2.0-alpha.12";

/// How long one leg may take; it takes some seconds.
const LIMIT: Duration = Duration::from_secs(300);
