//! `cargo xtask ci`: runs all checks, cheapest first, and prints a summary.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::process::{self, ExitKind};
use crate::{
    api, bench, cluster, conformance, deny, docs, docs_rs, interop, msrv, mutants, otel, package,
    semver, sentences, tidy, typos, unsteady,
};

/// Which steps to run, and whether to continue after a failure.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct CiOptions {
    skip: Vec<String>,
    keep_going: bool,
    /// Also runs the steps in [`ALL_ONLY`].
    all: bool,
}

impl CiOptions {
    pub(crate) fn parse(words: &[String]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--keep-going" => options.keep_going = true,
                "--all" => options.all = true,
                "--skip" => {
                    let step = words.next().ok_or("`--skip` needs the name of a step")?;
                    if STEPS.iter().all(|(name, _)| name != step) {
                        return Err(format!("unknown step `{step}`"));
                    }
                    options.skip.push(step.clone());
                }
                _ => return Err(format!("unknown option `{word}` of `ci`")),
            }
        }
        Ok(options)
    }
}

/// Runs the steps; returns whether none failed, and with `--all` whether nothing was unsteady.
pub(crate) fn run(root: &Path, options: &CiOptions) -> bool {
    let started = Instant::now();
    let mut rows = Vec::new();
    for (name, step) in STEPS {
        let needs_all = ALL_ONLY.contains(&name) && !options.all;
        if needs_all || options.skip.iter().any(|skipped| skipped == name) {
            rows.push(Row::new(name, StepResult::Skipped, Duration::ZERO));
            continue;
        }
        println!("\n=== {name} ===");
        let begun = Instant::now();
        let result = step(root);
        let row = Row::new(name, result, begun.elapsed());
        println!("--- {}", row.text());
        let failed = matches!(row.result, StepResult::Failed(_));
        rows.push(row);
        if failed && !options.keep_going {
            println!("stopped after `{name}`; `--keep-going` runs the remaining steps");
            break;
        }
    }
    let unsteady = unsteady::recorded();
    println!("\n{}", summary(&rows, &unsteady, started.elapsed()));
    is_success(&rows, &unsteady, options)
}

fn is_success(rows: &[Row], unsteady: &[String], options: &CiOptions) -> bool {
    let failed = |row: &Row| matches!(row.result, StepResult::Failed(_));
    !rows.iter().any(failed) && (unsteady.is_empty() || !options.all)
}

/// The result of a step, with a note for the summary.
#[derive(Debug)]
enum StepResult {
    Passed(String),
    Failed(String),
    Skipped,
}

impl StepResult {
    fn of(outcome: std::io::Result<bool>) -> Self {
        match outcome {
            Ok(true) => Self::Passed(String::new()),
            Ok(false) => Self::Failed(String::new()),
            Err(error) => Self::Failed(format!("failed to run: {error}")),
        }
    }
}

#[derive(Debug)]
struct Row {
    name: &'static str,
    result: StepResult,
    elapsed: Duration,
}

impl Row {
    fn new(name: &'static str, result: StepResult, elapsed: Duration) -> Self {
        Self {
            name,
            result,
            elapsed,
        }
    }

    fn text(&self) -> String {
        let (word, note) = match &self.result {
            StepResult::Passed(note) => ("passed", note.as_str()),
            StepResult::Failed(note) => ("FAILED", note.as_str()),
            StepResult::Skipped if ALL_ONLY.contains(&self.name) => {
                ("skipped", "runs with `--all` only")
            }
            StepResult::Skipped => ("skipped", "`--skip`"),
        };
        let line = format!(
            "{:<12} {word:<8} {:>7}  {note}",
            self.name,
            seconds(self.elapsed)
        );
        line.trim_end().to_owned()
    }
}

fn summary(rows: &[Row], unsteady: &[String], elapsed: Duration) -> String {
    let mut text = String::from("=== summary ===\n");
    for row in rows {
        text.push_str(&row.text());
        text.push('\n');
    }
    for name in unsteady {
        text.push_str(&format!(
            "unsteady: {name} failed, and passed when it was run again\n"
        ));
    }
    let failed: Vec<&str> = rows
        .iter()
        .filter(|row| matches!(row.result, StepResult::Failed(_)))
        .map(|row| row.name)
        .collect();
    let result = if failed.is_empty() {
        "all passed".to_owned()
    } else {
        format!("FAILED: {}", failed.join(", "))
    };
    text.push_str(&format!("{result} in {}", seconds(elapsed)));
    text
}

