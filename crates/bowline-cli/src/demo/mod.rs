//! `bowline demo`: lets go of calls on every transport in both eras, and shows what becomes of them.

mod cell;

mod remains;

mod report;

mod screen;

mod stage;

use cell::Cell;
use report::{Report, Row};
use screen::Screen;
use stage::{Era, Transport};

use crate::options::Show;

/// Shows everything; whether all was well.
pub(crate) async fn run(show: Show) -> bool {
    let screen = Screen::new(show);
    screen.title("Calling tools, with progress");
    let mut rows = Vec::new();
    for cell in cells() {
        let mut row = Row::new(cell);
        if let Err(error) = cell.tour(&screen).await {
            screen.line(&format!("  {cell}  failed: {error}"));
            row.failure = Some(error.to_string());
        }
        rows.push(row);
    }
    screen.title(&format!(
        "Letting go of {} calls each, of a tool that sleeps for a minute",
        cell::CALLS
    ));
    for row in &mut rows {
        row.cell.let_go(row).await;
    }
    let report = Report::new(rows);
    screen.report(&report);
    report.is_clean
}

fn cells() -> impl Iterator<Item = Cell> {
    let eras = [Era::Modern, Era::Legacy];
    Transport::ALL
        .into_iter()
        .flat_map(move |transport| eras.map(|era| Cell { transport, era }))
}
