//! The peers with a bridge between client and server, each in the era that the other side does not use.
//!
//! ```text
//! their client ─ stdio, HTTP, HTTP+SSE ─▶ bridge ─ the same, or HTTP ──▶ our server
//! our client ─── HTTP ──────────────────▶ bridge ─ stdio ──────────────▶ their server
//! our client ─── stdio ─────────────────▶ bridge ─ HTTP, HTTP+SSE ─────▶ their server
//! ```

use std::io;

use super::cell::{CHECKS, Cell, CellSpec, Side, Transport};
use super::known_failures::KnownFailures;
use super::peers::{OurPrograms, Peer};
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
    /// Returns the pairs of different eras that a peer supports.
    fn of(peer: &Peer, side: Side, transport: Transport) -> Vec<Self> {
        let modes = match side {
            Side::Client => peer.modes(transport),
            Side::Server => peer.modes_of_ours(transport),
        };
        let has = |mode: &&str| modes.iter().any(|it| it == mode);
        let other = |mode| match mode {
            "2026" => "legacy",
            _ => "2026",
        };
        let of_peer = ["2026", "legacy", "sse"].into_iter().filter(has);
        let pairs = of_peer.map(|mode| match side {
            Side::Client => Self {
                client: mode,
                server: other(mode),
            },
            Side::Server => Self {
                client: other(mode),
                server: mode,
            },
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
    let serving = match (transport, side) {
        (Transport::Stdio, _) => None,
        // Our server serves both at one URL.
        (Transport::Http, _) | (Transport::HttpSse, Side::Client) => Some("http"),
        (Transport::HttpSse, Side::Server) => Some("sse"),
    };
    // Keeps the server running until the cell has been run.
    let serving =
        serving.map(|name| ServerProcess::start(&mut server.command(&["--transport", name])));
    let serving = serving.transpose()?;
    let behind = match &serving {
        Some(serving) => vec![serving.url().to_owned()],
        None => server.words(&["--transport", "stdio"]),
    };
    let front = match (side, transport) {
        (Side::Client, Transport::Stdio) => "stdio",
        (Side::Client, Transport::Http | Transport::HttpSse) => "http",
        (Side::Server, Transport::Stdio) => "http",
        (Side::Server, Transport::Http | Transport::HttpSse) => "stdio",
    };
    let bridge = ours.bridge.words(&bridge_options(front, transport, eras));
    let bridge: Vec<String> = bridge.into_iter().chain(behind).collect();
    let bridging = match front {
        "http" => Some(ServerProcess::start(&mut command(&bridge))?),
        _ => None,
    };
    let target = match &bridging {
        Some(bridging) => vec![bridging.url().to_owned()],
        None => bridge,
    };
    let spec = CellSpec {
        peer: peer.name,
        side,
        transport,
        mode: &format!("{} → {}", eras.client, eras.server),
        checks: CHECKS,
        version: Some(peer.version_of(eras.client, transport)),
    };
    spec.run(client.command(&[eras.client]).args(target), known_failures)
}

/// Returns the arguments of the bridge before the server.
fn bridge_options(front: &'static str, transport: Transport, eras: Eras) -> Vec<&'static str> {
    let mut options = vec!["--transport", front];
    if transport == Transport::Stdio {
        // The fixture has state, and each connection is a process.
        options.extend(["--connections", "1"]);
    }
    options.push(eras.server);
    options
}
