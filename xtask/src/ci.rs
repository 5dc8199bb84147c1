//! `cargo xtask ci`: every check, in order, cheapest first, with a table at the end.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::process::{self, End};
use crate::{bench, conformance, deny, interop, mutants, sentences, tidy};

/// Which steps to run and what to do when one fails.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    skip: Vec<String>,
    keep_going: bool,
    /// Also what takes long and rarely changes.
    all: bool,
}

impl Plan {
    pub(crate) fn parse(words: &[String]) -> Result<Self, String> {
        let mut plan = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--keep-going" => plan.keep_going = true,
                "--all" => plan.all = true,
                "--skip" => {
                    let step = words.next().ok_or("`--skip` needs the name of a step")?;
                    if STEPS.iter().all(|(name, _)| name != step) {
                        return Err(format!("there is no step `{step}` to skip"));
                    }
                    plan.skip.push(step.clone());
                }
                _ => return Err(format!("`ci` does not understand `{word}`")),
            }
        }
        Ok(plan)
    }
}

/// Runs the plan; true if nothing failed.
pub(crate) fn run(root: &Path, plan: &Plan) -> bool {
    let started = Instant::now();
    let mut rows = Vec::new();
    for (name, step) in STEPS {
        let is_extra = EXTRA.contains(&name) && !plan.all;
        if is_extra || plan.skip.iter().any(|skipped| skipped == name) {
            rows.push(Row::new(name, Verdict::Skipped, Duration::ZERO));
            continue;
        }
        println!("\n=== {name} ===");
        let begun = Instant::now();
        let verdict = step(root);
        let row = Row::new(name, verdict, begun.elapsed());
        println!("--- {}", row.text());
        let failed = matches!(row.verdict, Verdict::Failed(_));
        rows.push(row);
        if failed && !plan.keep_going {
            println!("stopping at `{name}`; `--keep-going` runs the rest");
            break;
        }
    }
    println!("\n{}", summary(&rows, started.elapsed()));
    rows.iter()
        .all(|row| !matches!(row.verdict, Verdict::Failed(_)))
}

/// How a step went, with a sentence for the table.
#[derive(Debug)]
enum Verdict {
    Passed(String),
    Failed(String),
    Skipped,
}

impl Verdict {
    fn of(outcome: std::io::Result<bool>) -> Self {
        match outcome {
            Ok(true) => Self::Passed(String::new()),
            Ok(false) => Self::Failed(String::new()),
            Err(error) => Self::Failed(format!("could not be run: {error}")),
        }
    }
}

#[derive(Debug)]
struct Row {
    name: &'static str,
    verdict: Verdict,
    elapsed: Duration,
}

impl Row {
    fn new(name: &'static str, verdict: Verdict, elapsed: Duration) -> Self {
        Self {
            name,
            verdict,
            elapsed,
        }
    }

    fn text(&self) -> String {
        let (word, note) = match &self.verdict {
            Verdict::Passed(note) => ("passed", note.as_str()),
            Verdict::Failed(note) => ("FAILED", note.as_str()),
            Verdict::Skipped if EXTRA.contains(&self.name) => ("skipped", "`--all` runs it"),
            Verdict::Skipped => ("skipped", "as asked"),
        };
        let line = format!(
            "{:<12} {word:<8} {:>7}  {note}",
            self.name,
            seconds(self.elapsed)
        );
        line.trim_end().to_owned()
    }
}

fn summary(rows: &[Row], elapsed: Duration) -> String {
    let mut text = String::from("=== summary ===\n");
    for row in rows {
        text.push_str(&row.text());
        text.push('\n');
    }
    let failed: Vec<&str> = rows
        .iter()
        .filter(|row| matches!(row.verdict, Verdict::Failed(_)))
        .map(|row| row.name)
        .collect();
    let verdict = if failed.is_empty() {
        "all passed".to_owned()
    } else {
        format!("FAILED: {}", failed.join(", "))
    };
    text.push_str(&format!("{verdict} in {}", seconds(elapsed)));
    text
}

fn seconds(duration: Duration) -> String {
    format!("{:.1}s", duration.as_secs_f64())
}

fn fmt(root: &Path) -> Verdict {
    Verdict::of(process::show(
        process::cargo(root).args(["fmt", "--all", "--check"]),
    ))
}

fn run_tidy(root: &Path) -> Verdict {
    Verdict::of(Ok(tidy::run(root)))
}

/// What the project is built from. Where there is no network, it says that advisories were not checked.
fn run_deny(root: &Path) -> Verdict {
    match deny::check(root) {
        Ok(checked) if checked.passed => Verdict::Passed(checked.note().to_owned()),
        Ok(checked) => Verdict::Failed(checked.note().to_owned()),
        Err(error) => Verdict::of(Err(error)),
    }
}

fn clippy(root: &Path) -> Verdict {
    // `--all-targets` leaves out a test target that `cargo test` does.
    let outcome = [["--all-targets", ""], ["--test", HOSTILE]]
        .into_iter()
        .try_fold(true, |clean, targets| {
            let targets = targets.into_iter().filter(|word| !word.is_empty());
            let mut command = process::cargo(root);
            command.args(["clippy", "--workspace", "--all-features"]);
            command.args(targets).args(["--", "-D", "warnings"]);
            Ok(clean && process::show(&mut command)?)
        });
    Verdict::of(outcome)
}

