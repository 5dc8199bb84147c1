//! Three replicas behind a proxy: the scenarios, the fixture with our client, and the clients of other SDKs.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::Engine;
use crate::interop::{
    CHECKS, Cell, CellSpec, KnownFailures, OurPrograms, Peer, ProgramCommand, Side, TASK_CHECKS,
    Transport, known_failures,
};
use crate::process;
use crate::server_process::ServerProcess;
use crate::unsteady;

/// Which of the scenarios to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// All, with a proxy that never sticks and one that does.
    All,
    /// Those over HTTP/1.1 in the newest version of each era, with a proxy that never sticks, on one engine.
    Quick,
}

/// The outcome of the scenarios.
pub(super) struct ScenarioResult {
    pub(super) passed: bool,
    pub(super) tests: usize,
    pub(super) rows: Vec<(Engine, String)>,
}

/// Runs the scenarios with three replicas of every server; returns whether they passed, how many, and rows of
/// `CLUSTER.md`.
pub(super) fn scenarios(
    root: &Path,
    engines: &[(Engine, String)],
    scope: Scope,
    filter: &[String],
) -> io::Result<ScenarioResult> {
    let (mut passed, mut tests, mut rows) = (true, 0, Vec::new());
    // Redis is the fastest.
    let quick = engines.iter().find(|(engine, _)| *engine == Engine::Redis);
    let engines = match (scope, quick) {
        (Scope::Quick, Some(redis)) => std::slice::from_ref(redis),
        _ => engines,
    };
    for (engine, url) in engines {
        for sticks in [false, true] {
            if sticks && scope == Scope::Quick {
                continue;
            }
            println!("\n--- scenarios on {}, {}", engine.name(), sticking(sticks));
            let quick = scope == Scope::Quick && filter.is_empty();
            let filter = filter.iter().map(String::as_str);
            let selected = if quick {
                QUICK.to_vec()
            } else {
                filter.collect()
            };
            let captured = unsteady::run_tests(&selected, |arguments| {
                let mut command = process::cargo(root);
                // The features of the other steps, as with the tests of the engines.
                command.args(["test", "--workspace", "--all-features"]);
                command.args(["--test", "scenarios", "--"]).args(arguments);
                command.env("BOWLINE_SCENARIO_ENGINE", url);
                if sticks {
                    command.env("BOWLINE_SCENARIO_STICKS", "1");
                }
                command
            })?;
            tests += crate::ci::test_lines(&captured.output).count();
            passed &= captured.end == process::ExitKind::Success;
            let of_run = scenario_rows(*engine, sticks, &captured.output);
            rows.extend(of_run.into_iter().map(|row| (*engine, row)));
        }
    }
    Ok(ScenarioResult {
        passed: passed && tests > 0,
        tests,
        rows,
    })
}

/// Runs the checks of the fixture with our client in every version, against replicas that are processes; returns
/// whether they passed, and how many cells there were.
pub(super) fn fixture(root: &Path, engines: &[(Engine, String)]) -> io::Result<(bool, usize)> {
    let ours = OurPrograms::build(root)?;
    let mut cells = Vec::new();
    for (engine, url) in engines {
        for sticks in [false, true] {
            println!("\n--- fixture on {}, {}", engine.name(), sticking(sticks));
            let replicas = ReplicaGroup::start(root, &ours, *engine, url, sticks)?;
            for mode in MODES {
                let spec = of_fixture("bowline", Transport::Http, mode);
                cells.push(run_cell(spec, &ours.client, &[mode], replicas.url())?);
            }
            if *engine == Engine::Postgres {
                let spec = CellSpec {
                    checks: TASK_CHECKS,
                    ..of_fixture("bowline", Transport::Http, "tasks")
                };
                cells.push(run_cell(
                    spec,
                    &ours.client,
                    &["2026", "--tasks"],
                    replicas.url(),
                )?);
            } else {
                let name = engine.name();
                println!(
                    "tasks are not checked on {name}: it has no store of tasks (docs/replicas.md)"
                );
            }
        }
    }
    Ok((cells.iter().all(Cell::is_as_expected), cells.len()))
}

/// Runs the clients of other SDKs; returns whether they passed, and rows of `CLUSTER.md`.
pub(super) fn peers(
    root: &Path,
    engines: &[(Engine, String)],
) -> io::Result<(bool, Vec<(Engine, String)>)> {
    let ours = OurPrograms::build(root)?;
    let known = known_failures(root)?;
    let peers: Vec<Peer> = Peer::install_for_replicas(root)?;
    let (mut passed, mut rows) = (true, Vec::new());
    for (engine, url) in engines {
        for sticks in [false, true] {
            println!(
                "\n--- other SDKs on {}, {}",
                engine.name(),
                sticking(sticks)
            );
            for peer in &peers {
                // New replicas for each, whose counters no other client changes.
                let replicas = ReplicaGroup::start(root, &ours, *engine, url, sticks)?;
                for transport in [Transport::Http, Transport::HttpSse] {
                    for mode in peer.modes(transport) {
                        let spec = of_fixture(peer.name, transport, &mode);
                        let known = known.about(&[peer.name]);
                        let command = &mut peer.client.command(&[&mode]);
                        command.env("BOWLINE_REPLICAS", "1");
                        let cell = spec.run(command.arg(replicas.url()), &known)?;
                        println!("{cell}");
                        passed &= cell.is_as_expected();
                        rows.push((*engine, row(*engine, sticks, &cell)));
                    }
                }
            }
        }
    }
    Ok((passed, rows))
}

