//! `bowline demo`: cancels calls over stdio, HTTP and in process, in both eras, and shows how their handlers stop.

mod cell;

mod connection;

mod leaks;

mod report;

mod screen;

mod signals;

use cell::DemoCell;
use connection::{DemoEra, DemoTransport};
use report::{DemoReport, ReportRow};
use screen::Screen;
pub(crate) use signals::describe;

use crate::options::OutputFormat;

/// Runs the demonstration; returns whether every row is clean.
pub(crate) async fn run(format: OutputFormat) -> bool {
    let screen = Screen::new(format);
    screen.title("Calling tools, with progress");
    let mut rows = Vec::new();
    for cell in cells() {
        let mut row = ReportRow::new(cell);
        if let Err(error) = cell.call_tools(&screen).await {
            screen.line(&format!("  {cell}  failed: {error}"));
            row.failure = Some(error.to_string());
        }
        rows.push(row);
    }
    screen.title(&format!(
        "Dropping {} calls each, of a tool that sleeps for a minute",
        cell::CALLS
    ));
    for row in &mut rows {
        row.cell.cancel_calls(row).await;
    }
    let report = DemoReport::new(rows);
    screen.report(&report);
    report.is_clean
}

fn cells() -> impl Iterator<Item = DemoCell> {
    let eras = [DemoEra::Modern, DemoEra::Legacy];
    DemoTransport::ALL
        .into_iter()
        .flat_map(move |transport| eras.map(|era| DemoCell { transport, era }))
}
