//! `CLUSTER.md`: what happened to replicas under faults, in a rolling deploy, and what they cost.

use std::fs;
use std::io;
use std::path::Path;

use super::{Engine, replicas};
use crate::process;

/// A section of the page, with one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Section {
    Scenarios,
    Faults,
    Deploy,
    CallCost,
    ChangeCost,
    ChangeModel,
    Peers,
}

impl Section {
    const ALL: [Self; 7] = [
        Self::Scenarios,
        Self::Faults,
        Self::Deploy,
        Self::CallCost,
        Self::ChangeCost,
        Self::ChangeModel,
        Self::Peers,
    ];

    fn heading(self) -> &'static str {
        match self {
            Self::Scenarios => "## Scenarios",
            Self::Faults => "## Faults under load",
            Self::Deploy => "## A rolling deploy",
            Self::CallCost => "## The cost of a call",
            Self::ChangeCost => "## The cost of a change",
            Self::ChangeModel => "### The constants",
            Self::Peers => "## Clients of other SDKs",
        }
    }

    fn prose(self) -> &'static str {
        match self {
            Self::Scenarios => SCENARIOS,
            Self::Faults => FAULTS,
            Self::Deploy => DEPLOY,
            Self::CallCost => CALL_COST,
            Self::ChangeCost => CHANGE_COST,
            Self::ChangeModel => CHANGE_MODEL,
            Self::Peers => PEERS,
        }
    }

    fn header(self) -> &'static str {
        match self {
            Self::Scenarios => "| engine | proxy | transport | version | runs | failed |",
            Self::Faults => {
                "| engine | fault | calls | failed | crossed | late | longest | notices | delivered | gap reported | lost | tasks | completed | lost |"
            }
            Self::Deploy => {
                "| engine | sessions | lost | modern clients | calls | failed | crossed | deploy took | longest call |"
            }
            Self::CallCost => {
                "| engine | version | one process without an engine, µs | one replica | three, behind a proxy |"
            }
            Self::ChangeCost => {
                "| engine | replicas | subscriptions | measured, ms | model, ms | messages of the engine |"
            }
            Self::ChangeModel => "| engine | a change, µs | a replica, µs | a subscription, µs |",
            Self::Peers => "| engine | proxy | client | checks passed | others |",
        }
    }
}

/// A part of the report that a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Faults,
    Deploy,
    Cost,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::Faults => "faults",
            Self::Deploy => "deploy",
            Self::Cost => "cost",
        }
    }

    /// The profile of the programs. Costs are of optimized code; `hunt` is compiled in a third of the time of `release`.
    fn profile(self) -> &'static str {
        match self {
            Self::Faults | Self::Deploy => "dev",
            Self::Cost => "hunt",
        }
    }

    fn folder(self) -> &'static str {
        match self.profile() {
            "dev" => "debug",
            profile => profile,
        }
    }
}

/// Runs a part on each engine, and writes its rows; returns whether all passed.
pub(super) fn run(
    root: &Path,
    part: Part,
    engines: &[(Engine, String)],
    control: &str,
) -> io::Result<bool> {
    let mut build = process::cargo(root);
    build.args(["build", "--quiet", "--profile", part.profile()]);
    build.args([
        "--package",
        "bowline-conformance",
        "--bin",
        "interop-server",
    ]);
    build.args([
        "--package",
        "bowline-cluster-tests",
        "--bin",
        "cluster-load",
    ]);
    if !process::run(&mut build)? {
        return Err(io::Error::other("failed to compile the programs"));
    }
    let built = process::target_folder(root).join(part.folder());
    let mut passed = true;
    for (engine, url) in engines {
        println!("\n--- {} on {}", part.name(), engine.name());
        let mut load = std::process::Command::new(built.join("cluster-load"));
        load.args([part.name(), "--engine", url, "--control", control]);
        load.arg("--replica").arg(built.join("interop-server"));
        load.arg("--state")
            .arg(replicas::state_folder(root, *engine)?);
        let captured = process::run_and_capture(&mut load)?;
        passed &= captured.end == process::ExitKind::Success;
        for (section, rows) in sort_rows(part, &captured.output) {
            write(root, section, *engine, &rows)?;
        }
    }
    Ok(passed)
}

/// Returns the rows of the output by their section: the tables of costs have different widths.
fn sort_rows(part: Part, output: &str) -> Vec<(Section, Vec<String>)> {
    let rows: Vec<String> = output
        .lines()
        .filter(|line| line.starts_with('|'))
        .map(str::to_owned)
        .collect();
    match part {
        Part::Faults => vec![(Section::Faults, rows)],
        Part::Deploy => vec![(Section::Deploy, rows)],
        Part::Cost => {
            let columns = |row: &str| row.matches('|').count();
            let sections = [Section::CallCost, Section::ChangeCost, Section::ChangeModel];
            let rows = sections.map(|section| {
                let rows = rows.iter();
                let rows = rows.filter(|row| columns(row) == columns(section.header()));
                (section, rows.cloned().collect())
            });
            rows.into()
        }
    }
}

