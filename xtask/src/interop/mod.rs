//! `cargo xtask interop`: clients of other SDKs against our server, and our client against their servers.
//!
//! ```text
//! peers           installs the SDKs, and starts their clients and servers
//! cell            one client against one server, over one transport, in one mode
//! known_failures  the checks that a peer is known to fail, with reasons
//! bridged         the SDKs with a bridge between client and server
//! mocked          a recording of two SDKs, served to their clients
//! tool            the command `bowline` with the servers of the SDKs
//! traced          one trace through SDKs, bridge and server
//! tasks           implementations of the extension of tasks, with a fixture of their own
//! table           all cells, as `conformance/RESULTS.md` and a part of `crates/bowline-bridge/CELLS.md`
//! real            published programs, unmodified and without our fixture
//! ```

mod bridged;
mod cell;
mod known_failures;
mod mocked;
mod peers;
mod real;
mod table;
mod tasks;
mod tool;
mod traced;

use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::thread;

pub(crate) use cell::{CHECKS, Cell, CellSpec, Side, Transport};
use known_failures::KnownFailure;
pub(crate) use known_failures::KnownFailures;
pub(crate) use peers::{OurPrograms, Peer, ProgramCommand};
use table::PagePart;
pub(crate) use tasks::CHECKS as TASK_CHECKS;
use tasks::TaskPeer;

use crate::server_process::ServerProcess;

/// What to do with the results table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResultsMode {
    /// Write it.
    Write,
    /// Fail if it is out of date.
    Compare,
}

/// Which peers to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peers {
    /// SDKs, with which our programs implement the fixture and its checks.
    Sdks,
    /// Only the SDKs that are recorded, with the recording: the last part of [`Peers::Sdks`].
    Mocked,
    /// Only the trace, a part of [`Peers::Sdks`].
    Traced,
    /// Published programs, unmodified.
    Real,
    /// The command `bowline` with the published reference servers: the last part of [`Peers::Real`].
    RealTool,
}

/// Runs these peers in every combination; returns whether all results are as expected.
pub(crate) fn run(root: &Path, peers: Peers, mode: ResultsMode) -> bool {
    check(root, peers, mode).unwrap_or_else(|error| {
        println!("failed to run the peers: {error}");
        false
    })
}

/// Reads the known failures of all peers.
pub(crate) fn known_failures(root: &Path) -> io::Result<KnownFailures> {
    let known = std::fs::read_to_string(root.join(KNOWN_FAILURES))?;
    KnownFailures::parse(&known).map_err(io::Error::other)
}

fn check(root: &Path, peers: Peers, mode: ResultsMode) -> io::Result<bool> {
    let known = known_failures(root)?;
    let all = [&peers::NAMES[..], &tasks::NAMES, &real::names()].concat();
    let unknown = known.about_others(&all);
    for line in &unknown {
        println!(
            "{KNOWN_FAILURES} has a line about `{}`, which is not a peer",
            line.peer
        );
    }
    let ours = OurPrograms::build(root)?;
    let parts = match peers {
        Peers::Sdks => {
            let (of_sdks, of_tasks) = (known.about(&peers::NAMES), known.about(&tasks::NAMES));
            let (of_tool, of_sdks) = of_sdks.split(tool::CHECKS);
            let peers = Peer::install_all(root)?;
            let sdks = run_cells(&ours, &peers, &of_sdks)?;
            let task_peers = TaskPeer::install_all(root)?;
            let tasks = tasks::run(&ours, &task_peers, &of_tasks)?;
            let bridged = bridged::run(&ours, &peers, &of_sdks)?;
            let bridged_tasks = tasks::run_bridged(&ours, &task_peers, &of_tasks)?;
            let mocked = mocked::run(root, &ours, &peers)?;
            let tool = tool::run(&ours, &peers, &of_tool)?;
            let traced = traced::run(root, &ours)?;
            vec![
                (PagePart::Sdks, sdks, of_sdks.clone()),
                (PagePart::Tasks, tasks, of_tasks.clone()),
                (PagePart::Bridged, bridged, of_sdks),
                (PagePart::BridgedTasks, bridged_tasks, of_tasks),
                (PagePart::Mocked, mocked, KnownFailures::default()),
                (PagePart::Tool, tool, of_tool),
                (PagePart::Traced, traced, KnownFailures::default()),
            ]
        }
        Peers::Traced => {
            let traced = traced::run(root, &ours)?;
            vec![(PagePart::Traced, traced, KnownFailures::default())]
        }
        Peers::Mocked => {
            let peers = Peer::install_recorded(root)?;
            let mocked = mocked::run(root, &ours, &peers)?;
            vec![(PagePart::Mocked, mocked, KnownFailures::default())]
        }
        Peers::RealTool => {
            let (of_tool, _) = known.about(&real::names()).split(tool::CHECKS);
            let tool = real::run(root, &ours, &of_tool, real::Through::Tool)?;
            vec![(PagePart::ToolReal, tool, of_tool)]
        }
        Peers::Real => {
            let (of_tool, of_real) = known.about(&real::names()).split(tool::CHECKS);
            let of_bridged = of_real.about(&real::bridged_names());
            let cells = real::run(root, &ours, &of_real, real::Through::Nothing)?;
            let bridged = real::run(root, &ours, &of_bridged, real::Through::Bridge)?;
            let tool = real::run(root, &ours, &of_tool, real::Through::Tool)?;
            vec![
                (PagePart::Real, cells, of_real),
                (PagePart::BridgedReal, bridged, of_bridged),
                (PagePart::ToolReal, tool, of_tool),
            ]
        }
    };
    let mut passed = unknown.is_empty();
    for (part, cells, known_failures) in parts {
        passed &= check_part(root, part, &cells, &known_failures, mode)?;
    }
    Ok(passed)
}

