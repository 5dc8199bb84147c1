//! Peers with the extension `io.modelcontextprotocol/tasks`, each with the sides that it implements. They have a
//! fixture and checks of their own.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Mutex;

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
struct TaskPeer {
    name: &'static str,
    client: Option<ProgramCommand>,
    /// The transports of the client.
    client_over: &'static [Transport],
    server: Option<ProgramCommand>,
}

/// Installs all peers, and runs them in parallel.
pub(crate) fn run(
    root: &Path,
    ours: &OurPrograms,
    known_failures: &KnownFailures,
) -> io::Result<Vec<Cell>> {
    let peers = install_all(root)?;
    in_parallel(&peers, |peer, printing| {
        run_peer(ours, peer, known_failures, printing)
    })
}

fn run_peer(
    ours: &OurPrograms,
    peer: &TaskPeer,
    known_failures: &KnownFailures,
    printing: &Mutex<()>,
) -> io::Result<Vec<Cell>> {
    let mut cells = Vec::new();
    for side in [Side::Client, Side::Server] {
        let (client, server, options, transports) = match side {
            Side::Client => (
                peer.client.as_ref(),
                Some(&ours.server),
                &["auto"][..],
                peer.client_over,
            ),
            Side::Server => (
                Some(&ours.client),
                peer.server.as_ref(),
                &["auto", "--tasks"][..],
                BOTH,
            ),
        };
        let (Some(client), Some(server)) = (client, server) else {
            continue;
        };
        for &transport in transports {
            // Keeps the server running until the cell has been run.
            let serving;
            let target = match transport {
                Transport::Stdio => server.words(&["--transport", "stdio"]),
                Transport::Http | Transport::HttpSse => {
                    serving = ServerProcess::start(&mut server.command(&["--transport", "http"]))?;
                    vec![serving.url().to_owned()]
                }
            };
            let spec = CellSpec {
                peer: peer.name,
                side,
                transport,
                mode: "auto",
                checks: CHECKS,
                version: Some(MODERN),
            };
            let cell = spec.run(client.command(options).args(target), known_failures)?;
            let _printing = printing.lock();
            println!("{cell}");
            cells.push(cell);
        }
    }
    Ok(cells)
}

fn install_all(root: &Path) -> io::Result<Vec<TaskPeer>> {
    let [ext_tasks, fastmcp, rmcp, tower_mcp] = NAMES;
    let rmcp_programs = build_in(root, "rmcp", &folder_of(root, RMCP))?;
    let tower_mcp_programs = build_in(root, "tower-mcp", &folder_of(root, tower_mcp))?;
    Ok(vec![
        npm_client(root, ext_tasks)?,
        python_peer(root, fastmcp)?,
        TaskPeer {
            name: rmcp,
            client: Some(ProgramCommand::new([rmcp_programs.join("task-client")])),
            client_over: BOTH,
            server: Some(ProgramCommand::new([rmcp_programs.join("task-server")])),
        },
        TaskPeer {
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
