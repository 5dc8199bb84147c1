//! The table in `README.md`, which a run generates.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;

use bowline_core::era::Dialect;

use crate::Scenario;
use crate::behaviours::{Coverage, file};
use crate::runner::Ran;

/// Compares the table with that of this run, or writes it if `BLESS` is set.
pub(crate) fn check(
    scenarios: &[Scenario],
    ran: &[Ran<'_>],
    coverage: &Coverage,
) -> Result<(), String> {
    let path = file("README.md");
    let readme = fs::read_to_string(&path).map_err(|error| format!("README.md: {error}"))?;
    let Some((prose, _)) = readme.split_once(MARK) else {
        return Err(format!("README.md has no line {MARK:?}"));
    };
    let generated = format!("{prose}{MARK}\n\n{}", render(scenarios, ran, coverage));
    if generated == readme {
        Ok(())
    } else if std::env::var_os("BLESS").is_some() {
        fs::write(&path, generated).map_err(|error| format!("README.md: {error}"))
    } else {
        Err("the table is not that of this run; `BLESS=1 cargo test -p scenarios` writes it".into())
    }
}

fn render(scenarios: &[Scenario], ran: &[Ran<'_>], coverage: &Coverage) -> String {
    let passed = letters(ran);
    let mut text = summary(scenarios, ran, coverage);
    let areas: BTreeSet<&str> = scenarios.iter().map(Scenario::area).collect();
    for area in areas {
        let versions = Dialect::ALL.iter().map(|dialect| dialect.version);
        let versions = versions.collect::<Vec<_>>().join(" | ");
        let _ = write!(
            text,
            "\n## {area}\n\n| scenario | covers | {versions} |\n|---|---|"
        );
        text.push_str(&"---|".repeat(Dialect::ALL.len()));
        text.push('\n');
        let mut rows: Vec<&Scenario> = scenarios.iter().filter(|one| one.area() == area).collect();
        rows.sort_by_key(|scenario| scenario.path());
        for scenario in rows {
            let ids: Vec<String> = scenario
                .covers()
                .iter()
                .map(|id| format!("`{id}`"))
                .collect();
            let cells: Vec<&str> = Dialect::ALL
                .iter()
                .map(|dialect| passed.get(&(scenario.path(), dialect.version)))
                .map(|cell| cell.map_or("", String::as_str))
                .collect();
            let (sentence, ids, cells) = (scenario.sentence(), ids.join(" "), cells.join(" | "));
            let _ = writeln!(text, "| {sentence} | {ids} | {cells} |");
        }
    }
    text
}

fn summary(scenarios: &[Scenario], ran: &[Ran<'_>], coverage: &Coverage) -> String {
    let counts = coverage.counts();
    let waiting: Vec<String> = counts
        .waiting
        .iter()
        .map(|(issue, count)| format!("{count} come with {issue}"))
        .collect();
    format!(
        "{} scenarios, {} runs. Of {} behaviours {} are covered, {} are excused in `uncovered.txt`, {}.\n",
        scenarios.len(),
        ran.len(),
        counts.all,
        counts.covered,
        counts.excused,
        waiting.join(", "),
    )
}

/// Over what each scenario passed in each version.
fn letters(ran: &[Ran<'_>]) -> BTreeMap<(String, &'static str), String> {
    let mut passed: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for ran in ran.iter().filter(|ran| ran.failure.is_none()) {
        let cell = (ran.scenario.path(), ran.column.dialect.version);
        passed.entry(cell).or_default().insert(ran.column.transport);
    }
    let letters = passed.into_iter().map(|(cell, transports)| {
        let letters = transports.into_iter().map(|transport| transport.letter());
        (cell, letters.collect())
    });
    letters.collect()
}

const MARK: &str = "<!-- What follows is written by `BLESS=1 cargo test -p scenarios`. -->";