/// Writes or compares one part of the page; returns whether its results are as expected.
fn check_part(
    root: &Path,
    part: PagePart,
    cells: &[Cell],
    known_failures: &KnownFailures,
    mode: ResultsMode,
) -> io::Result<bool> {
    let passed = cells.iter().all(Cell::is_as_expected);
    let stale = known_failures.unused(cells);
    for KnownFailure {
        peer, side, check, ..
    } in &stale
    {
        println!("{KNOWN_FAILURES} is out of date: {peer} as a {side} does not fail `{check}`");
    }
    let text = table::text(part, cells, known_failures);
    let is_current = write_or_compare(root, part, &text, mode)?;
    println!("{}", table::summary(cells));
    Ok(passed && stale.is_empty() && is_current)
}

/// Runs the peers in parallel, and the cells of each peer in order.
fn run_cells(
    ours: &OurPrograms,
    peers: &[Peer],
    known_failures: &KnownFailures,
) -> io::Result<Vec<Cell>> {
    in_parallel(peers, |peer, printing| {
        run_peer(ours, peer, known_failures, printing)
    })
}

/// Runs the cells of each peer in a thread. `run_peer` locks the mutex while it prints.
fn in_parallel<P: Sync>(
    peers: &[P],
    run_peer: impl Fn(&P, &Mutex<()>) -> io::Result<Vec<Cell>> + Sync,
) -> io::Result<Vec<Cell>> {
    // Keeps the lines of different threads apart.
    let printing = Mutex::new(());
    thread::scope(|scope| {
        let each = peers.iter().map(|peer| {
            let (run_peer, printing) = (&run_peer, &printing);
            scope.spawn(move || run_peer(peer, printing))
        });
        let each: Vec<_> = each.collect();
        let mut cells = Vec::new();
        for peer in each {
            cells.extend(peer.join().expect("a failure is returned as an error")?);
        }
        Ok(cells)
    })
}

fn run_peer(
    ours: &OurPrograms,
    peer: &Peer,
    known_failures: &KnownFailures,
    printing: &Mutex<()>,
) -> io::Result<Vec<Cell>> {
    let mut cells = Vec::new();
    for (side, transport) in peer.combinations() {
        let (client, server, modes) = match side {
            Side::Client => (&peer.client, &ours.server, peer.modes(transport)),
            Side::Server => (&ours.client, &peer.server, peer.modes_of_ours(transport)),
        };
        let serving = match (transport, side) {
            (Transport::Stdio, _) => None,
            // Our server serves both at one URL.
            (Transport::Http, _) | (Transport::HttpSse, Side::Client) => Some("http"),
            (Transport::HttpSse, Side::Server) => Some("sse"),
        };
        let serving =
            serving.map(|name| ServerProcess::start(&mut server.command(&["--transport", name])));
        let serving = serving.transpose()?;
        for mode in modes {
            let target = match &serving {
                Some(serving) => vec![serving.url().to_owned()],
                None => server.words(&["--transport", "stdio"]),
            };
            let spec = CellSpec {
                peer: peer.name,
                side,
                transport,
                mode: &mode,
                checks: CHECKS,
                version: Some(peer.version_of(&mode, transport)),
            };
            let cell = spec.run(client.command(&[&mode]).args(target), known_failures)?;
            let _printing = printing.lock();
            println!("{cell}");
            cells.push(cell);
        }
    }
    Ok(cells)
}

fn command(words: &[String]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

/// Writes this part of the page or compares it with the file; returns whether they are equal now.
fn write_or_compare(
    root: &Path,
    part: PagePart,
    text: &str,
    mode: ResultsMode,
) -> io::Result<bool> {
    let path = root.join(part.file());
    let current = std::fs::read_to_string(&path).unwrap_or_default();
    let page = part.replace_in(&current, text);
    if current == page {
        return Ok(true);
    }
    match mode {
        ResultsMode::Write => std::fs::write(path, page).map(|()| true),
        ResultsMode::Compare => {
            let (file, command) = (part.file(), part.command());
            println!("{file} is out of date; `{command}` writes it");
            Ok(false)
        }
    }
}

const KNOWN_FAILURES: &str = "conformance/peers/cannot.txt";
