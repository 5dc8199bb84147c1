//! `cargo xtask interop`: SDKs that others wrote against our server, and our client against servers on them.
//!
//! ```text
//! peers   what is installed, and how its client and its server are started
//! cell    one client against one server, over one transport, in one mode
//! cannot  what a peer is known not to do, and why
//! table   all cells, as `conformance/RESULTS.md`
//! ```

mod cannot;
mod cell;
mod peers;
mod table;

use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::thread;

use cannot::Cannot;
use cell::{Cell, Side, Transport};
use peers::{Ours, Peer};

use crate::serving::Serving;

/// What to do with the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Results {
    /// Write it.
    Write,
    /// See that it is up to date.
    Compare,
}

/// Runs every peer in every way; true if all went as expected.
pub(crate) fn run(root: &Path, results: Results) -> bool {
    check(root, results).unwrap_or_else(|error| {
        println!("the peers could not be run: {error}");
        false
    })
}

fn check(root: &Path, results: Results) -> io::Result<bool> {
    let known = std::fs::read_to_string(root.join(CANNOT))?;
    let cannot = Cannot::parse(&known).map_err(io::Error::other)?;
    let ours = Ours::build(root)?;
    let peers = Peer::install_all(root)?;
    let cells = run_cells(&ours, &peers, &cannot)?;
    let passed = cells.iter().all(Cell::is_as_expected);
    let stale = cannot.unused(&cells);
    for cannot::Line {
        peer, side, check, ..
    } in &stale
    {
        println!("{CANNOT} is out of date: {peer} as a {side} does not fail `{check}`");
    }
    let is_current = keep(&root.join(RESULTS), &table::page(&cells, &cannot), results)?;
    println!("{}", table::summary(&cells));
    Ok(passed && stale.is_empty() && is_current)
}

/// Runs the peers beside each other, and what concerns one of them in order.
fn run_cells(ours: &Ours, peers: &[Peer], cannot: &Cannot) -> io::Result<Vec<Cell>> {
    // So that nothing is said in the middle of a line.
    let speaking = Mutex::new(());
    thread::scope(|scope| {
        let each = peers.iter().map(|peer| {
            let speaking = &speaking;
            scope.spawn(move || run_peer(ours, peer, cannot, speaking))
        });
        let each: Vec<_> = each.collect();
        let mut cells = Vec::new();
        for peer in each {
            cells.extend(peer.join().expect("a failure is an error here")?);
        }
        Ok(cells)
    })
}

fn run_peer(
    ours: &Ours,
    peer: &Peer,
    cannot: &Cannot,
    speaking: &Mutex<()>,
) -> io::Result<Vec<Cell>> {
    let mut cells = Vec::new();
    for (side, transport) in peer.ways() {
        let (client, server, modes) = match side {
            Side::Client => (&peer.client, &ours.server, peer.modes(transport)),
            Side::Server => (&ours.client, &peer.server, peer.modes_of_ours(transport)),
        };
        let serving = match (transport, side) {
            (Transport::Stdio, _) => None,
            // Ours has everything at one URL.
            (Transport::Http, _) | (Transport::HttpSse, Side::Client) => Some("http"),
            (Transport::HttpSse, Side::Server) => Some("sse"),
        };
        let serving =
            serving.map(|name| Serving::start(&mut server.command(&["--transport", name])));
        let serving = serving.transpose()?;
        for mode in modes {
            let target = match &serving {
                Some(serving) => vec![serving.url().to_owned()],
                None => server.words(&["--transport", "stdio"]),
            };
            let cell = Cell::run(peer, side, transport, &mode, client, &target, cannot)?;
            let _speaking = speaking.lock();
            println!("{cell}");
            cells.push(cell);
        }
    }
    Ok(cells)
}

/// Writes the page, or compares it with the one that is there; whether they are the same now.
fn keep(path: &Path, page: &str, results: Results) -> io::Result<bool> {
    if std::fs::read_to_string(path).is_ok_and(|kept| kept == page) {
        return Ok(true);
    }
    match results {
        Results::Write => std::fs::write(path, page).map(|()| true),
        Results::Compare => {
            println!("{RESULTS} is out of date; `cargo xtask interop` writes it");
            Ok(false)
        }
    }
}

const CANNOT: &str = "conformance/peers/cannot.txt";
const RESULTS: &str = "conformance/RESULTS.md";