/// Returns a row for each transport and version, and one for all of them with how many runs had replicas.
fn scenario_rows(engine: Engine, sticks: bool, output: &str) -> Vec<String> {
    let mut columns: BTreeMap<(&str, &str), (usize, usize)> = BTreeMap::new();
    for (name, outcome) in crate::ci::test_lines(output) {
        // `module::scenario (HTTP/2 at 2026-07-28, redis, never sticks)`
        let column = name.rsplit_once('(').map(|(_, column)| column);
        let column = column.and_then(|column| column.split(',').next()?.split_once(" at "));
        let (runs, failed) = columns.entry(column.unwrap_or(("–", "–"))).or_default();
        *runs += 1;
        *failed += usize::from(outcome != "ok");
    }
    let start = format!("| {} | {}", engine.name(), sticking(sticks));
    let mut rows: Vec<_> = columns
        .iter()
        .map(|((transport, version), (runs, failed))| {
            format!("{start} | {transport} | {version} | {runs} | {failed} |")
        })
        .collect();
    let replicated = output
        .lines()
        .find_map(|line| line.strip_prefix("replicated: "));
    let runs: usize = columns.values().map(|(runs, _)| runs).sum();
    let failed: usize = columns.values().map(|(_, failed)| failed).sum();
    let replicated = replicated.unwrap_or("none");
    rows.push(format!(
        "{start} | all | all | {runs}; with replicas: {replicated} | {failed} |"
    ));
    rows
}

fn row(engine: Engine, sticks: bool, cell: &Cell) -> String {
    let (ok, others) = cell.counts();
    format!(
        "| {} | {} | {} {} {} | {ok} | {others} |",
        engine.name(),
        sticking(sticks),
        cell.peer,
        cell.transport.name(),
        cell.mode,
    )
}

fn of_fixture<'a>(peer: &'static str, transport: Transport, mode: &'a str) -> CellSpec<'a> {
    CellSpec {
        peer,
        side: Side::Client,
        transport,
        mode,
        checks: CHECKS,
        version: None,
    }
}

fn run_cell(
    spec: CellSpec<'_>,
    client: &ProgramCommand,
    words: &[&str],
    url: &str,
) -> io::Result<Cell> {
    let cell = spec.run(client.command(words).arg(url), &KnownFailures::default())?;
    println!("{cell}");
    Ok(cell)
}

/// Three replicas as processes, and a proxy in front of them.
pub(super) struct ReplicaGroup {
    _replicas: Vec<ServerProcess>,
    proxy: ServerProcess,
}

impl ReplicaGroup {
    fn start(
        root: &Path,
        ours: &OurPrograms,
        engine: Engine,
        url: &str,
        sticks: bool,
    ) -> io::Result<Self> {
        let state = state_folder(root, engine)?;
        let state = state.display().to_string();
        let mut replicas = Vec::new();
        for _ in 0..3 {
            let words = ["--transport", "http", "--cluster", url, "--state", &state];
            replicas.push(ServerProcess::start(&mut ours.server.command(&words))?);
        }
        let addresses = replicas.iter().map(|replica| {
            let url = replica.url().trim_start_matches("http://");
            url.split('/').next().unwrap_or_default().to_owned()
        });
        let stickiness = if sticks { "connection" } else { "never" };
        let mut proxy = ours.cluster_proxy.command(&[stickiness]);
        let proxy = ServerProcess::start(proxy.args(addresses))?;
        Ok(Self {
            _replicas: replicas,
            proxy,
        })
    }

    fn url(&self) -> &str {
        self.proxy.url()
    }
}

/// Returns an empty folder that the replicas share.
pub(super) fn state_folder(root: &Path, engine: Engine) -> io::Result<std::path::PathBuf> {
    let folder = process::target_folder(root).join(format!("{}-replicas", engine.name()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn sticking(sticks: bool) -> &'static str {
    match sticks {
        true => "sticks by connection",
        false => "never sticks",
    }
}

/// The modes of our client: both eras, and every version of the legacy one.
const MODES: [&str; 6] = [
    "auto",
    "2026",
    "legacy",
    "legacy:2025-06-18",
    "legacy:2025-03-26",
    "legacy:2024-11-05",
];
const QUICK: [&str; 2] = ["(HTTP/1.1 at 2026-07-28", "(HTTP/1.1 at 2025-11-25"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_are_counted_by_transport_and_version() {
        let output = "test a::b (HTTP/2 at 2026-07-28, redis, never sticks) ... ok
test a::c (HTTP/2 at 2026-07-28, redis, never sticks) ... FAILED
test a::b (HTTP/1.1 at 2025-11-25, redis, never sticks) ... ok
replicated: 1 scenarios, 2 runs";

        let rows = scenario_rows(Engine::Redis, false, output);

        let expected = [
            "| redis | never sticks | HTTP/1.1 | 2025-11-25 | 1 | 0 |",
            "| redis | never sticks | HTTP/2 | 2026-07-28 | 2 | 1 |",
            "| redis | never sticks | all | all | 3; with replicas: 1 scenarios, 2 runs | 1 |",
        ];
        assert_eq!(rows, expected);
    }
}
