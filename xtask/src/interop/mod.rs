//! `cargo xtask interop`: SDKs that others wrote against our server, and our client against servers on them.
//!
//! ```text
//! peers   what is installed, and how its client and its server are started
//! cell    one client against one server, over one transport, in one mode
//! cannot  what a peer is known not to do, and why
//! table   all cells, as `conformance/RESULTS.md`
//! real    programs as they come, without a fixture of ours
//! ```

mod cannot;
mod cell;
mod peers;
mod real;
mod table;

use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::thread;

use cannot::Cannot;
use cell::{CHECKS, Cell, Pair, Side, Transport};
use peers::{Ours, Peer};
use table::Part;

use crate::serving::Serving;

/// What to do with the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Results {
    /// Write it.
    Write,
    /// See that it is up to date.
    Compare,
}

/// Which peers to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peers {
    /// SDKs, on which our programs offer and check the fixture.
    Sdks,
    /// Programs that others wrote.
    Real,
}

/// Runs these peers in every way; true if all went as expected.
pub(crate) fn run(root: &Path, peers: Peers, results: Results) -> bool {
    check(root, peers, results).unwrap_or_else(|error| {
        println!("the peers could not be run: {error}");
        false
    })
}

fn check(root: &Path, peers: Peers, results: Results) -> io::Result<bool> {
    let known = std::fs::read_to_string(root.join(CANNOT))?;
    let known = Cannot::parse(&known).map_err(io::Error::other)?;
    let all = [&peers::NAMES[..], &real::names()].concat();
    let strangers = known.about_others(&all);
    for line in &strangers {
        println!(
            "{CANNOT} has a line about `{}`, which is not a peer",
            line.peer
        );
    }
    let ours = Ours::build(root)?;
    let (cells, cannot, part) = match peers {
        Peers::Sdks => {
            let cannot = known.about(&peers::NAMES);
            let peers = Peer::install_all(root)?;
            (run_cells(&ours, &peers, &cannot)?, cannot, Part::Sdks)
        }
        Peers::Real => {
            let cannot = known.about(&real::names());
            (real::run(root, &ours, &cannot)?, cannot, Part::Real)
        }
    };
    let passed = cells.iter().all(Cell::is_as_expected);
    let stale = cannot.unused(&cells);
    for cannot::Line {
        peer, side, check, ..
    } in &stale
    {
        println!("{CANNOT} is out of date: {peer} as a {side} does not fail `{check}`");
    }
    let text = table::text(part, &cells, &cannot);
    let is_current = keep(&root.join(RESULTS), part, &text, results)?;
    println!("{}", table::summary(&cells));
    Ok(passed && stale.is_empty() && strangers.is_empty() && is_current)
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
            let pair = Pair {
                peer: peer.name,
                side,
                transport,
                mode: &mode,
                checks: CHECKS,
                version: Some(peer.version_of(&mode, transport)),
            };
            let cell = pair.run(client.command(&[&mode]).args(target), cannot)?;
            let _speaking = speaking.lock();
            println!("{cell}");
            cells.push(cell);
        }
    }
    Ok(cells)
}

/// Writes this part of the page, or compares it with what is there; whether they are the same now.
fn keep(path: &Path, part: Part, text: &str, results: Results) -> io::Result<bool> {
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    let page = part.replace_in(&kept, text);
    if kept == page {
        return Ok(true);
    }
    match results {
        Results::Write => std::fs::write(path, page).map(|()| true),
        Results::Compare => {
            let command = part.command();
            println!("{RESULTS} is out of date; `{command}` writes it");
            Ok(false)
        }
    }
}

const CANNOT: &str = "conformance/peers/cannot.txt";
const RESULTS: &str = "conformance/RESULTS.md";
