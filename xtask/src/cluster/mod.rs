//! `cargo xtask cluster`: starts Postgres, Redis and NATS in the target folder, and tests the engine crates and replicas
//! with them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::Command;

use crate::{process, unsteady};

mod control;
use control::Control;

mod programs;

mod replicas;
use replicas::Scope;

mod report;
use report::{Part, Section};

mod server;
use server::EngineServer;

/// An engine of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Engine {
    Postgres,
    Redis,
    Nats,
}

impl Engine {
    const ALL: [Self; 3] = [Self::Postgres, Self::Redis, Self::Nats];

    fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Redis => "redis",
            Self::Nats => "nats",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|engine| engine.name() == name)
    }

    /// The crate whose tests need the engine.
    fn package(self) -> String {
        format!("bowline-{}", self.name())
    }

    /// The variable that tests read its URL from.
    fn variable(self) -> String {
        format!("BOWLINE_{}_URL", self.name().to_uppercase())
    }
}

/// Which engines to start, and what to do with them.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ClusterOptions {
    /// All if it is empty.
    only: BTreeSet<Engine>,
    /// Keeps the engines running instead of testing.
    serve: bool,
    /// What is run; the tests of the engines, the scenarios and the fixture if it is empty.
    selected: BTreeSet<Selected>,
    /// Runs a part of the scenarios.
    quick: bool,
    /// Passed to the tests.
    filter: Vec<String>,
}

/// What is run with the engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Selected {
    /// The tests of the engine crates.
    Engines,
    /// The scenarios, with three replicas of each server.
    Scenarios,
    /// The checks of the fixture, with three replicas as processes.
    Fixture,
    /// The same, with the clients of other SDKs.
    Peers,
    Faults,
    Deploy,
    Cost,
}

impl Selected {
    const DEFAULT: [Self; 3] = [Self::Engines, Self::Scenarios, Self::Fixture];
    const REPORT: [Self; 5] = [
        Self::Scenarios,
        Self::Faults,
        Self::Deploy,
        Self::Cost,
        Self::Peers,
    ];

    fn of_option(word: &str) -> Option<Vec<Self>> {
        Some(match word {
            "--engines" => vec![Self::Engines],
            "--scenarios" => vec![Self::Scenarios],
            "--fixture" => vec![Self::Fixture],
            "--peers" => vec![Self::Peers],
            "--faults" => vec![Self::Faults],
            "--deploy" => vec![Self::Deploy],
            "--cost" => vec![Self::Cost],
            "--report" => Self::REPORT.to_vec(),
            _ => return None,
        })
    }
}

impl ClusterOptions {
    pub(crate) fn parse(words: &[String]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--only" => {
                    let name = words.next().ok_or("`--only` needs the name of an engine")?;
                    let engine = Engine::from_name(name);
                    let engine = engine.ok_or_else(|| format!("unknown engine `{name}`"))?;
                    options.only.insert(engine);
                }
                "--serve" => options.serve = true,
                "--quick" => options.quick = true,
                word if word.starts_with("--") => {
                    let selected = Selected::of_option(word);
                    let unknown = || format!("unknown option `{word}` of `cluster`");
                    options.selected.extend(selected.ok_or_else(unknown)?);
                }
                _ => options.filter.push(word.clone()),
            }
        }
        Ok(options)
    }

    fn selected(&self) -> Vec<Selected> {
        match self.selected.is_empty() {
            true => Selected::DEFAULT.to_vec(),
            false => self.selected.iter().copied().collect(),
        }
    }

    fn scope(&self) -> Scope {
        match self.quick {
            true => Scope::Quick,
            false => Scope::All,
        }
    }

    fn engines(&self) -> impl Iterator<Item = Engine> {
        let all = Engine::ALL.into_iter();
        all.filter(|engine| self.only.is_empty() || self.only.contains(engine))
    }
}

/// The outcome of the tests.
#[derive(Debug)]
pub(crate) struct ClusterResult {
    pub(crate) passed: bool,
    /// The engines that were tested, and those that could not be started.
    pub(crate) note: String,
}

/// Starts engines and runs the tests; returns whether they passed and every engine was there.
pub(crate) fn run(root: &Path, options: &ClusterOptions) -> io::Result<bool> {
    let _lock = lock_folder(root)?;
    let (servers, missing) = start(root, options);
    if options.serve {
        return serve(servers);
    }
    let note = engine_note(&servers, &missing);
    let started = StartedEngines::new(servers)?;
    let mut passed = missing.is_empty();
    for selected in options.selected() {
        let result = started.run(root, selected, options)?;
        println!("{selected:?}: {}", result.note);
        passed &= result.passed;
    }
    println!("{note}");
    Ok(passed)
}

