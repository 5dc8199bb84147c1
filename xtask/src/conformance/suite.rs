//! `Suite`: installs the official suite from npm, and runs it against our programs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::results::{Results, Scenarios};
use super::{Behind, Leg, ScenarioSet};
use crate::external_tools;
use crate::process::{self, ExitKind};
use crate::server_process::ServerProcess;

/// The installed suite.
#[derive(Debug)]
pub(crate) struct Suite {
    node: PathBuf,
    program: PathBuf,
    /// The folder for the results.
    results: PathBuf,
    /// The folder of our programs.
    built: PathBuf,
}

impl Suite {
    /// Installs the suite if necessary, and builds our programs.
    pub(crate) fn install(root: &Path) -> io::Result<Self> {
        let target = process::target_folder(root);
        let folder = target.join("conformance").join(VERSION);
        let package = format!("@modelcontextprotocol/conformance@{VERSION}");
        external_tools::npm_install_once(&folder, &[&package])?;
        let packages = folder.join("node_modules");
        let program = packages.join("@modelcontextprotocol/conformance/dist/index.js");
        let node = external_tools::node(&target)?;
        let mut build = process::cargo(root);
        build.args(["build", "--quiet", "--package", "bowline-conformance"]);
        build.args(["--package", "bowline-cli"]);
        if !process::run(&mut build)? {
            return Err(io::Error::other("failed to compile our programs"));
        }
        Ok(Self {
            node,
            program,
            results: target.join("conformance/results"),
            built: target.join("debug"),
        })
    }

    /// Returns the scenarios of a set, for both legs.
    pub(crate) fn scenarios(&self, set: ScenarioSet) -> io::Result<Scenarios> {
        let mut command = self.command();
        command.arg("list").args(arguments(set));
        let captured = process::capture(&mut command, LIMIT)?;
        Ok(Scenarios::parse(&captured.output))
    }

    /// Runs one leg of a set.
    pub(crate) fn run(&self, leg: Leg, set: ScenarioSet) -> io::Result<Results> {
        let name = format!("{}-{}", leg.name(), set.version());
        let folder = self.results.join(name);
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        let mut command = self.command();
        command.arg(leg.of_suite().name()).args(arguments(set));
        command.arg("--output-dir").arg(&folder);
        let exits = folder.join("exits.txt");
        // The last one is what the suite connects to.
        let servers = match leg {
            Leg::Server => vec![self.start_server(None)?],
            Leg::Bridge(behind) => self.start_bridge(behind)?,
            Leg::Client | Leg::BridgedClient => {
                let mut client = format!("'{}'", self.built.join("everything-client").display());
                if leg == Leg::BridgedClient {
                    let bowline = self.built.join("bowline");
                    client = format!("{client} --through '{}'", bowline.display());
                }
                let wrapped = wrap_client(&folder, &client, &exits)?;
                command.arg("--command").arg(wrapped);
                Vec::new()
            }
        };
        if let Some(server) = servers.last() {
            command.args(["--url", server.url()]);
        }
        if let (ScenarioSet::Applying(_), Leg::Client) = (set, leg.of_suite()) {
            command.args(["--suite", "all"]);
        }
        let captured = process::capture(&mut command, LIMIT)?;
        drop(servers);
        // The exit status of the suite is ignored: each result is evaluated on its own.
        if captured.end == ExitKind::TimedOut {
            return Err(io::Error::other("the suite timed out"));
        }
        Results::read(&folder, leg, &exits)
    }

    /// Starts the server, restricted to an era if one is given.
    fn start_server(&self, only: Option<&str>) -> io::Result<ServerProcess> {
        let mut command = Command::new(self.built.join(SERVER));
        if let Some(era) = only {
            command.args(["--only", era]);
        }
        ServerProcess::start(&mut command)
    }

    /// Starts a bridge, and before it the server behind it, unless the bridge does. The bridge finds the era of the server
    /// out by itself.
    fn start_bridge(&self, behind: Behind) -> io::Result<Vec<ServerProcess>> {
        let mut bridge = Command::new(self.built.join("bowline"));
        bridge.args(["bridge", "--http", "127.0.0.1:0"]);
        let mut started = Vec::new();
        match behind {
            Behind::Modern | Behind::Legacy => {
                let era = match behind {
                    Behind::Legacy => "legacy",
                    _ => "modern",
                };
                let server = self.start_server(Some(era))?;
                bridge.arg(server.url());
                started.push(server);
            }
            Behind::Stdio | Behind::LegacyStdio => {
                // The suite answers few of the questions that it is asked, and each such call keeps a process.
                bridge.args(["--max-connections-each", "50"]);
                bridge.arg("--").arg(self.built.join(SERVER));
                if behind == Behind::LegacyStdio {
                    bridge.args(["--only", "legacy"]);
                }
                bridge.arg("--stdio");
            }
        }
        let listening = "bowline: listening on ";
        started.push(ServerProcess::start_with_line(&mut bridge, listening)?);
        Ok(started)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.node);
        command.arg(&self.program);
        command
    }
}

fn arguments(set: ScenarioSet) -> [&'static str; 2] {
    match set {
        ScenarioSet::Required(version) => ["--requirements", version],
        ScenarioSet::Applying(version) => ["--spec-version", version],
    }
}

/// Writes a script that runs our client and records its exit status, which the suite does not report. Returns its
/// command.
fn wrap_client(folder: &Path, client: &str, exits: &Path) -> io::Result<String> {
    let script = folder.join("client.sh");
    let exits = exits.display();
    let text = format!(
        "#!/bin/sh\n\
         {client} \"$@\"\n\
         status=$?\n\
         echo \"$MCP_CONFORMANCE_SCENARIO $status\" >> '{exits}'\n\
         exit $status\n"
    );
    fs::write(&script, text)?;
    Ok(format!("sh {}", script.display()))
}

const SERVER: &str = "everything-server";

const VERSION: &str = "0.2.0-alpha.12";

/// The timeout of one leg; it usually takes some seconds.
const LIMIT: Duration = Duration::from_secs(900);