/// Replaces the rows of an engine in a section.
pub(super) fn write(
    root: &Path,
    section: Section,
    engine: Engine,
    rows: &[String],
) -> io::Result<()> {
    let path = root.join(PAGE);
    let page = fs::read_to_string(&path).unwrap_or_default();
    fs::write(path, replace(&page, section, engine, rows))
}

/// Returns the page with other rows of an engine in a section.
fn replace(page: &str, changed: Section, engine: Engine, rows: &[String]) -> String {
    let mut text = TITLE.to_owned();
    for section in Section::ALL {
        let mut all = existing_rows(page, section);
        if section == changed {
            all.retain(|row| engine_of(row) != Some(engine));
            all.extend(rows.iter().cloned());
            all.sort_by_key(|row| engine_of(row));
        }
        if all.is_empty() {
            continue;
        }
        let header = section.header();
        let line = "|---".repeat(header.matches('|').count() - 1);
        let (heading, prose) = (section.heading(), section.prose());
        text.push_str(&format!("\n{heading}\n\n{prose}\n\n{header}\n{line}|\n"));
        for row in all {
            text.push_str(&row);
            text.push('\n');
        }
    }
    text
}

fn existing_rows(page: &str, section: Section) -> Vec<String> {
    let lines = page.lines().skip_while(|line| *line != section.heading());
    let lines = lines.skip(1).take_while(|line| !line.starts_with('#'));
    let rows = lines.filter(|line| engine_of(line).is_some());
    rows.map(str::to_owned).collect()
}

fn engine_of(row: &str) -> Option<Engine> {
    let name = row.strip_prefix("| ")?.split(' ').next()?;
    Engine::from_name(name)
}

const PAGE: &str = "CLUSTER.md";

const TITLE: &str = "# Replicas on real engines

Generated by `cargo xtask cluster --report`, or a part of it by `--scenarios`, `--faults`, `--deploy`, `--cost` or `--peers`,
and with `--only ENGINE`: the parts below may be of different runs. Replicas are processes
(`conformance/interop/server`), the load is `cluster/load`, and the proxy (`cluster/src/proxy.rs`) sends each request to
the next replica. [The guide](docs/replicas.md) says what each engine promises.
";

const SCENARIOS: &str = "The scenarios of `cargo test`, each over HTTP in each version that it applies to, with three replicas of every server. Of
the runs, those with replicas are counted in the row of all; the others test a client with a scripted server, or look into
the service of one process. What replicas do otherwise by design is not run, and listed in `scenarios/src/replicas.rs`.";

const FAULTS: &str = "Three replicas; 20 clients that call ten times a second each, or all the time with calls of half a second, half of them
legacy; 4 subscribers, half of them legacy, whose resources change five times a second; on Postgres 4 clients that start
two tasks a second each. A call has a deadline of 15 s. *Crossed* is an answer to another call, *late* a call that ended more than a second after its deadline.
A notice is *lost* if neither it nor a gap (`Missed`, or the end of the subscription) is reported within 40 s. A failed
call is reported to its caller: with a replica or the proxy die the calls that they are answering.";

const DEPLOY: &str = "200 legacy sessions and 200 modern clients call once a second each, while all three replicas are replaced: a new one
starts, the old one gets SIGTERM, is no longer ready, drains for a second, and exits. A session is *lost* if the client
must open another.";

const CALL_COST: &str = "Processor time of the replicas for a call of `echo`: of one process without an engine, and as a multiple of it. The three
are measured in turns, 4,000 calls each; the median of five turns. The programs are those of the profile `hunt`: optimized
(level 2), with assertions and overflow checks.";

const CHANGE_COST: &str = "Processor time of all replicas for one change, with subscriptions spread evenly over them: the median of five rounds of
20 changes, with the programs of the profile `hunt`. Where there is no measurement, the model says what to expect: it is
linear in the replicas and in the subscriptions, and its three constants are fitted to all measurements of the engine by
least squares of the relative errors, none of them negative. The engine gets one message for a change, and sends one to
each replica, however many subscriptions there are.";

const CHANGE_MODEL: &str = "What a change costs: the first, and the second for each replica, and the third for each subscription.";

const PEERS: &str = "The checks of `cargo xtask interop` against three replicas. *Others* are checks that do not apply to the version, and
known failures of the client.";

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| format!("| {name} | 1 |")).collect()
    }

    #[test]
    fn rows_of_other_engines_and_sections_stay() {
        let page = replace(
            "",
            Section::Faults,
            Engine::Redis,
            &rows(&["redis", "redis"]),
        );
        let page = replace(&page, Section::Deploy, Engine::Redis, &rows(&["redis"]));
        let page = replace(
            &page,
            Section::Faults,
            Engine::Postgres,
            &rows(&["postgres"]),
        );

        let again = replace(&page, Section::Faults, Engine::Redis, &rows(&["redis"]));

        assert_eq!(existing_rows(&page, Section::Faults).len(), 3);
        let expected = rows(&["postgres", "redis"]);
        assert_eq!(existing_rows(&again, Section::Faults), expected);
        assert_eq!(existing_rows(&again, Section::Deploy), rows(&["redis"]));
    }
}
