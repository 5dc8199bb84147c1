//! The peers with a bridge between client and server, in every pair of eras.
//!
//! ```text
//! their client ─ stdio, HTTP, HTTP+SSE ─▶ bridge ─ the same, or HTTP ──▶ our server
//! our client ─── HTTP ──────────────────▶ bridge ─ stdio ──────────────▶ their server
//! our client ─── stdio ─────────────────▶ bridge ─ HTTP, HTTP+SSE ─────▶ their server
//! ```

use std::io;
use std::process::Command;

use super::cell::{CHECKS, Cell, CellSpec, Side, Transport};
use super::known_failures::KnownFailures;
use super::peers::{OurPrograms, Peer, ProgramCommand};
use super::{command, in_parallel};
use crate::server_process::ServerProcess;

/// Runs the peers in parallel, and the cells of each peer in order.
pub(crate) fn run(
    ours: &OurPrograms,
    peers: &[Peer],
    known_failures: &KnownFailures,
) -> io::Result<Vec<Cell>> {
    in_parallel(peers, |peer, printing| {
        let mut cells = Vec::new();
        for (side, transport) in peer.combinations() {
            for eras in Eras::of(peer, side, transport) {
                let cell = run_cell(ours, peer, side, transport, eras, known_failures)?;
                let _printing = printing.lock();
                println!("{cell}");
                cells.push(cell);
            }
        }
        Ok(cells)
    })
}

/// The modes of both sides of a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Eras {
    client: &'static str,
    server: &'static str,
}

impl Eras {
    /// Returns the pairs of an era of the peer and one of ours.
    fn of(peer: &Peer, side: Side, transport: Transport) -> Vec<Self> {
        let modes = match side {
            Side::Client => peer.modes(transport),
            Side::Server => peer.modes_of_ours(transport),
        };
        let has = |mode: &&str| modes.iter().any(|it| it == mode);
        let of_peer = ["2026", "legacy", "sse"].into_iter().filter(has);
        let pairs = of_peer.flat_map(|of_peer| {
            ["2026", "legacy"].map(|of_ours| match side {
                Side::Client => Self {
                    client: of_peer,
                    server: of_ours,
                },
                Side::Server => Self {
                    client: of_ours,
                    server: of_peer,
                },
            })
        });
        pairs.collect()
    }
}

fn run_cell(
    ours: &OurPrograms,
    peer: &Peer,
    side: Side,
    transport: Transport,
    eras: Eras,
    known_failures: &KnownFailures,
) -> io::Result<Cell> {
    let (client, server) = match side {
        Side::Client => (&peer.client, &ours.server),
        Side::Server => (&ours.client, &peer.server),
    };
    let behind = BehindBridge {
        bridge: &ours.bridge,
        server,
        mode: eras.server,
    };
    let spec = CellSpec {
        peer: peer.name,
        side,
        transport,
        mode: &format!("{} → {}", eras.client, eras.server),
        checks: CHECKS,
        version: Some(peer.version_of(eras.client, transport)),
    };
    behind.run(spec, client.command(&[eras.client]), known_failures)
}

/// A server with a bridge in front of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BehindBridge<'a> {
    pub(crate) bridge: &'a ProgramCommand,
    pub(crate) server: &'a ProgramCommand,
    /// The mode in which the bridge uses the server.
    pub(crate) mode: &'a str,
}

impl BehindBridge<'_> {
    /// Starts the server and the bridge, and runs `client`, to whose arguments the target is added.
    pub(crate) fn run(
        self,
        spec: CellSpec<'_>,
        mut client: Command,
        known_failures: &KnownFailures,
    ) -> io::Result<Cell> {
        let serving = match (spec.transport, spec.side) {
            (Transport::Stdio, _) => None,
            // Our server serves both at one URL.
            (Transport::Http, _) | (Transport::HttpSse, Side::Client) => Some("http"),
            (Transport::HttpSse, Side::Server) => Some("sse"),
        };
        // Keeps the server running until the cell has been run.
        let serving = serving
            .map(|name| ServerProcess::start(&mut self.server.command(&["--transport", name])));
        let serving = serving.transpose()?;
        let behind = match &serving {
            Some(serving) => vec![serving.url().to_owned()],
            None => self.server.words(&["--transport", "stdio"]),
        };
        let front = match (spec.side, spec.transport) {
            (Side::Client, Transport::Stdio) => "stdio",
            (Side::Client, Transport::Http | Transport::HttpSse) => "http",
            (Side::Server, Transport::Stdio) => "http",
            (Side::Server, Transport::Http | Transport::HttpSse) => "stdio",
        };
        let mut options = vec!["--transport", front];
        if spec.transport == Transport::Stdio {
            // The fixture has state, and each connection is a process.
            options.extend(["--connections", "1"]);
        }
        options.push(self.mode);
        let bridge = self.bridge.words(&options);
        let bridge: Vec<String> = bridge.into_iter().chain(behind).collect();
        let bridging = match front {
            "http" => Some(ServerProcess::start(&mut command(&bridge))?),
            _ => None,
        };
        let target = match &bridging {
            Some(bridging) => vec![bridging.url().to_owned()],
            None => bridge,
        };
        spec.run(client.args(target), known_failures)
    }
}

/// The checks in the order of their columns: first those that the other cells of a bridge have, too.
pub(crate) const COLUMNS: &[&str] = &[
    "call",
    "progress",
    "abandon",
    "ask",
    "sample",
    "lists",
    "subscribe",
    "log",
    "complete",
    "open",
    "list",
    "errors",
    "unknown",
    "read",
    "many",
    "close",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_check_has_a_column() {
        let sorted = |checks: &[&'static str]| {
            let mut checks = checks.to_vec();
            checks.sort_unstable();
            checks
        };

        assert_eq!(sorted(COLUMNS), sorted(CHECKS));
    }
}
