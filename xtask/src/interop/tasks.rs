//! Peers with the extension `io.modelcontextprotocol/tasks`, each with the sides that it implements. They have a
//! fixture and checks of their own.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use super::bridged::BehindBridge;
use super::cell::{Cell, CellSpec, Side, Transport};
use super::in_parallel;
use super::known_failures::KnownFailures;
use super::peers::{
    MODERN, OurPrograms, PROGRAMS, ProgramCommand, RMCP, build_in, copy_programs, folder_of,
};
use crate::server_process::ServerProcess;
use crate::{external_tools, process};

/// The checks, in order.
pub(crate) const CHECKS: &[&str] = &[
    "open", "call", "attach", "ask", "errors", "cancel", "unknown", "close",
];

/// The names of all peers, in the order in which they are installed.
pub(crate) const NAMES: [&str; 4] = [
    "ext-tasks 0.2.2",
    "fastmcp-tasks 4.1.2",
    "rmcp tasks 3.8.0",
    "tower-mcp 0.25.0",
];

/// An implementation of tasks, with the programs that we wrote with it.
#[derive(Debug)]
pub(crate) struct TaskPeer {
    name: &'static str,
    client: Option<ProgramCommand>,
    /// The transports of the client.
    client_over: &'static [Transport],
    server: Option<ProgramCommand>,
}

/// Runs the peers in parallel, and the cells of each peer in order.
pub(crate) fn run(
    ours: &OurPrograms,
    peers: &[TaskPeer],
    known_failures: &KnownFailures,
) -> io::Result<Vec<Cell>> {
    run_pairs(ours, peers, |pair| {
        // Keeps the server running until the cell has been run.
        let serving;
        let target = match pair.transport {
            Transport::Stdio => pair.server.words(&["--transport", "stdio"]),
            Transport::Http | Transport::HttpSse => {
                let mut server = pair.server.command(&["--transport", "http"]);
                serving = ServerProcess::start(&mut server)?;
                vec![serving.url().to_owned()]
            }
        };
        let spec = pair.spec("auto");
        spec.run(pair.client().args(target), known_failures)
    })
}

/// Runs the peers with a bridge between client and server.
pub(crate) fn run_bridged(
    ours: &OurPrograms,
    peers: &[TaskPeer],
    known_failures: &KnownFailures,
) -> io::Result<Vec<Cell>> {
    run_pairs(ours, peers, |pair| {
        let behind = BehindBridge {
            bridge: &ours.bridge,
            server: pair.server,
            mode: "2026",
        };
        behind.run(pair.spec("auto → 2026"), pair.client(), known_failures)
    })
}

fn run_pairs(
    ours: &OurPrograms,
    peers: &[TaskPeer],
    run_pair: impl Fn(Pair<'_>) -> io::Result<Cell> + Sync,
) -> io::Result<Vec<Cell>> {
    in_parallel(peers, |peer, printing| {
        let mut cells = Vec::new();
        for pair in peer.pairs(ours) {
            let cell = run_pair(pair)?;
            let _printing = printing.lock();
            println!("{cell}");
            cells.push(cell);
        }
        Ok(cells)
    })
}

/// A client and a server, one of which is written with the peer.
#[derive(Clone, Copy, Debug)]
struct Pair<'a> {
    peer: &'static str,
    side: Side,
    /// The transport of the peer.
    transport: Transport,
    client: &'a ProgramCommand,
    server: &'a ProgramCommand,
}

impl Pair<'_> {
    fn client(self) -> Command {
        let options = match self.side {
            Side::Client => &["auto"][..],
            Side::Server => &["auto", "--tasks"],
        };
        self.client.command(options)
    }

    fn spec(self, mode: &'static str) -> CellSpec<'static> {
        CellSpec {
            peer: self.peer,
            side: self.side,
            transport: self.transport,
            mode,
            checks: CHECKS,
            version: Some(MODERN),
        }
    }
}

impl TaskPeer {
    /// Returns the pairs of this peer, for each side and transport that it implements.
    fn pairs<'a>(&'a self, ours: &'a OurPrograms) -> Vec<Pair<'a>> {
        let pair = |side, transport, client, server| Pair {
            peer: self.name,
            side,
            transport,
            client,
            server,
        };
        let mut pairs = Vec::new();
        if let Some(client) = &self.client {
            let transports = self.client_over.iter();
            pairs.extend(transports.map(|&over| pair(Side::Client, over, client, &ours.server)));
        }
        if let Some(server) = &self.server {
            let transports = BOTH.iter();
            pairs.extend(transports.map(|&over| pair(Side::Server, over, &ours.client, server)));
        }
        pairs
    }

    /// Installs and builds all peers, as far as necessary.
    pub(crate) fn install_all(root: &Path) -> io::Result<Vec<Self>> {
        let [ext_tasks, fastmcp, rmcp, tower_mcp] = NAMES;
        let rmcp_programs = build_in(root, "rmcp", &folder_of(root, RMCP))?;
        let tower_mcp_programs = build_in(root, "tower-mcp", &folder_of(root, tower_mcp))?;
        Ok(vec![
            npm_client(root, ext_tasks)?,
            python_peer(root, fastmcp)?,
            Self {
                name: rmcp,
                client: Some(ProgramCommand::new([rmcp_programs.join("task-client")])),
                client_over: BOTH,
                server: Some(ProgramCommand::new([rmcp_programs.join("task-server")])),
            },
            Self {
                name: tower_mcp,
                client: Some(ProgramCommand::new(
                    [tower_mcp_programs.join("task-client")],
                )),
                // Its client for HTTP would double the time of the build.
                client_over: &[Transport::Stdio],
                server: Some(ProgramCommand::new(
                    [tower_mcp_programs.join("task-server")],
                )),
            },
        ])
    }
}

/// It is a library for clients only.
fn npm_client(root: &Path, name: &'static str) -> io::Result<TaskPeer> {
    let folder = folder_of(root, name);
    copy_programs(root, "tasks", &folder)?;
    external_tools::npm_install_once(
        &folder,
        &[
            "@modelcontextprotocol/ext-tasks@0.2.2",
            "@modelcontextprotocol/client@2.4.0",
        ],
    )?;
    let node = external_tools::node(&process::target_folder(root))?;
    Ok(TaskPeer {
        name,
        client: Some(ProgramCommand::new([
            &node,
            &folder.join("ext_tasks_client.mjs"),
        ])),
        client_over: BOTH,
        server: None,
    })
}

fn python_peer(root: &Path, name: &'static str) -> io::Result<TaskPeer> {
    let folder = folder_of(root, name);
    copy_programs(root, "tasks", &folder)?;
    for shared in ["checks.py", "fixture.py"] {
        let shared_path = root.join(PROGRAMS).join("python").join(shared);
        fs::copy(shared_path, folder.join(shared))?;
    }
    let packages = [
        "fastmcp[tasks]==4.1.2",
        "fastmcp-tasks==4.1.2",
        "mcp==2.3.0",
    ];
    let python = external_tools::python(&folder.join("packages"), &packages)?;
    let program = |name: &str| Some(ProgramCommand::new([&python, &folder.join(name)]));
    Ok(TaskPeer {
        name,
        client: program("fastmcp_client.py"),
        client_over: BOTH,
        server: program("fastmcp_server.py"),
    })
}

const BOTH: &[Transport] = &[Transport::Stdio, Transport::Http];
