//! The suite itself: installed from npm into the target folder, and run against our programs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::results::{Results, Scenarios};
use super::{Leg, Set};
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

    /// What is in a set, for either leg.
    pub(crate) fn scenarios(&self, set: Set) -> io::Result<Scenarios> {
        let mut command = self.command();
        command.arg("list").args(arguments(set));
        let finished = process::keep(&mut command, LIMIT)?;
        Ok(Scenarios::parse(&finished.output))
    }

    /// Runs one leg of a set.
    pub(crate) fn run(&self, leg: Leg, set: Set) -> io::Result<Results> {
        let name = format!("{}-{}", leg.name(), set.version());
        let folder = self.results.join(name);
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        let mut command = self.command();
        command.arg(leg.name()).args(arguments(set));
        command.arg("--output-dir").arg(&folder);
        let exits = folder.join("exits.txt");
        let server = match leg {
            Leg::Server => {
                let mut server = Command::new(self.built.join("everything-server"));
                let server = Serving::start(&mut server)?;
                command.args(["--url", server.url()]);
                Some(server)
            }
            Leg::Client => {
                let client = self.built.join("everything-client");
                let watched = watched(&folder, &client, &exits)?;
                command.arg("--command").arg(watched);
                None
            }
        };
        if let (Set::Applying(_), Leg::Client) = (set, leg) {
            command.args(["--suite", "all"]);
        }
        let finished = process::keep(&mut command, LIMIT)?;
        drop(server);
        // The status of the suite says less than its results, which are judged one by one.
        if finished.end == End::Hung {
            return Err(io::Error::other("the suite did not come to its end"));
        }
        Results::read(&folder, leg, &exits)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.node);
        command.arg(&self.program);
        command
    }
}

fn arguments(set: Set) -> [&'static str; 2] {
    match set {
        Set::Required(version) => ["--requirements", version],
        Set::Applying(version) => ["--spec-version", version],
    }
}

/// The command of a script that runs our client and writes down how it ended, which the suite does not tell.
fn watched(folder: &Path, client: &Path, exits: &Path) -> io::Result<String> {
    let script = folder.join("client.sh");
    let (client, exits) = (client.display(), exits.display());
    let text = format!(
        "#!/bin/sh\n\
         '{client}' \"$@\"\n\
         status=$?\n\
         echo \"$MCP_CONFORMANCE_SCENARIO $status\" >> '{exits}'\n\
         exit $status\n"
    );
    fs::write(&script, text)?;
    Ok(format!("sh {}", script.display()))
}

const VERSION: &str = "0.2.0-alpha.12";

/// How long one leg may take; it takes some seconds.
const LIMIT: Duration = Duration::from_secs(300);
