//! `Peer`: installs an SDK and starts the client and the server that we wrote with it.
//!
//! Our programs for each peer are in `conformance/peers`. They are copied next to the packages that they need, which
//! are installed below the target folder, so that the source tree is not modified.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::cell::{Side, Transport};
use crate::{external_tools, process};

/// Another SDK, with a client and a server written with it.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    pub(crate) client: ProgramCommand,
    pub(crate) server: ProgramCommand,
    /// The newest protocol version that it supports.
    pub(crate) newest: &'static str,
    /// The sides that still support HTTP+SSE.
    with_http_sse: &'static [Side],
}

/// The program and first arguments of a command line.
#[derive(Clone, Debug)]
pub(crate) struct ProgramCommand(Vec<String>);

/// Our own client, server, bridge and command.
#[derive(Debug)]
pub(crate) struct OurPrograms {
    pub(crate) client: ProgramCommand,
    pub(crate) server: ProgramCommand,
    pub(crate) bridge: ProgramCommand,
    /// The command `bowline`.
    pub(crate) bowline: ProgramCommand,
    /// The program that runs `bowline` against a server.
    pub(crate) tool: ProgramCommand,
    /// The server that calls another one.
    pub(crate) relay: ProgramCommand,
    /// The proxy in front of replicas.
    pub(crate) cluster_proxy: ProgramCommand,
}

impl Peer {
    /// Installs and builds all peers, as far as necessary.
    pub(crate) fn install_all(root: &Path) -> io::Result<Vec<Self>> {
        let [_, python_1, _, rmcp_3] = NAMES;
        let [python_2, typescript_2] = Self::install_recorded(root)?;
        Ok(vec![
            python_2,
            python(root, python_1, "mcp==1.30.0", "v1", LEGACY)?,
            typescript_2,
            rmcp(root, rmcp_3)?,
        ])
    }

    /// Installs the peers that are run against replicas.
    pub(crate) fn install_for_replicas(root: &Path) -> io::Result<Vec<Self>> {
        let [_, python_1, ..] = NAMES;
        let [python_2, typescript_2] = Self::install_recorded(root)?;
        let python_1 = python(root, python_1, "mcp==1.30.0", "v1", LEGACY)?;
        Ok(vec![python_1, python_2, typescript_2])
    }

    /// Installs the two peers that are recorded.
    pub(crate) fn install_recorded(root: &Path) -> io::Result<[Self; 2]> {
        Ok([
            python(root, PYTHON, "mcp==2.3.0", "v2", MODERN)?,
            typescript(root, TYPESCRIPT)?,
        ])
    }

    /// Returns the sides and transports that it supports.
    pub(crate) fn combinations(&self) -> Vec<(Side, Transport)> {
        let mut combinations = Vec::new();
        for side in [Side::Client, Side::Server] {
            combinations.extend([(side, Transport::Stdio), (side, Transport::Http)]);
            if self.with_http_sse.contains(&side) {
                combinations.push((side, Transport::HttpSse));
            }
        }
        combinations
    }

    /// Returns the modes of its client.
    pub(crate) fn modes(&self, transport: Transport) -> Vec<String> {
        let modes = match (transport, self.newest) {
            (Transport::HttpSse, _) => &["sse"][..],
            (_, MODERN) => &["auto", "2026", "legacy"],
            _ => &["legacy"],
        };
        modes.iter().map(|&mode| mode.to_owned()).collect()
    }

    /// Returns the modes of our client that its server supports.
    pub(crate) fn modes_of_ours(&self, transport: Transport) -> Vec<String> {
        let mut modes = vec!["auto"];
        if self.newest == MODERN && transport != Transport::HttpSse {
            modes.push("2026");
        }
        modes.push("legacy");
        modes.extend(match transport {
            Transport::Stdio => &[
                "legacy:2025-06-18",
                "legacy:2025-03-26",
                "legacy:2024-11-05",
            ][..],
            Transport::Http => &["legacy:2025-06-18", "legacy:2025-03-26"],
            Transport::HttpSse => &["legacy:2024-11-05"],
        });
        modes.into_iter().map(str::to_owned).collect()
    }

    /// Returns the version that a mode negotiates.
    pub(crate) fn version_of<'a>(&self, mode: &'a str, transport: Transport) -> &'a str {
        match (mode.split_once(':'), mode) {
            (Some((_, version)), _) => version,
            (None, "auto") if transport != Transport::HttpSse => self.newest,
            (None, "2026") => MODERN,
            (None, _) => LEGACY,
        }
    }
}

impl ProgramCommand {
    pub(crate) fn new(words: impl IntoIterator<Item = impl AsRef<Path>>) -> Self {
        let words = words.into_iter();
        Self(
            words
                .map(|word| word.as_ref().display().to_string())
                .collect(),
        )
    }

    /// Returns the program and all arguments.
    pub(crate) fn words(&self, arguments: &[&str]) -> Vec<String> {
        let arguments = arguments.iter().map(|&word| word.to_owned());
        self.0.iter().cloned().chain(arguments).collect()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let words = self.words(arguments);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command
    }
}

