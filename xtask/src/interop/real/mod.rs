//! `cargo xtask interop --real`: published programs, unmodified and in their default mode.
//!
//! They do not have our fixture, so there are fewer checks: one tool is listed and called, one call is dropped.
//!
//! ```text
//! peers            the table of programs: packages, command lines, tools to call
//! installed_paths  installs a program, and replaces the placeholders in its command line
//! ```

mod installed_paths;
mod peers;

use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;

use installed_paths::InstalledPaths;
use peers::{Launch, PEERS, RealPeer, Role};

use super::cell::{Cell, CellSpec, Side, Transport};
use super::command;
use super::known_failures::KnownFailures;
use super::peers::{MODERN, OurPrograms};
use super::tool;
use crate::server_process::ServerProcess;

/// The checks, in order.
pub(crate) const CHECKS: &[&str] = &["open", "list", "call", "abandon", "close"];

/// What is between a program and ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Through {
    Nothing,
    Bridge,
    /// The command `bowline`, in the place of our client.
    Tool,
}

/// Returns the names of all programs.
pub(crate) fn names() -> Vec<&'static str> {
    PEERS.iter().map(|peer| peer.name).collect()
}

/// Returns the names of the programs that run through a bridge, too.
pub(crate) fn bridged_names() -> Vec<&'static str> {
    let bridged = PEERS.iter().filter(|peer| !peer.bridged.is_empty());
    bridged.map(|peer| peer.name).collect()
}

/// Installs and runs every program in all its launches, several at a time. The others still run if one cannot be
/// installed or started.
pub(crate) fn run(
    root: &Path,
    ours: &OurPrograms,
    known_failures: &KnownFailures,
    through: Through,
) -> io::Result<Vec<Cell>> {
    let data = installed_paths::data(root)?;
    let peers = PEERS.iter().filter(|peer| match through {
        Through::Nothing => true,
        Through::Bridge => !peer.bridged.is_empty(),
        Through::Tool => peer.is_reference_server,
    });
    let waiting = Mutex::new(peers.enumerate());
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let next = lock(&waiting).next();
                    let Some((index, peer)) = next else { break };
                    let cells = run_peer(root, ours, peer, &data, known_failures, through);
                    let mut done = lock(&done);
                    match &cells {
                        Ok(cells) => cells.iter().for_each(|cell| println!("{cell}")),
                        Err(error) => println!("failed to run {}: {error}", peer.name),
                    }
                    done.push((index, cells));
                }
            });
        }
    });
    let mut done = done
        .into_inner()
        .unwrap_or_else(|poison| poison.into_inner());
    done.sort_by_key(|(index, _)| *index);
    let each: io::Result<Vec<Vec<Cell>>> = done.into_iter().map(|(_, cells)| cells).collect();
    Ok(each?.into_iter().flatten().collect())
}

fn run_peer(
    root: &Path,
    ours: &OurPrograms,
    peer: &RealPeer,
    data: &Path,
    known_failures: &KnownFailures,
    through: Through,
) -> io::Result<Vec<Cell>> {
    let paths = InstalledPaths::install(root, peer, data)?;
    match through {
        Through::Nothing => {
            let launches = peer.launches.iter();
            launches
                .map(|launch| run_launch(ours, peer, launch, &paths, known_failures))
                .collect()
        }
        Through::Bridge => {
            let launches = peer.bridged.iter();
            launches
                .map(|launch| run_bridged(ours, peer, launch, &paths, known_failures))
                .collect()
        }
        Through::Tool => {
            let mut cells = Vec::new();
            for launch in peer.launches {
                cells.extend(run_tool(ours, peer, launch, &paths, known_failures)?);
            }
            Ok(cells)
        }
    }
}

/// Runs `bowline` with a server in its newest era, and in the legacy era if that is another one.
fn run_tool(
    ours: &OurPrograms,
    peer: &RealPeer,
    launch: &Launch,
    paths: &InstalledPaths,
    known_failures: &KnownFailures,
) -> io::Result<Vec<Cell>> {
    let Role::Server(case) = &launch.role else {
        return Ok(Vec::new());
    };
    // Keeps the server running until the cells have been run.
    let _serving;
    let target = match launch.over.path() {
        None => paths.words(launch.start, 0),
        Some(path) => {
            let port = free_port()?;
            let mut server = command(&paths.words(launch.start, port));
            _serving = ServerProcess::start_at(&mut server, port)?;
            vec![format!("http://127.0.0.1:{port}{path}")]
        }
    };
    let run = |mode: &str| {
        let spec = CellSpec {
            peer: peer.name,
            side: Side::Server,
            transport: launch.over,
            mode,
            checks: tool::REAL_CHECKS,
            version: None,
        };
        let mut program = ours.tool.command(&[mode]);
        spec.run(
            program.args(case.words(paths)).args(&target),
            known_failures,
        )
    };
    let newest = run("auto")?;
    match newest.version == MODERN {
        true => Ok(vec![newest, run("legacy")?]),
        false => Ok(vec![newest]),
    }
}