/// What is left of the SDK without some of its features compiles as cleanly as the whole.
fn features(root: &Path) -> Verdict {
    let outcome = FEATURES.iter().try_fold(true, |clean, features| {
        let mut command = process::cargo(root);
        command.args(["clippy", "--package", "bowline", "--no-default-features"]);
        command.args(["--features", features, "--", "-D", "warnings"]);
        Ok(clean && process::show(&mut command)?)
    });
    Verdict::of(outcome)
}

/// Unit, integration and documentation tests; among them whatever needs the spec's examples. The tests that
/// `scenarios/sentences.txt` names must be among those that ran.
fn test(root: &Path) -> Verdict {
    let mut command = process::cargo(root);
    command.args(["test", "--workspace", "--all-features", "--no-fail-fast"]);
    let spec = spec_folder(root);
    match &spec {
        Some(folder) => {
            println!(
                "the specification's examples are read from {}",
                folder.display()
            );
            command.env("BOWLINE_SPEC", folder);
        }
        None => println!("{NO_SPEC}"),
    }
    let finished = match process::show_and_keep(&mut command) {
        Ok(finished) => finished,
        Err(error) => return Verdict::of(Err(error)),
    };

    let count = Count::of(&finished.output);
    for name in &count.failed {
        println!("failed: {name}");
    }
    let mut note = count.text();
    if spec.is_none() {
        note.push_str("; spec examples did not run");
    }
    let (shown, complaints) = shown(root, &finished.output);
    note.push_str(&shown);
    if finished.end == End::Success && count.ran() && complaints.is_empty() {
        Verdict::Passed(note)
    } else {
        Verdict::Failed(note)
    }
}

/// A note on the sentences that a run of all tests shows, and what is missing, which is printed too.
fn shown(root: &Path, output: &str) -> (String, Vec<String>) {
    if cfg!(not(unix)) {
        // Some of the tests that are named need Unix.
        return ("; sentences were not checked".to_owned(), Vec::new());
    }
    match sentences::check(root, output) {
        Ok(shown) => (format!("; {shown}"), Vec::new()),
        Err(complaints) => {
            complaints
                .iter()
                .for_each(|line| println!("sentences.txt: {line}"));
            (
                format!("; {} named tests missing", complaints.len()),
                complaints,
            )
        }
    }
}

/// The folder of official schemas and example messages: `BOWLINE_SPEC`, or beside the project.
fn spec_folder(root: &Path) -> Option<PathBuf> {
    let folder = match std::env::var_os("BOWLINE_SPEC") {
        Some(folder) => PathBuf::from(folder),
        None => root.join("../shared/spec"),
    };
    folder.canonicalize().ok()
}

/// What the output of `cargo test` says was run.
#[derive(Debug, Default, PartialEq)]
struct Count {
    tests: usize,
    doctests: usize,
    failed: Vec<String>,
    ignored: usize,
}

impl Count {
    fn of(output: &str) -> Self {
        let mut count = Self::default();
        for (name, end) in verdicts(output) {
            if end.starts_with("ignored") {
                count.ignored += 1;
            } else if name.contains(" (line ") {
                count.doctests += 1;
            } else {
                count.tests += 1;
            }
            if end.ends_with("FAILED") {
                count.failed.push(name.to_owned());
            }
        }
        count
    }

    /// A run without tests or without doctests is a run of something else.
    fn ran(&self) -> bool {
        self.tests > 0 && self.doctests > 0
    }

    fn text(&self) -> String {
        format!(
            "{} tests, {} doctests, {} failed, {} ignored",
            self.tests,
            self.doctests,
            self.failed.len(),
            self.ignored
        )
    }
}

/// The name of each test that was printed, and how it went.
pub(crate) fn verdicts(output: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = output.lines().filter_map(|line| line.strip_prefix("test "));
    lines.filter_map(|line| line.rsplit_once(" ... "))
}

/// Hostile peers against a default server, as processes: one after the other, so that it is not a part of `test`.
fn hostile(root: &Path) -> Verdict {
    let mut command = process::cargo(root);
    command.args(["test", "--workspace", "--all-features", "--test", HOSTILE]);
    let finished = match process::show_and_keep(&mut command) {
        Ok(finished) => finished,
        Err(error) => return Verdict::of(Err(error)),
    };
    let count = Count::of(&finished.output);
    let mut note = format!("{} attacks, {} failed", count.tests, count.failed.len());
    if finished.output.contains("WITHOUT memory cgroups") {
        note.push_str("; without memory cgroups");
    }
    if finished.end == End::Success && count.tests > 0 {
        Verdict::Passed(note)
    } else {
        Verdict::Failed(note)
    }
}

fn doc(root: &Path) -> Verdict {
    Verdict::of(process::show(
        process::cargo(root)
            .args(["doc", "--workspace", "--no-deps", "--all-features"])
            .env("RUSTDOCFLAGS", "-D warnings"),
    ))
}