fn seconds(duration: Duration) -> String {
    format!("{:.1}s", duration.as_secs_f64())
}

fn fmt(root: &Path) -> StepResult {
    StepResult::of(process::run(
        process::cargo(root).args(["fmt", "--all", "--check"]),
    ))
}

fn run_tidy(root: &Path) -> StepResult {
    StepResult::of(Ok(tidy::run(root)))
}

fn run_typos(root: &Path) -> StepResult {
    StepResult::of(typos::run(root))
}

/// Checks the dependencies. Without a network, the note says that advisories were not checked.
fn run_deny(root: &Path) -> StepResult {
    match deny::check(root) {
        Ok(checked) if checked.passed => StepResult::Passed(checked.note().to_owned()),
        Ok(checked) => StepResult::Failed(checked.note().to_owned()),
        Err(error) => StepResult::of(Err(error)),
    }
}

fn clippy(root: &Path) -> StepResult {
    // `--all-targets` skips a test target with `test = false`, as `cargo test` does.
    let outcome = [
        ["--all-targets", ""],
        ["--test", HOSTILE],
        ["--test", cluster::TARGET],
    ]
    .into_iter()
    .try_fold(true, |clean, targets| {
        let targets = targets.into_iter().filter(|word| !word.is_empty());
        let mut command = process::cargo(root);
        command.args(["clippy", "--workspace", "--all-features"]);
        command.args(targets).args(["--", "-D", "warnings"]);
        Ok(clean && process::run(&mut command)?)
    });
    StepResult::of(outcome)
}

/// Runs clippy on the SDK with only some of its features.
fn features(root: &Path) -> StepResult {
    let outcome = FEATURES.iter().try_fold(true, |clean, features| {
        let mut command = process::cargo(root);
        command.args(["clippy", "--package", "bowline", "--no-default-features"]);
        command.args(["--features", features, "--", "-D", "warnings"]);
        Ok(clean && process::run(&mut command)?)
    });
    StepResult::of(outcome)
}

/// Runs unit, integration and documentation tests, with the specification's examples if they are found. The tests named
/// in `scenarios/sentences.txt` must have run and passed.
fn test(root: &Path) -> StepResult {
    let spec = spec_folder(root);
    match &spec {
        Some(folder) => println!(
            "reading the specification's examples from {}",
            folder.display()
        ),
        None => println!("{NO_SPEC}"),
    }
    let captured = unsteady::run_tests(&[], |arguments| {
        let mut command = process::cargo(root);
        command.args(["test", "--workspace", "--all-features", "--no-fail-fast"]);
        command.arg("--").args(arguments);
        command.envs(spec.iter().map(|folder| ("BOWLINE_SPEC", folder)));
        command
    });
    let captured = match captured {
        Ok(captured) => captured,
        Err(error) => return StepResult::of(Err(error)),
    };

    let count = TestCounts::of(&captured.output);
    for name in &count.failed {
        println!("failed: {name}");
        for line in failure_lines(&captured.output, name) {
            println!("    {line}");
        }
    }
    let mut note = count.text();
    if spec.is_none() {
        note.push_str("; spec examples did not run");
    }
    let (shown, problems) = check_sentences(root, &captured.output);
    note.push_str(&shown);
    let is_clean = count.failed.is_empty() && problems.is_empty();
    if captured.end == ExitKind::Success && count.is_complete() && is_clean {
        StepResult::Passed(note)
    } else {
        StepResult::Failed(note)
    }
}

/// Checks that the tests named in `sentences.txt` passed; returns a note and the problems, which are printed too.
fn check_sentences(root: &Path, output: &str) -> (String, Vec<String>) {
    if cfg!(not(unix)) {
        // Some of the named tests exist only on Unix.
        return ("; sentences.txt was not checked".to_owned(), Vec::new());
    }
    match sentences::check(root, output) {
        Ok(shown) => (format!("; {shown}"), Vec::new()),
        Err(problems) => {
            problems
                .iter()
                .for_each(|line| println!("sentences.txt: {line}"));
            (
                format!("; {} named tests did not pass", problems.len()),
                problems,
            )
        }
    }
}

