//! Generates `CANCELLATION.md` from the results of a run.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use bowline_core::era::Dialect;

use crate::abandonment::Abandonment;
use crate::bridged::BridgedCell;
use crate::column::Column;
use crate::test::Test;
use crate::{bridged, sentences, soak};

/// Checks that each row passed in each column to which it applies.
pub(crate) fn check_cells(passed: &[Test]) -> Result<(), String> {
    let all = Column::all().flat_map(|column| {
        Abandonment::ALL
            .iter()
            .map(move |abandonment| (*abandonment, column))
    });
    let empty =
        all.filter(|(abandonment, column)| cell(*abandonment, *column, passed) == Cell::Empty);
    let mut empty: Vec<String> = empty
        .map(|(abandonment, column)| Test::Cell(abandonment, column).to_string())
        .collect();
    empty.extend(bridged::missing(&bridged_cells(passed)));
    match empty.is_empty() {
        true => Ok(()),
        false => Err(empty.join("\n")),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    Passed,
    NotApplicable(&'static str),
    Empty,
}

fn cell(abandonment: Abandonment, column: Column, passed: &[Test]) -> Cell {
    let name = Test::Cell(abandonment, column).to_string();
    match abandonment.not_applicable(column) {
        Some(reason) => Cell::NotApplicable(reason),
        None if passed.iter().any(|test| test.to_string() == name) => Cell::Passed,
        None => Cell::Empty,
    }
}

/// Compares the file with the results of this run, or writes it if `BLESS` is set.
pub(crate) fn check(passed: &[Test]) -> Result<(), String> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("CANCELLATION.md");
    let generated = render(passed)?;
    if fs::read_to_string(&path).is_ok_and(|found| found == generated) {
        Ok(())
    } else if std::env::var_os("BLESS").is_some() {
        fs::write(&path, generated).map_err(|error| format!("CANCELLATION.md: {error}"))
    } else {
        let how = "BLESS=1 cargo test -p scenarios --test matrix";
        Err(format!(
            "the file differs from this run; `{how}` rewrites it"
        ))
    }
}

fn render(passed: &[Test]) -> Result<String, String> {
    let mut text = INTRODUCTION.to_owned();
    let mut reasons = Vec::new();
    for dialect in Dialect::ALL {
        matrix(&mut text, dialect, passed, &mut reasons);
    }
    text.push_str(BRIDGED);
    bridged::render(&mut text, &bridged_cells(passed), |reason| {
        number(&mut reasons, reason)
    });
    text.push_str("\n## Not applicable\n\n");
    for (at, reason) in reasons.iter().enumerate() {
        let _ = writeln!(text, "{}. {reason}", at + 1);
    }
    text.push_str(SOAK);
    let soaked = |soaked: &Column| {
        let mut passed = passed.iter();
        passed.any(|test| matches!(test, Test::Soak(_, column) if column == soaked))
    };
    for column in soak::columns().filter(soaked) {
        let _ = writeln!(text, "- {column}");
    }
    text.push_str(SENTENCES);
    text.push_str(&sentences::render()?);
    Ok(text)
}

fn bridged_cells(passed: &[Test]) -> Vec<BridgedCell> {
    let cells = passed.iter().filter_map(|test| match test {
        Test::Bridged(cell) => Some(*cell),
        _ => None,
    });
    cells.collect()
}

/// Renders the table of one version.
fn matrix(text: &mut String, dialect: &Dialect, passed: &[Test], reasons: &mut Vec<&'static str>) {
    let columns: Vec<Column> = Column::of(dialect.version).collect();
    let names: Vec<String> = columns
        .iter()
        .map(|column| column.transport.to_string())
        .collect();
    let (version, names, rules) = (
        dialect.version,
        names.join(" | "),
        "---|".repeat(columns.len() + 1),
    );
    let _ = writeln!(text, "\n### {version}\n\n| | {names} |\n|{rules}");
    for abandonment in Abandonment::ALL {
        let cells: Vec<String> = columns
            .iter()
            .map(|column| match cell(*abandonment, *column, passed) {
                Cell::Passed => "✓".to_owned(),
                Cell::NotApplicable(reason) => format!("n/a {}", number(reasons, reason)),
                Cell::Empty => String::new(),
            })
            .collect();
        let _ = writeln!(text, "| {} | {} |", abandonment.name, cells.join(" | "));
    }
}

/// The number of a reason, counted from 1.
fn number(reasons: &mut Vec<&'static str>, reason: &'static str) -> usize {
    let at = reasons.iter().position(|known| *known == reason);
    at.unwrap_or_else(|| {
        reasons.push(reason);
        reasons.len() - 1
    }) + 1
}

const INTRODUCTION: &str = "\
# Cancellation

Abandoning a call stops its handler, by the signal of its transport, and affects no other call. Where the protocol has no such
signal, which is legacy HTTP without sessions, the table says n/a.
This file lists where that was tested. `BLESS=1 cargo test -p scenarios --test matrix` generates it; without `BLESS`
the command fails if the file differs from the run.

## The matrix

Each cell ran in a separate process, with a concurrent call in flight on the same connection. A ✓ means: exactly the
expected frames were sent, compared one by one; the handler's future was dropped; no response was sent; the concurrent
call got its own result, and a next call with the same id worked; afterwards the process held as many tasks, file
descriptors, children and table entries as before. Over HTTP the frames are recorded at the server's socket, elsewhere
at the server's end of the wire. In memory, where the server is not a process, its task is aborted instead of killed.

| | frames of an abandoned call |
|---|---|
| in process | none: the handler is part of the caller's future |
| memory, stdio, HTTP+SSE | one `notifications/cancelled` with the request's id and the reason |
| HTTP at 2026-07-28 | the client closes the response of the request, and posts nothing |
| HTTP before that | one `notifications/cancelled` is posted, and the response ends with error -32800 |
| a task, on every wire | one `tasks/cancel`, also for a dropped call that waits; none if the task expires |

A ✓ for a task also means that its handler started once in each process that ran it, and that its record ended as
cancelled, or as failed if it expired.
";
const BRIDGED: &str = "
## Through the bridge

The same with `bowline-bridge` between client and server: a column is the version and transport of the client, a table
those of the server. Each cell ran in a separate process, with a concurrent call in flight through the same bridge.
Connections are in memory, but for those to servers in child processes. A ✓ means: the server got exactly one cancel, of
the right call, on its own connection and in the form of its own wire, with the reason of the client where both wires
carry one; the handler's future was dropped; no response was sent; the concurrent call got its own result, and a next
call worked; afterwards the bridge held no request and no parked call, and as many tasks ran as before; with child
processes, there were also as many file descriptors and children. *The server is lost* kills a child process with SIGKILL.
*No timer delays the cancel* means that no time passed between the
drop and the end of the handler, measured with tokio's paused clock, in which time passes only where a task waits for
a timer.

`crates/bowline-bridge/CELLS.md` has cancels between every version and transport, seen at sockets.
";
const SOAK: &str = "
## Many calls

After 2,000 abandoned calls, or the number given by `--calls`, the process uses at most 5 MB more memory than before,
and holds as many tasks, file descriptors, children and table entries as before:

";
const SENTENCES: &str = "
## Requirements

Each requirement, and the tests that verify it.
";