/// The fork between the eras is clean if the workspace compiles with the older one replaced by stubs. The
/// scenarios and what other SDKs are run against are about both eras, so there they are left out.
fn no_legacy(root: &Path) -> Verdict {
    Verdict::of(process::show(
        process::cargo(root)
            .args(["check", "--workspace"])
            .args(["--exclude", "scenarios", "--exclude", "bowline-conformance"])
            .env("RUSTFLAGS", "--cfg bowline_no_legacy")
            .env(
                "CARGO_TARGET_DIR",
                process::target_folder(root).join("no-legacy"),
            ),
    ))
}

/// What a message costs in instructions. Where valgrind is missing, it says that nothing was counted.
fn counts(root: &Path) -> Verdict {
    let mut valgrind = std::process::Command::new("valgrind");
    if valgrind.arg("--version").output().is_err() {
        return Verdict::Passed("DID NOT RUN: there is no valgrind".to_owned());
    }
    Verdict::of(Ok(
        bench::test(root) && bench::counts(root, bench::Counts::Check)
    ))
}

fn run_mutants(root: &Path) -> Verdict {
    // The mutants of the SDK itself take a rebuild of it each; `cargo xtask mutants` has the time.
    Verdict::of(Ok(mutants::run_judged_by(
        root,
        &["bowline-core", "bowline-types"],
    )))
}

fn run_conformance(root: &Path) -> Verdict {
    Verdict::of(Ok(conformance::run(root)))
}

fn run_interop(root: &Path) -> Verdict {
    let results = interop::Results::Compare;
    Verdict::of(Ok(interop::run(root, interop::Peers::Sdks, results)))
}

fn run_real(root: &Path) -> Verdict {
    let results = interop::Results::Compare;
    Verdict::of(Ok(interop::run(root, interop::Peers::Real, results)))
}

type Step = fn(&Path) -> Verdict;

const STEPS: [(&str, Step); 14] = [
    ("fmt", fmt),
    ("tidy", run_tidy),
    (DENY, run_deny),
    ("clippy", clippy),
    ("features", features),
    ("test", test),
    ("hostile", hostile),
    ("doc", doc),
    ("no-legacy", no_legacy),
    (COUNTS, counts),
    ("conformance", run_conformance),
    ("interop", run_interop),
    (REAL, run_real),
    ("mutants", run_mutants),
];

/// Its tool takes minutes to build, and its verdict changes only with the dependencies.
const DENY: &str = "deny";

/// Its programs take minutes to install, and few changes can matter to them.
const REAL: &str = "real";

/// Its programs are built in release mode, which takes five minutes on two cores.
const COUNTS: &str = "counts";

/// What is run with `--all` only.
const EXTRA: [&str; 3] = [DENY, COUNTS, REAL];

/// The test target that is a step of its own.
const HOSTILE: &str = "hostile";

/// Neither side of HTTP, and each alone.
const FEATURES: [&str; 3] = ["", "http-server,macros", "http-client"];

const NO_SPEC: &str = "The specification's own examples did not run: their folder is neither in BOWLINE_SPEC nor \
                       beside the project in ../shared/spec.";

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Plan, String> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        Plan::parse(&words)
    }

    #[test]
    fn steps_can_be_skipped_by_name() {
        let plan = parse("--skip mutants --keep-going --skip doc").unwrap();

        assert_eq!(plan.skip, ["mutants", "doc"]);
        assert!(plan.keep_going);
    }

    #[test]
    fn skipping_a_step_that_does_not_exist_is_a_mistake_and_not_a_pass() {
        assert!(parse("--skip mutant").unwrap_err().contains("`mutant`"));
        assert!(parse("--skip").is_err());
        assert!(parse("--fast").is_err());
    }

    #[test]
    fn tests_and_doctests_are_counted_apart() {
        let output = "\
running 3 tests
test id::tests::ids_travel_verbatim ... ok
test slow ... ignored, needs a network
test broken ... FAILED
test crates/bowline-types/src/json.rs - json::Json (line 18) ... ok
test result: FAILED. 2 passed; 1 failed; 1 ignored";

        let count = Count::of(output);

        assert_eq!(count.text(), "2 tests, 1 doctests, 1 failed, 1 ignored");
        assert_eq!(count.failed, ["broken"]);
    }

    #[test]
    fn a_run_without_doctests_does_not_count_as_a_run() {
        assert!(!Count::of("test a ... ok").ran());
        assert!(!Count::of("").ran());
    }

    #[test]
    fn the_summary_names_what_failed() {
        let rows = [
            Row::new("fmt", Verdict::Passed(String::new()), Duration::ZERO),
            Row::new(
                "test",
                Verdict::Failed("2 failed".to_owned()),
                Duration::ZERO,
            ),
            Row::new("mutants", Verdict::Skipped, Duration::ZERO),
        ];

        let text = summary(&rows, Duration::from_secs(61));

        assert!(
            text.contains("test         FAILED      0.0s  2 failed"),
            "{text}"
        );
        assert!(text.ends_with("FAILED: test in 61.0s"), "{text}");
    }
}
