//! Renders the results as text for a terminal, as JSON, and as `RESULTS.md`.

use std::fmt::Write as _;

use crate::machine;
use crate::measure::{Cell, Goal, Row, Spread};
use crate::options::Options;
use crate::program::Subject;

/// Renders the rows as JSON.
pub(crate) fn json(rows: &[Row]) -> String {
    serde_json::to_string_pretty(rows).unwrap_or_default()
}

/// Renders the rows for a terminal.
pub(crate) fn text(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        let _ = writeln!(text, "\n{} ({}){}", row.work, row.unit, goal_text(row));
        for cell in &row.cells {
            let _ = writeln!(
                text,
                "  {:<13} {:>24}  {:>26}  {}",
                cell.subject,
                figure(&cell.value),
                cell.ratio
                    .map_or(String::new(), |ratio| format!("× {}", figure(&ratio))),
                pace(cell)
            );
        }
    }
    text
}

/// Renders `RESULTS.md`.
pub(crate) fn markdown(rows: &[Row], options: &Options) -> String {
    let mut text = String::from("# Results\n\nWritten by `cargo xtask bench`; do not edit.\n\n");
    let _ = writeln!(text, "* {}", date());
    let _ = writeln!(text, "* {}", machine::describe());
    let _ = writeln!(text, "* {}", versions());
    let turns = options.rounds();
    let _ = writeln!(
        text,
        "* {turns} turns of {} ms each per program, interleaved; median (least to most)\n",
        options.window().as_millis()
    );
    text.push_str(ABOUT);
    table(&mut text, rows.iter().filter(|row| row.point.is_none()));
    if rows.iter().any(|row| row.point.is_some()) {
        text.push_str(GROWTH);
        table(&mut text, rows.iter().filter(|row| row.point.is_some()));
    }
    text.push_str(PACE);
    for row in rows {
        for cell in &row.cells {
            if let Some(pace) = cell.pace {
                let _ = writeln!(
                    text,
                    "| {} | {} | {:.0} | {:.0} | {:.0} |",
                    row.work, cell.subject, pace.per_second, pace.p50_us, pace.p99_us
                );
            }
        }
    }
    text
}

fn table<'a>(text: &mut String, rows: impl Iterator<Item = &'a Row>) {
    text.push_str(COLUMNS);
    for row in rows {
        let _ = write!(text, "| {}, {} ", row.work, row.unit);
        for subject in Subject::ALL {
            let cell = row.cells.iter().find(|cell| cell.subject == subject.name());
            let entry = cell.map_or("–".to_owned(), |cell| in_table(cell, subject));
            let _ = write!(text, "| {entry} ");
        }
        let goal = row
            .goal
            .map(|goal| format!("{}{}", goal.text(), verdict(row)));
        let _ = writeln!(text, "| {} |", goal.as_deref().unwrap_or("–"));
    }
}

fn in_table(cell: &Cell, subject: Subject) -> String {
    let value = short(cell.value.median);
    match cell.ratio {
        Some(ratio) if subject != Subject::Raw => {
            let spread = format!("{:.2}–{:.2}", ratio.least, ratio.most);
            let bold = if subject == Subject::Bowline {
                "**"
            } else {
                ""
            };
            format!("{bold}{:.2} ×{bold} ({spread}); {value}", ratio.median)
        }
        _ => figure(&cell.value),
    }
}

impl Goal {
    fn text(self) -> String {
        match self {
            Self::Ratio(most) => format!("≤ {most} ×"),
            Self::Value(most) => format!("≤ {most}"),
            Self::RmcpBest => "≤ rmcp best".to_owned(),
        }
    }
}

fn goal_text(row: &Row) -> String {
    row.goal.map_or(String::new(), |goal| {
        format!("; goal {}{}", goal.text(), verdict(row))
    })
}

/// Returns whether Bowline reached the goal.
fn verdict(row: &Row) -> &'static str {
    let of = |subject: Subject| {
        let mut cells = row.cells.iter();
        cells.find(|cell| cell.subject == subject.name())
    };
    let bowline = of(Subject::Bowline);
    let reached = match (row.goal, bowline) {
        (Some(Goal::Ratio(most)), Some(cell)) => cell.ratio.map(|ratio| ratio.median <= most),
        (Some(Goal::Value(most)), Some(cell)) => Some(cell.value.median <= most),
        (Some(Goal::RmcpBest), Some(cell)) => {
            of(Subject::RmcpBest).map(|rmcp| cell.value.median <= rmcp.value.median)
        }
        _ => None,
    };
    match reached {
        Some(true) => ": reached",
        Some(false) => ": NOT reached",
        None => "",
    }
}

fn figure(spread: &Spread) -> String {
    if spread.least == spread.most || spread.median.is_nan() {
        return short(spread.median);
    }
    format!(
        "{} ({}–{})",
        short(spread.median),
        short(spread.least),
        short(spread.most)
    )
}

fn short(figure: f64) -> String {
    match figure.abs() {
        figure if figure.is_nan() => "never".to_owned(),
        100.0.. => format!("{figure:.0}"),
        10.0..100.0 => format!("{figure:.1}"),
        _ => format!("{figure:.2}"),
    }
}

fn pace(cell: &Cell) -> String {
    cell.pace.map_or(String::new(), |pace| {
        format!(
            "{:>7.0}/s  p50 {:.0} µs  p99 {:.0} µs",
            pace.per_second, pace.p50_us, pace.p99_us
        )
    })
}

fn date() -> String {
    let output = std::process::Command::new("date")
        .args(["-u", "+%Y-%m-%d"])
        .output();
    let date = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    date.unwrap_or_default()
}

fn versions() -> String {
    let lock = include_str!("../../Cargo.lock");
    let version = |name: &str| {
        let (_, rest) = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?;
        rest.split('"').next()
    };
    let names = ["bowline", "rmcp", "hyper", "tokio", "serde_json"];
    let versions = names.map(|name| format!("{name} {}", version(name).unwrap_or("?")));
    versions.join(", ")
}

const ABOUT: &str = "\
CPU time is the user and system time of the process under test, per reply. A ratio compares a sample with the raw \
sample nearest in time; its spread and the median value follow it. *raw* is hyper and serde_json without an SDK and \
without any protocol check: the ceiling. *rmcp best* is a manual handler without sessions and with JSON responses, \
*rmcp default* the style of its documentation. To repeat: `cargo xtask bench`, or `cargo xtask bench LEG…` for some legs.
";

const COLUMNS: &str = "
| work | raw | Bowline | rmcp best | rmcp default | goal |
|---|---|---|---|---|---|
";

const GROWTH: &str = "
## How cost grows

![CPU time per message by number of tools, requests in flight and sessions](growth.svg)
";

const PACE: &str = "
## Pace

Replies per second and latencies depend on the machine and its load.

| work | program | per second | p50 µs | p99 µs |
|---|---|---|---|---|
";