impl OurPrograms {
    pub(crate) fn build(root: &Path) -> io::Result<Self> {
        let mut build = process::cargo(root);
        build.args(["build", "--quiet"]);
        build.args([
            "--package",
            "bowline-conformance",
            "--package",
            "bowline-cli",
            "--package",
            "bowline-cluster-tests",
        ]);
        if !process::run(&mut build)? {
            return Err(io::Error::other("failed to compile our programs"));
        }
        let built = process::target_folder(root).join("debug");
        Ok(Self {
            client: ProgramCommand::new([built.join("interop-client")]),
            server: ProgramCommand::new([built.join("interop-server")]),
            bridge: ProgramCommand::new([built.join("interop-bridge")]),
            bowline: ProgramCommand::new([built.join("bowline")]),
            tool: ProgramCommand::new([built.join("interop-tool")]),
            relay: ProgramCommand::new([built.join("interop-relay")]),
            cluster_proxy: ProgramCommand::new([built.join("cluster-proxy")]),
        })
    }
}

/// Both versions have the same checks and fixture; only the names of the SDK differ.
fn python(
    root: &Path,
    name: &'static str,
    package: &str,
    suffix: &str,
    newest: &'static str,
) -> io::Result<Peer> {
    let folder = folder_of(root, name);
    copy_programs(root, "python", &folder)?;
    let python = external_tools::python(&folder.join("packages"), &[package])?;
    let program =
        |what: &str| ProgramCommand::new([&python, &folder.join(format!("{what}_{suffix}.py"))]);
    Ok(Peer {
        name,
        client: program("client"),
        server: program("server"),
        newest,
        with_http_sse: &[Side::Client, Side::Server],
    })
}

fn typescript(root: &Path, name: &'static str) -> io::Result<Peer> {
    let folder = folder_of(root, name);
    copy_programs(root, "typescript", &folder)?;
    external_tools::npm_install_once(&folder, &[])?;
    let node = external_tools::node(&process::target_folder(root))?;
    Ok(Peer {
        name,
        client: ProgramCommand::new([&node, &folder.join("client.mjs")]),
        server: ProgramCommand::new([&node, &folder.join("server.mjs")]),
        newest: MODERN,
        with_http_sse: &[Side::Client],
    })
}

fn rmcp(root: &Path, name: &'static str) -> io::Result<Peer> {
    let built = build_in(root, "rmcp", &folder_of(root, name))?;
    Ok(Peer {
        name,
        client: ProgramCommand::new([built.join("client")]),
        server: ProgramCommand::new([built.join("server")]),
        newest: MODERN,
        with_http_sse: &[],
    })
}

/// Builds our programs for a peer in Rust, and returns their folder.
pub(crate) fn build_in(root: &Path, programs: &str, target: &Path) -> io::Result<PathBuf> {
    let mut build = process::cargo(&root.join(PROGRAMS).join(programs));
    build.args(["build", "--quiet", "--locked"]);
    build.env("CARGO_TARGET_DIR", target);
    if !process::run(&mut build)? {
        let why = format!("failed to compile the programs in {PROGRAMS}/{programs}");
        return Err(io::Error::other(why));
    }
    Ok(target.join("debug"))
}

/// Returns the folder of the packages of a peer and of our programs for it.
pub(crate) fn folder_of(root: &Path, name: &str) -> PathBuf {
    let interop = process::target_folder(root).join("interop");
    interop.join(name.replace(' ', "-"))
}

pub(crate) fn copy_programs(root: &Path, language: &str, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for entry in fs::read_dir(root.join(PROGRAMS).join(language))? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), folder.join(entry.file_name()))?;
        }
    }
    Ok(())
}

pub(crate) const PROGRAMS: &str = "conformance/peers";

/// The names of all peers, in the order in which they are installed.
pub(crate) const NAMES: [&str; 4] = [
    "python 2.3.0",
    "python 1.30.0",
    "typescript 2.4.0",
    "rmcp 3.8.0",
];
/// The peer whose client is recorded.
pub(crate) const PYTHON: &str = NAMES[0];
/// The peer whose server is recorded.
pub(crate) const TYPESCRIPT: &str = NAMES[2];
/// The peer whose programs include those of the tasks fixture.
pub(crate) const RMCP: &str = NAMES[3];

pub(crate) const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(newest: &'static str) -> Peer {
        let empty = ProgramCommand(Vec::new());
        Peer {
            name: "peer",
            client: empty.clone(),
            server: empty,
            newest,
            with_http_sse: &[Side::Client],
        }
    }

    #[test]
    fn a_peer_is_run_on_both_sides_of_every_transport_it_supports() {
        let combinations = peer(MODERN).combinations();

        assert_eq!(combinations.len(), 5);
        assert!(combinations.contains(&(Side::Client, Transport::HttpSse)));
        assert!(!combinations.contains(&(Side::Server, Transport::HttpSse)));
    }

    #[test]
    fn our_client_uses_every_era_that_a_peer_supports() {
        let modern = peer(MODERN).modes_of_ours(Transport::Http);
        let legacy = peer(LEGACY).modes_of_ours(Transport::Stdio);

        assert_eq!(modern[..3], ["auto", "2026", "legacy"]);
        assert!(!legacy.contains(&"2026".to_owned()));
        assert!(legacy.contains(&"legacy:2024-11-05".to_owned()));
        assert!(!modern.contains(&"legacy:2024-11-05".to_owned()));
    }

    #[test]
    fn a_mode_negotiates_one_version() {
        let version = |newest, mode| peer(newest).version_of(mode, Transport::Http);

        assert_eq!(version(MODERN, "auto"), MODERN);
        assert_eq!(version(LEGACY, "auto"), LEGACY);
        assert_eq!(version(MODERN, "legacy"), LEGACY);
        assert_eq!(version(MODERN, "legacy:2025-06-18"), "2025-06-18");
        assert_eq!(peer(MODERN).version_of("auto", Transport::HttpSse), LEGACY);
    }
}
