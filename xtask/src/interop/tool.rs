//! The command `bowline` with the servers of the peers, run by `interop-tool` as a user runs it.

use std::io;

use super::cell::{Cell, CellSpec, Side, Transport};
use super::in_parallel;
use super::known_failures::KnownFailures;
use super::peers::{OurPrograms, Peer};
use crate::server_process::ServerProcess;

/// Runs the peers in parallel, and the cells of each peer in order.
pub(crate) fn run(
    ours: &OurPrograms,
    peers: &[Peer],
    known_failures: &KnownFailures,
) -> io::Result<Vec<Cell>> {
    in_parallel(peers, |peer, printing| {
        let mut cells = Vec::new();
        for transport in [Transport::Stdio, Transport::Http] {
            for mode in modes(peer, transport) {
                let cell = run_cell(ours, peer, transport, mode, known_failures)?;
                let _printing = printing.lock();
                println!("{cell}");
                cells.push(cell);
            }
        }
        Ok(cells)
    })
}

/// Returns one mode for each era that the server supports.
fn modes(peer: &Peer, transport: Transport) -> Vec<&'static str> {
    let supported = peer.modes_of_ours(transport);
    let mut modes = vec!["2026", "legacy"];
    modes.retain(|mode| supported.iter().any(|it| it == mode));
    modes
}

fn run_cell(
    ours: &OurPrograms,
    peer: &Peer,
    transport: Transport,
    mode: &'static str,
    known_failures: &KnownFailures,
) -> io::Result<Cell> {
    // Keeps the server running until the cell has been run. One for each cell, because its counters are checked.
    let serving = match transport {
        Transport::Stdio => None,
        Transport::Http | Transport::HttpSse => {
            let mut server = peer.server.command(&["--transport", "http"]);
            Some(ServerProcess::start(&mut server)?)
        }
    };
    let target = match &serving {
        Some(serving) => vec![serving.url().to_owned()],
        None => peer.server.words(&["--transport", "stdio"]),
    };
    let spec = CellSpec {
        peer: peer.name,
        side: Side::Server,
        transport,
        mode,
        checks: CHECKS,
        version: Some(peer.version_of(mode, transport)),
    };
    spec.run(ours.tool.command(&[mode]).args(target), known_failures)
}

/// The checks of a server with the fixture, in order.
pub(crate) const CHECKS: &[&str] = &[
    "bowline ls",
    "bowline call",
    "bowline call and Ctrl-C",
    "bowline watch",
    "bowline tap",
    "bowline check",
    "bowline doctor",
];

/// The checks of a published server.
pub(crate) const REAL_CHECKS: &[&str] = &[
    "bowline ls",
    "bowline call",
    "bowline watch",
    "bowline tap",
    "bowline check",
    "bowline doctor",
];
