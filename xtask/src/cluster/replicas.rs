//! Three replicas behind a proxy: the scenarios, the fixture with our client, and the clients of other SDKs.

use std::io;
use std::path::Path;

use super::Engine;
use crate::interop::{
    CHECKS, Cell, CellSpec, KnownFailures, OurPrograms, Peer, ProgramCommand, Side, TASK_CHECKS,
    Transport, known_failures,
};
use crate::process;
use crate::server_process::ServerProcess;

/// Which of the scenarios to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// All, with a proxy that never sticks and one that does.
    All,
    /// Those over HTTP/1.1 in the newest version of each era, with a proxy that never sticks, on one engine.
    Quick,
}

/// Runs the scenarios with three replicas of every server; returns whether they passed, and how many.
pub(super) fn scenarios(
    root: &Path,
    engines: &[(Engine, String)],
    scope: Scope,
    filter: &[String],
) -> io::Result<(bool, usize)> {
    let (mut passed, mut tests) = (true, 0);
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
            let mut command = process::cargo(root);
            // The features of the other steps, as with the tests of the engines.
            command.args([
                "test",
                "--workspace",
                "--all-features",
                "--test",
                "scenarios",
            ]);
            command.arg("--").args(filter);
            if scope == Scope::Quick && filter.is_empty() {
                command.args(QUICK);
            }
            command.env("BOWLINE_SCENARIO_ENGINE", url);
            if sticks {
                command.env("BOWLINE_SCENARIO_STICKS", "1");
            }
            println!("\n--- scenarios on {}, {}", engine.name(), sticking(sticks));
            let captured = process::run_and_capture(&mut command)?;
            tests += crate::ci::test_lines(&captured.output).count();
            passed &= captured.end == process::ExitKind::Success;
        }
    }
    Ok((passed && tests > 0, tests))
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