/// Returns the folder of official schemas and example messages: `BOWLINE_SPEC`, or `../shared/spec`.
fn spec_folder(root: &Path) -> Option<PathBuf> {
    let folder = match std::env::var_os("BOWLINE_SPEC") {
        Some(folder) => PathBuf::from(folder),
        None => root.join("../shared/spec"),
    };
    folder.canonicalize().ok()
}

/// The counts of tests in the output of `cargo test`.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct TestCounts {
    tests: usize,
    doctests: usize,
    pub(crate) failed: Vec<String>,
    ignored: usize,
}

impl TestCounts {
    pub(crate) fn of(output: &str) -> Self {
        let mut count = Self::default();
        for (name, end) in test_lines(output) {
            let is_doctest = name.contains(" (line ");
            let is_ignored = end.starts_with("ignored");
            if is_ignored {
                count.ignored += 1;
            } else if is_doctest {
                count.doctests += 1;
            } else {
                count.tests += 1;
            }
            // Code that cannot run is marked in documentation; `#[ignore]` would be unfinished work.
            if end.ends_with("FAILED") || is_ignored && !is_doctest {
                count.failed.push(name.to_owned());
            }
        }
        count
    }

    /// Returns whether both tests and doctests ran. Otherwise the output was not that of a complete run.
    fn is_complete(&self) -> bool {
        self.tests > 0 && self.doctests > 0
    }

    pub(crate) fn text(&self) -> String {
        format!(
            "{} tests, {} doctests, {} failed, {} ignored",
            self.tests,
            self.doctests,
            self.failed.len(),
            self.ignored
        )
    }
}

/// Returns the name and result of each test in the output of `cargo test`.
pub(crate) fn test_lines(output: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = output.lines().filter_map(|line| line.strip_prefix("test "));
    lines.filter_map(|line| line.rsplit_once(" ... "))
}

/// Returns the first lines of what a failed test printed, so that they stand beside the summary as well.
fn failure_lines<'a>(output: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let heading = format!("---- {name} stdout ----");
    let lines = output.lines().skip_while(move |line| *line != heading);
    let lines = lines.skip(1).take_while(|line| !line.starts_with("---- "));
    lines.filter(|line| !line.is_empty()).take(FAILURE_LINES)
}

/// Enough for the place and the message of a panic.
const FAILURE_LINES: usize = 8;

/// Runs hostile peers as processes against a server with default limits. One after the other, so not part of `test`.
fn hostile(root: &Path) -> StepResult {
    let captured = unsteady::run_tests(&[], |arguments| {
        let mut command = process::cargo(root);
        command.args(["test", "--workspace", "--all-features", "--test", HOSTILE]);
        command.arg("--").args(arguments);
        command
    });
    let captured = match captured {
        Ok(captured) => captured,
        Err(error) => return StepResult::of(Err(error)),
    };
    let count = TestCounts::of(&captured.output);
    let mut note = format!("{} attacks, {} failed", count.tests, count.failed.len());
    if captured.output.contains("NO memory cgroups") {
        note.push_str("; without memory cgroups");
    }
    if captured.end == ExitKind::Success && count.tests > 0 {
        StepResult::Passed(note)
    } else {
        StepResult::Failed(note)
    }
}

fn doc(root: &Path) -> StepResult {
    StepResult::of(docs_rs::run(root))
}

fn pack(root: &Path) -> StepResult {
    StepResult::of(package::run(root, package::PackageMode::Pack))
}

fn build_packages(root: &Path) -> StepResult {
    StepResult::of(package::run(root, package::PackageMode::Build))
}

/// Checks the oldest supported Rust. If it is not installed, the note says so.
fn run_msrv(root: &Path) -> StepResult {
    match msrv::check(root) {
        Ok(checked) if checked.passed => StepResult::Passed(checked.note),
        Ok(checked) => StepResult::Failed(checked.note),
        Err(error) => StepResult::of(Err(error)),
    }
}

