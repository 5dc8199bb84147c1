//! A recording of one peer's client with another peer's server, served to the clients of both by `bowline mock`.
//!
//! ```text
//! Python client ─ stdio ─▶ bowline tap ─ stdio ─▶ TypeScript server      writes a recording
//! Python and TypeScript clients ─ stdio, HTTP ─▶ bowline mock            serves it
//! ```
//!
//! One recording of each era, served to clients of each era. The clients run the checks of the fixture, as against the
//! server itself, among them a question in the middle of a call.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::cell::{CHECKS, Cell, CellSpec, Side, Transport};
use super::in_parallel;
use super::known_failures::KnownFailures;
use super::peers::{self, OurPrograms, Peer};
use crate::process;
use crate::server_process::ServerProcess;

/// Records, and runs the cells of both clients in parallel.
pub(crate) fn run(root: &Path, ours: &OurPrograms, peers: &[Peer]) -> io::Result<Vec<Cell>> {
    let find = |name| peers.iter().find(|peer| peer.name == name);
    let (Some(python), Some(typescript)) = (find(peers::PYTHON), find(peers::TYPESCRIPT)) else {
        return Err(io::Error::other(
            "the peers of the recording are not installed",
        ));
    };
    let recordings = record(root, ours, python, typescript)?;
    in_parallel(&[python, typescript], |peer, printing| {
        let mut cells = Vec::new();
        for recording in &recordings {
            for transport in [Transport::Stdio, Transport::Http] {
                for mode in MODES {
                    let cell = run_cell(ours, peer, recording, transport, mode)?;
                    let _printing = printing.lock();
                    println!("{cell}");
                    cells.push(cell);
                }
            }
        }
        Ok(cells)
    })
}

/// A recording, and the mode of its client.
struct RecordedMode {
    mode: &'static str,
    file: PathBuf,
}

/// Records the Python client with the TypeScript server, in each mode.
fn record(
    root: &Path,
    ours: &OurPrograms,
    client: &Peer,
    server: &Peer,
) -> io::Result<Vec<RecordedMode>> {
    let folder = process::target_folder(root)
        .join("interop")
        .join("recordings");
    fs::create_dir_all(&folder)?;
    let mut recordings = Vec::new();
    for mode in MODES {
        let file = folder.join(format!("{mode}.jsonl"));
        // A recording of an earlier run must not be served in place of this one.
        if file.exists() {
            fs::remove_file(&file)?;
        }
        let path = file.display().to_string();
        let mut tapped = ours.bowline.words(&["tap", "--record", &path, "--"]);
        tapped.extend(server.server.words(&["--transport", "stdio"]));
        let spec = CellSpec {
            peer: client.name,
            side: Side::Client,
            transport: Transport::Stdio,
            mode: &format!("{mode}, recorded"),
            checks: CHECKS,
            version: Some(client.version_of(mode, Transport::Stdio)),
        };
        let mut command = client.client.command(&[mode]);
        let cell = spec.run(command.args(tapped), &KnownFailures::default())?;
        println!("{cell}");
        if !cell.is_as_expected() {
            return Err(io::Error::other("the client fails while it is recorded"));
        }
        recordings.push(RecordedMode { mode, file });
    }
    Ok(recordings)
}

fn run_cell(
    ours: &OurPrograms,
    peer: &Peer,
    recording: &RecordedMode,
    transport: Transport,
    mode: &str,
) -> io::Result<Cell> {
    let file = recording.file.display().to_string();
    let serving = match transport {
        Transport::Stdio => None,
        Transport::Http | Transport::HttpSse => {
            let mut mock = ours.bowline.command(&["mock", &file, "--http", "0"]);
            Some(ServerProcess::start(&mut mock)?)
        }
    };
    let target = match &serving {
        Some(serving) => vec![serving.url().to_owned()],
        None => ours.bowline.words(&["mock", &file]),
    };
    let spec = CellSpec {
        peer: peer.name,
        side: Side::Client,
        transport,
        mode: &format!("{mode}, recorded in {}", recording.mode),
        checks: CHECKS,
        version: Some(peer.version_of(mode, transport)),
    };
    let mut command = peer.client.command(&[mode]);
    // The clients skip what a mock cannot do.
    command.env("BOWLINE_MOCK", "1");
    spec.run(command.args(target), &KnownFailures::default())
}

/// The modes of the recordings, and of the clients that they are served to.
const MODES: [&str; 2] = ["2026", "legacy"];
