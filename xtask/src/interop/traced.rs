//! One trace through four programs, two of which are written with another SDK, received by a collector that is not ours.
//!
//! ```text
//! Python client ─ stdio ─▶ bowline bridge ─ HTTP ─▶ interop-relay ─ stdio ─▶ Python server
//!       └────────────────────────┴──────── OTLP ────────┴─────────────────────────┘
//!                                           ▼
//!                                        oteltest
//! ```

use std::io;
use std::path::Path;

use super::cell::{Cell, CellSpec, Side, Transport};
use super::known_failures::KnownFailures;
use super::peers::{MODERN, OurPrograms, PYTHON, ProgramCommand, copy_programs, folder_of};
use crate::external_tools;

/// The checks, in order.
pub(crate) const CHECKS: &[&str] = &["open", "call", "trace", "parents", "names", "close"];

/// Installs the SDKs and the collector, and runs a cell for each era of the client.
pub(crate) fn run(root: &Path, ours: &OurPrograms) -> io::Result<Vec<Cell>> {
    let folder = folder_of(root, "traced");
    copy_programs(root, "python", &folder)?;
    let python = external_tools::python(&folder.join("packages"), PACKAGES)?;
    let client = ProgramCommand::new([&python, &folder.join("traced_client.py")]);
    let mut cells = Vec::new();
    for (mode, version) in [("2026", MODERN), ("legacy", "2025-11-25")] {
        let spec = CellSpec {
            peer: PYTHON,
            side: Side::Client,
            transport: Transport::Stdio,
            mode,
            checks: CHECKS,
            version: Some(version),
        };
        let programs = [ours.bowline.words(&[]), ours.relay.words(&[])].concat();
        let cell = spec.run(
            client.command(&[mode]).args(programs),
            &KnownFailures::default(),
        )?;
        println!("{cell}");
        cells.push(cell);
    }
    Ok(cells)
}

const PACKAGES: &[&str] = &[
    "mcp==2.3.0",
    "opentelemetry-sdk==1.45.2",
    "opentelemetry-exporter-otlp-proto-http==1.45.1",
    "oteltest==0.49.0",
];