/// Compares the public API with that of the last release. Before the first release it compares nothing, and prints so.
fn run_semver(root: &Path) -> StepResult {
    StepResult::of(semver::run(root, None))
}

fn run_api(root: &Path) -> StepResult {
    StepResult::of(api::run(root, api::ApiMode::Compare))
}

/// Checks the build without the feature `legacy`. Only the SDK's own crates: the others depend on both eras.
fn no_legacy(root: &Path) -> StepResult {
    let mut command = process::cargo(root);
    command.args([
        "clippy",
        "--package",
        "bowline",
        "--package",
        "bowline-core",
    ]);
    command.args(["--no-default-features", "--features", MODERN_ONLY]);
    StepResult::of(process::run(command.args(["--", "-D", "warnings"])))
}

/// Counts instructions per message. Without valgrind, the note says that it did not run.
fn counts(root: &Path) -> StepResult {
    let mut valgrind = std::process::Command::new("valgrind");
    if valgrind.arg("--version").output().is_err() {
        return StepResult::Passed("DID NOT RUN: valgrind is not installed".to_owned());
    }
    StepResult::of(Ok(
        bench::test(root) && bench::counts(root, bench::CountsMode::Check)
    ))
}

/// Checks that every planted bug still applies.
fn apply_mutants(root: &Path) -> StepResult {
    StepResult::of(Ok(mutants::apply_all(root)))
}

fn run_mutants(root: &Path) -> StepResult {
    // Each mutant of `bowline` rebuilds that crate, which takes too long here; `cargo xtask mutants` runs them.
    StepResult::of(Ok(mutants::run_for_packages(
        root,
        &["bowline-core", "bowline-fuzz", "bowline-types"],
    )))
}

fn run_conformance(root: &Path) -> StepResult {
    StepResult::of(Ok(conformance::run(root)))
}

fn run_docs(root: &Path) -> StepResult {
    StepResult::of(docs::run(root))
}

fn run_otel(root: &Path) -> StepResult {
    StepResult::of(otel::run(root))
}

fn run_interop(root: &Path) -> StepResult {
    let results = interop::ResultsMode::Compare;
    StepResult::of(Ok(interop::run(root, interop::Peers::Sdks, results)))
}

fn run_real(root: &Path) -> StepResult {
    let results = interop::ResultsMode::Compare;
    StepResult::of(Ok(interop::run(root, interop::Peers::Real, results)))
}

/// Tests the engine crates with real servers. The note names those that could not be started.
fn run_cluster(root: &Path) -> StepResult {
    match cluster::run_in_ci(root) {
        Ok(result) if result.passed => StepResult::Passed(result.note),
        Ok(result) => StepResult::Failed(result.note),
        Err(error) => StepResult::of(Err(error)),
    }
}

type Step = fn(&Path) -> StepResult;

const STEPS: [(&str, Step); 24] = [
    ("fmt", fmt),
    ("tidy", run_tidy),
    ("typos", run_typos),
    ("otel", run_otel),
    (DENY, run_deny),
    ("clippy", clippy),
    ("features", features),
    ("test", test),
    ("hostile", hostile),
    ("doc", doc),
    ("package", pack),
    (BUILD_PACKAGES, build_packages),
    ("msrv", run_msrv),
    ("api", run_api),
    (SEMVER, run_semver),
    (DOCS, run_docs),
    ("no-legacy", no_legacy),
    (COUNTS, counts),
    ("conformance", run_conformance),
    ("interop", run_interop),
    (REAL, run_real),
    ("cluster", run_cluster),
    ("patches", apply_mutants),
    (MUTANTS, run_mutants),
];

/// Building cargo-deny takes minutes, and its result changes only with the dependencies.
const DENY: &str = "deny";

/// Building cargo-semver-checks takes minutes. Changes of the public API show in `api`.
const SEMVER: &str = "semver";

/// Building mdBook takes minutes. The links and code blocks of the guide are part of `test`.
const DOCS: &str = "docs";

/// Building the packages takes minutes: their dependencies have other settings than those of the workspace.
const BUILD_PACKAGES: &str = "packages";

/// Installing its programs takes minutes, and few changes affect them.
const REAL: &str = "real";

