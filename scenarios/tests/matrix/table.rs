//! `CANCELLATION.md`, which a run generates.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use bowline_core::era::Dialect;

use crate::column::Column;
use crate::test::Test;
use crate::ways::Way;
use crate::{sentences, soak};

/// Checks that each way of letting go has passed in each column, or that there is no such thing.
pub(crate) fn check_cells(passed: &[Test]) -> Result<(), String> {
    let all = Column::all().flat_map(|column| Way::ALL.iter().map(move |way| (*way, column)));
    let empty = all.filter(|(way, column)| cell(*way, *column, passed) == Cell::Empty);
    let empty: Vec<String> = empty
        .map(|(way, column)| Test::Cell(way, column).to_string())
        .collect();
    match empty.is_empty() {
        true => Ok(()),
        false => Err(empty.join("\n")),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    Passed,
    Excused(&'static str),
    Empty,
}

fn cell(way: Way, column: Column, passed: &[Test]) -> Cell {
    let key = Test::Cell(way, column).key();
    match way.excuse(column) {
        Some(excuse) => Cell::Excused(excuse),
        None if passed.iter().any(|test| test.key() == key) => Cell::Passed,
        None => Cell::Empty,
    }
}

/// Compares the file with that of this run, or writes it if `BLESS` is set.
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
            "the file is not that of this run; `{how}` writes it"
        ))
    }
}

fn render(passed: &[Test]) -> Result<String, String> {
    let mut text = INTRODUCTION.to_owned();
    let mut excuses = Vec::new();
    for dialect in Dialect::ALL {
        matrix(&mut text, dialect, passed, &mut excuses);
    }
    text.push_str("\nNot applicable:\n\n");
    for (at, excuse) in excuses.iter().enumerate() {
        let _ = writeln!(text, "{}. {excuse}", at + 1);
    }
    text.push_str(SOAK);
    let soaked = |soaked: &Column| {
        let key = soaked.key();
        let mut passed = passed.iter();
        passed.any(|test| matches!(test, Test::Soak(_, column) if column.key() == key))
    };
    for column in soak::columns().filter(soaked) {
        let _ = writeln!(text, "- {column}");
    }
    text.push_str(SENTENCES);
    text.push_str(&sentences::render()?);
    Ok(text)
}

/// The table of one version.
fn matrix(text: &mut String, dialect: &Dialect, passed: &[Test], excuses: &mut Vec<&'static str>) {
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
    for way in Way::ALL {
        let cells: Vec<String> = columns
            .iter()
            .map(|column| match cell(*way, *column, passed) {
                Cell::Passed => "✓".to_owned(),
                Cell::Excused(excuse) => format!("n/a {}", number(excuses, excuse)),
                Cell::Empty => String::new(),
            })
            .collect();
        let _ = writeln!(text, "| {way} | {} |", cells.join(" | "));
    }
}

/// The number of an excuse, counted from 1.
fn number(excuses: &mut Vec<&'static str>, excuse: &'static str) -> usize {
    let at = excuses.iter().position(|known| *known == excuse);
    at.unwrap_or_else(|| {
        excuses.push(excuse);
        excuses.len() - 1
    }) + 1
}

const INTRODUCTION: &str = "\
# Letting go

Letting go of a call stops the work at the other end, on every transport, in that transport's own spelling, and
disturbs nothing else. This file says where that was seen. It is written by `BLESS=1 cargo test -p scenarios --test
matrix`; the same command without `BLESS` fails if the file is not what it would write.

## The matrix

Each cell ran alone in a process of its own, with another call in flight on the same connection. A ✓ means: these
frames passed and no others, compared one by one; the handler's future was dropped; no answer was sent; the other call
got its own result and a next one, with the same id, worked; and after the end as many tasks, descriptors, children and table entries were
there as before the beginning. Over HTTP the tap is at the server's socket, elsewhere at its end of the wire. A process
that dies is killed; in memory, where there is none, its task is.

| | what passes when a call is let go of |
|---|---|
| in process | nothing: the handler is part of the caller's future |
| memory, stdio, HTTP+SSE | one `notifications/cancelled` with the request's id and the reason |
| HTTP at 2026-07-28 | the request's own response is closed, and nothing is posted |
| HTTP before that | one `notifications/cancelled` is posted, and the response ends with error -32800 |
";
const SOAK: &str = "
## Many calls

After 2,000 abandoned calls, or as many as `--calls` says, the process has at most 5 MB more memory in use than before, and
as many tasks, descriptors, children and entries as before:

";
const SENTENCES: &str = "
## The sentences

What must hold, and the tests that show it.
";