/// The step of `ci`: an engine that cannot be installed is named, and is no failure.
pub(crate) fn run_in_ci(root: &Path) -> io::Result<ClusterResult> {
    let _lock = lock_folder(root)?;
    let (servers, missing) = start(root, &ClusterOptions::default());
    let note = engine_note(&servers, &missing);
    if servers.is_empty() {
        let passed = true;
        return Ok(ClusterResult { passed, note });
    }
    let started = StartedEngines::new(servers)?;
    let options = ClusterOptions {
        quick: true,
        ..ClusterOptions::default()
    };
    let mut all = ClusterResult { passed: true, note };
    for selected in [Selected::Engines, Selected::Scenarios] {
        let result = started.run(root, selected, &options)?;
        all.passed &= result.passed;
        all.note = format!("{} of {}", result.note, all.note);
    }
    Ok(all)
}

/// Locks the folder of the engines until the file is dropped: two runs would delete each other's data.
fn lock_folder(root: &Path) -> io::Result<File> {
    let folder = process::target_folder(root).join("cluster");
    fs::create_dir_all(&folder)?;
    let file = File::create(folder.join("lock"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(io::Error::other(format!(
            "another `cargo xtask cluster` uses {}; wait until it has ended",
            folder.display()
        ))),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}

fn start(root: &Path, options: &ClusterOptions) -> (Vec<EngineServer>, Vec<Engine>) {
    let (mut servers, mut missing) = (Vec::new(), Vec::new());
    for engine in options.engines() {
        match EngineServer::start(root, engine) {
            Ok(server) => {
                println!("{}: {}", engine.name(), server.url());
                servers.push(server);
            }
            Err(error) => {
                println!("{} could NOT be started: {error}", engine.name());
                missing.push(engine);
            }
        }
    }
    (servers, missing)
}

/// Returns which engines are there and which are not, for a summary.
fn engine_note(servers: &[EngineServer], missing: &[Engine]) -> String {
    let names = |engines: &mut dyn Iterator<Item = Engine>| -> String {
        let names: Vec<_> = engines.map(Engine::name).collect();
        names.join(", ")
    };
    let mut note = names(&mut servers.iter().map(EngineServer::engine));
    if !missing.is_empty() {
        let missing = names(&mut missing.iter().copied());
        note.push_str(&format!("; NOT TESTED, could not be started: {missing}"));
    }
    note
}

/// Engines that run, with the port at which they are restarted.
struct StartedEngines {
    engines: Vec<(Engine, String)>,
    control: Control,
}

impl StartedEngines {
    fn new(servers: Vec<EngineServer>) -> io::Result<Self> {
        let engines = servers.iter().map(|server| (server.engine(), server.url()));
        Ok(Self {
            engines: engines.collect(),
            control: Control::start(servers)?,
        })
    }

    fn run(
        &self,
        root: &Path,
        selected: Selected,
        options: &ClusterOptions,
    ) -> io::Result<ClusterResult> {
        let engines = &self.engines;
        let report = |part| -> io::Result<ClusterResult> {
            let passed = report::run(root, part, engines, self.control.address())?;
            let note = "written to CLUSTER.md".to_owned();
            Ok(ClusterResult { passed, note })
        };
        let (passed, note) = match selected {
            Selected::Engines => self.test_crates(root, &options.filter)?,
            Selected::Scenarios => {
                let run = replicas::scenarios(root, engines, options.scope(), &options.filter)?;
                // A part of them is not what the page is about.
                if options.scope() == Scope::All && options.filter.is_empty() {
                    self.write_rows(root, Section::Scenarios, &run.rows)?;
                }
                let note = format!("{} scenarios with three replicas", run.tests);
                (run.passed, note)
            }
            Selected::Fixture => {
                let (passed, cells) = replicas::fixture(root, engines)?;
                (passed, format!("{cells} cells"))
            }
            Selected::Peers => {
                let (passed, rows) = replicas::peers(root, engines)?;
                self.write_rows(root, Section::Peers, &rows)?;
                (passed, format!("{} cells", rows.len()))
            }
            Selected::Faults => return report(Part::Faults),
            Selected::Deploy => return report(Part::Deploy),
            Selected::Cost => return report(Part::Cost),
        };
        Ok(ClusterResult { passed, note })
    }

    fn write_rows(
        &self,
        root: &Path,
        section: Section,
        rows: &[(Engine, String)],
    ) -> io::Result<()> {
        for (engine, _) in &self.engines {
            let rows = rows.iter().filter(|(of, _)| of == engine);
            let rows: Vec<_> = rows.map(|(_, row)| row.clone()).collect();
            report::write(root, section, *engine, &rows)?;
        }
        Ok(())
    }

    /// Runs the tests of the engine crates; returns whether they passed, and how many there were.
    fn test_crates(&self, root: &Path, filter: &[String]) -> io::Result<(bool, String)> {
        // The tests that restart an engine run after the others, one at a time.
        let passes: [&[&str]; 2] = [&["--skip", RESTARTING], &["--test-threads=1", RESTARTING]];
        let (mut tests, mut passed) = (0, true);
        for arguments in passes {
            let captured = unsteady::run_tests(arguments, |arguments| {
                self.engine_tests(root, arguments, filter)
            })?;
            tests += crate::ci::test_lines(&captured.output).count();
            passed &= captured.end == process::ExitKind::Success;
        }
        Ok((passed && tests > 0, format!("{tests} tests")))
    }

    fn engine_tests(&self, root: &Path, arguments: &[&str], filter: &[String]) -> Command {
        let mut command = process::cargo(root);
        // The whole workspace, as the other steps of ci: a part of it would be built with other features, in minutes.
        command.args(["test", "--workspace", "--all-features", "--no-fail-fast"]);
        for engine in Engine::ALL {
            match self.engines.iter().find(|(started, _)| *started == engine) {
                Some((_, url)) => command.env(engine.variable(), url),
                None => command.args(["--exclude", &engine.package()]),
            };
        }
        command.env(CONTROL_VARIABLE, self.control.address());
        command.args(["--test", TARGET, "--"]);
        command.args(arguments).args(filter);
        // The modules of tests that are of all engines.
        for engine in Engine::ALL {
            if !self.engines.iter().any(|(started, _)| *started == engine) {
                command.args(["--skip", &format!("{}::", engine.name())]);
            }
        }
        command
    }
}

/// Keeps the engines running until standard input ends.
fn serve(servers: Vec<EngineServer>) -> io::Result<bool> {
    for server in &servers {
        println!("export {}={}", server.engine().variable(), server.url());
    }
    let control = Control::start(servers)?;
    println!("export {CONTROL_VARIABLE}={}", control.address());
    println!("the engines run until the end of standard input");
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(true)
}

/// The test target of the engine crates, which is not part of `cargo test`.
pub(crate) const TARGET: &str = "engine";
/// The module of tests that restart an engine.
const RESTARTING: &str = "restart::";
/// The variable that tests read the address from at which they restart an engine.
const CONTROL_VARIABLE: &str = "BOWLINE_CLUSTER_CONTROL";

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<ClusterOptions, String> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        ClusterOptions::parse(&words)
    }

    #[test]
    fn all_engines_are_started_unless_some_are_named() {
        let all: Vec<_> = parse("").unwrap().engines().collect();
        let some: Vec<_> = parse("--only nats --only redis")
            .unwrap()
            .engines()
            .collect();

        assert_eq!(all, Engine::ALL);
        assert_eq!(some, [Engine::Redis, Engine::Nats]);
        assert_eq!(parse("marks").unwrap().filter, ["marks"]);
    }

    #[test]
    fn an_unknown_engine_or_option_is_named() {
        assert!(parse("--only mysql").unwrap_err().contains("`mysql`"));
        assert!(parse("--only").is_err());
        assert!(parse("--fast").unwrap_err().contains("`--fast`"));
    }

    #[test]
    fn a_second_run_in_the_same_folder_is_refused_until_the_first_has_ended() {
        let root = std::env::temp_dir().join(format!("bowline-cluster-{}", std::process::id()));

        let first = lock_folder(&root).unwrap();
        let second = lock_folder(&root).unwrap_err();
        drop(first);
        let third = lock_folder(&root);

        assert!(second.to_string().contains("another `cargo xtask cluster`"));
        assert!(third.is_ok());
        let _ = fs::remove_dir_all(&root);
    }
}