/// Runs a launch with a bridge in front of the server, which runs over stdio. `over` is the transport of the client.
fn run_bridged(
    ours: &OurPrograms,
    peer: &RealPeer,
    launch: &Launch,
    paths: &InstalledPaths,
    known_failures: &KnownFailures,
) -> io::Result<Cell> {
    let (eras, behind) = match &launch.role {
        Role::Client => (
            ("auto", "2026"),
            ours.server.words(&["--transport", "stdio"]),
        ),
        Role::Server(_) => (("2026", "legacy"), paths.words(launch.start, 0)),
    };
    let front = match launch.over {
        Transport::Stdio => "stdio",
        Transport::Http | Transport::HttpSse => "http",
    };
    let mut bridge = ours.bridge.words(&["--transport", front, eras.1]);
    bridge.extend(behind);
    // Keeps the bridge running until the cell has been run.
    let bridging = match launch.over {
        Transport::Stdio => None,
        Transport::Http | Transport::HttpSse => Some(ServerProcess::start(&mut command(&bridge))?),
    };
    let target = match &bridging {
        Some(bridging) => vec![bridging.url().to_owned()],
        None => bridge,
    };
    let mut client = match &launch.role {
        Role::Client => {
            let mut client = command(&paths.words(launch.start, 0));
            client.arg(eras.0);
            client
        }
        Role::Server(case) => {
            let mut client = ours.client.command(&[eras.0]);
            client.args(case.words(paths));
            client
        }
    };
    let spec = CellSpec {
        peer: peer.name,
        side: launch.role.side(),
        transport: launch.over,
        mode: &format!("{} → {}", eras.0, eras.1),
        checks: CHECKS,
        version: None,
    };
    spec.run(client.args(target), known_failures)
}

fn run_launch(
    ours: &OurPrograms,
    peer: &RealPeer,
    launch: &Launch,
    paths: &InstalledPaths,
    known_failures: &KnownFailures,
) -> io::Result<Cell> {
    let mode = match (&launch.role, launch.over) {
        (Role::Client, Transport::HttpSse) => "sse",
        _ => "auto",
    };
    let spec = CellSpec {
        peer: peer.name,
        side: launch.role.side(),
        transport: launch.over,
        mode,
        checks: CHECKS,
        version: None,
    };
    // Keeps the server running until the cell has been run.
    let _serving;
    let mut client = match &launch.role {
        Role::Client => {
            let target = match launch.over {
                Transport::Stdio => ours.server.words(&["--transport", "stdio"]),
                Transport::Http | Transport::HttpSse => {
                    let mut server = ours.server.command(&["--transport", "http"]);
                    let serving = ServerProcess::start(&mut server)?;
                    let url = serving.url().to_owned();
                    _serving = serving;
                    vec![url]
                }
            };
            let mut client = command(&paths.words(launch.start, 0));
            client.arg(mode).args(target);
            client
        }
        Role::Server(case) => {
            let target = match launch.over.path() {
                None => paths.words(launch.start, 0),
                Some(path) => {
                    let port = free_port()?;
                    let mut server = command(&paths.words(launch.start, port));
                    _serving = ServerProcess::start_at(&mut server, port)?;
                    vec![format!("http://127.0.0.1:{port}{path}")]
                }
            };
            let mut client = ours.client.command(&[mode]);
            client.args(case.words(paths)).args(target);
            client
        }
    };
    spec.run(&mut client, known_failures)
}

impl Transport {
    /// Returns the path that most servers use.
    fn path(self) -> Option<&'static str> {
        match self {
            Self::Stdio => None,
            Self::Http => Some("/mcp"),
            Self::HttpSse => Some("/sse"),
        }
    }
}

impl Role {
    fn side(&self) -> Side {
        match self {
            Self::Client => Side::Client,
            Self::Server(_) => Side::Server,
        }
    }
}

/// Returns a free port, for servers that do not print the port they listen on. It is outside of the ephemeral range:
/// seconds pass until the server listens, and another process could get an ephemeral port meanwhile.
fn free_port() -> io::Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Concurrent runs start at different ports.
    let offset = (std::process::id() % u32::from(PORTS)) as u16;
    for _ in 0..PORTS {
        let next = NEXT.fetch_add(1, Ordering::Relaxed) % PORTS;
        let port = FIRST_PORT + (offset + next) % PORTS;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Err(io::Error::other("no free port"))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// More workers than cores, because the programs mostly wait.
const WORKERS: usize = 3;
const FIRST_PORT: u16 = 20_000;
const PORTS: u16 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_returned_once_and_is_not_ephemeral() {
        let (first, second) = (free_port().unwrap(), free_port().unwrap());

        assert_ne!(first, second);
        assert!((FIRST_PORT..FIRST_PORT + PORTS).contains(&first));
    }
}