/// The release build of its programs takes five minutes on two cores.
const COUNTS: &str = "counts";

/// Trying them takes three minutes, and shows how good the tests are, not whether the code is right.
const MUTANTS: &str = "mutants";

/// The steps that run with `--all` only.
const ALL_ONLY: [&str; 7] = [DENY, BUILD_PACKAGES, SEMVER, DOCS, COUNTS, REAL, MUTANTS];

/// The test target of the step `hostile`.
const HOSTILE: &str = "hostile";

/// Without HTTP, with the HTTP server only, and with the HTTP client only.
const FEATURES: [&str; 4] = [
    "legacy",
    "legacy,http-server,macros",
    "legacy,http-client",
    "",
];

/// All default features but `legacy`.
const MODERN_ONLY: &str =
    "bowline/http-client,bowline/http-server,bowline/macros,bowline/tls,bowline/validate";

const NO_SPEC: &str = "The specification's examples did not run: set BOWLINE_SPEC to their folder, or put it at \
                       ../shared/spec.";

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<CiOptions, String> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        CiOptions::parse(&words)
    }

    #[test]
    fn steps_can_be_skipped_by_name() {
        let options = parse("--skip mutants --keep-going --skip doc").unwrap();

        assert_eq!(options.skip, ["mutants", "doc"]);
        assert!(options.keep_going);
    }

    #[test]
    fn an_unknown_step_or_option_is_an_error() {
        assert!(parse("--skip mutant").unwrap_err().contains("`mutant`"));
        assert!(parse("--skip").is_err());
        assert!(parse("--fast").is_err());
    }

    #[test]
    fn tests_and_doctests_are_counted_and_ignored_tests_fail() {
        let output = "\
running 3 tests
test id::tests::ids_travel_verbatim ... ok
test slow ... ignored, needs a network
test broken ... FAILED
test crates/bowline-types/src/json.rs - json::Json (line 18) ... ok
test README.md - (line 68) ... ignored
test result: FAILED. 2 passed; 1 failed; 1 ignored";

        let count = TestCounts::of(output);

        assert_eq!(count.text(), "2 tests, 1 doctests, 2 failed, 2 ignored");
        assert_eq!(count.failed, ["slow", "broken"]);
    }

    #[test]
    fn the_output_of_a_failed_test_is_found_by_its_name() {
        let output = "\
---- first stdout ----

thread 'first' panicked
left: 1

---- second stdout ----
other";

        let lines: Vec<&str> = failure_lines(output, "first").collect();

        assert_eq!(lines, ["thread 'first' panicked", "left: 1"]);
        assert_eq!(failure_lines(output, "third").count(), 0);
    }

    #[test]
    fn a_run_without_doctests_is_incomplete() {
        assert!(!TestCounts::of("test a ... ok").is_complete());
        assert!(!TestCounts::of("").is_complete());
    }

    #[test]
    fn the_summary_names_failed_steps() {
        let rows = [
            Row::new("fmt", StepResult::Passed(String::new()), Duration::ZERO),
            Row::new(
                "test",
                StepResult::Failed("2 failed".to_owned()),
                Duration::ZERO,
            ),
            Row::new("mutants", StepResult::Skipped, Duration::ZERO),
        ];

        let text = summary(&rows, &[], Duration::from_secs(61));

        assert!(
            text.contains("test         FAILED      0.0s  2 failed"),
            "{text}"
        );
        assert!(text.ends_with("FAILED: test in 61.0s"), "{text}");
    }

    #[test]
    fn what_is_unsteady_is_named_and_fails_only_a_run_of_everything() {
        let rows = [Row::new(
            "test",
            StepResult::Passed(String::new()),
            Duration::ZERO,
        )];
        let unsteady = ["a::chance".to_owned()];

        let text = summary(&rows, &unsteady, Duration::from_secs(61));

        assert!(
            text.contains("unsteady: a::chance failed, and passed"),
            "{text}"
        );
        assert!(is_success(&rows, &unsteady, &parse("").unwrap()));
        assert!(!is_success(&rows, &unsteady, &parse("--all").unwrap()));
        assert!(is_success(&rows, &[], &parse("--all").unwrap()));
    }
}
