//! Renders the results as text for a terminal, as JSON, and as `RESULTS.md`.

use std::fmt::Write as _;

use crate::machine;
use crate::measure::{Cell, Goal, Row, Spread, Table};
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
        for note in &row.notes {
            let _ = writeln!(text, "  {note}");
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
    let (bridges, rows): (Vec<&Row>, Vec<&Row>) =
        rows.iter().partition(|row| row.table == Table::Bridges);
    let (curves, others): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.point.is_some());
    table(&mut text, Table::Sdks, &others);
    if !curves.is_empty() {
        text.push_str(GROWTH);
        table(&mut text, Table::Sdks, &curves);
    }
    text.push_str(PACE);
    pace_table(&mut text, &rows);
    text.push_str(&bridges_section(&bridges, options));
    text
}

/// Returns `RESULTS.md` with the section of bridges replaced.
pub(crate) fn with_bridges(results: &str, rows: &[Row], options: &Options) -> String {
    let rows: Vec<&Row> = rows
        .iter()
        .filter(|row| row.table == Table::Bridges)
        .collect();
    // The section is the last one.
    let others = results
        .find(BRIDGES)
        .map_or(results, |at| &results[..at])
        .trim_end();
    format!("{others}\n{}", bridges_section(&rows, options))
}

/// Renders the section of bridges, which may have been measured at another time than the others.
fn bridges_section(rows: &[&Row], options: &Options) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut text = String::from(BRIDGES);
    let _ = writeln!(text, "* {}", date());
    let _ = writeln!(text, "* {}", machine::describe());
    let peers = options.bridges.versions().join(", ");
    let _ = writeln!(text, "* {}, {peers}", versions());
    text.push_str(ABOUT_BRIDGES);
    table(&mut text, Table::Bridges, rows);
    if rows.iter().any(|row| !row.notes.is_empty()) {
        text.push('\n');
    }
    for row in rows {
        for note in &row.notes {
            let _ = writeln!(text, "* {}: {note}", row.work);
        }
    }
    text.push_str(PACE_COLUMNS);
    pace_table(&mut text, rows);
    text
}

fn pace_table(text: &mut String, rows: &[&Row]) {
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
}

impl Table {
    fn subjects(self) -> &'static [Subject] {
        match self {
            Self::Sdks => &Subject::ALL,
            Self::Bridges => &Subject::BRIDGES,
        }
    }

    /// Returns the head of the table.
    fn head(self) -> String {
        let names: Vec<&str> = self.subjects().iter().map(|it| it.name()).collect();
        let line = "---|".repeat(names.len() + 2);
        format!("\n| work | {} | goal |\n|{line}\n", names.join(" | "))
    }
}

fn table(text: &mut String, table: Table, rows: &[&Row]) {
    text.push_str(&table.head());
    for row in rows {
        let _ = write!(text, "| {}, {} ", row.work, row.unit);
        for &subject in table.subjects() {
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
            Self::Slowest(most) => format!("slowest ≤ {most}"),
            Self::RatioAndValue(ratio, value) => format!("≤ {ratio} × and ≤ {value}"),
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
        (Some(Goal::Slowest(most)), Some(cell)) => Some(cell.value.most <= most),
        (Some(Goal::RatioAndValue(most, value)), Some(cell)) => {
            let ratio = cell.ratio.map(|ratio| ratio.median <= most);
            ratio.map(|is_below| is_below && cell.value.median <= value)
        }
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

const PACE_COLUMNS: &str = "
| work | program | per second | p50 µs | p99 µs |
|---|---|---|---|---|
";

const BRIDGES: &str = "
## Bridges

Written by `cargo xtask bench bridge bridge-hanging`; do not edit.

";

const ABOUT_BRIDGES: &str = "
CPU time is that of the bridge alone, per reply; the server behind it is the raw server, on the core of the load or as a \
child process. *raw* is a hyper server and a hyper client that pass each request on without a look into it: the ceiling. \
*Bowline* is the command `bowline bridge`. A dash means that the program does not have this combination, or that it did \
not work: the notes below the table have the reason.
";
