//! Runs what failed once more, alone. What passes then is *unsteady*: it depends on chance, and `cargo xtask ci` names it
//! at its end.

use std::io;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::ci::{TestCounts, test_lines};
use crate::process::{self, ExitKind, ProcessOutput};

/// The names that were recorded since this program started.
static RECORDED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Records something that failed, and passed when it was run again.
pub(crate) fn record(name: String) {
    println!("unsteady: {name}");
    lock().push(name);
}

pub(crate) fn recorded() -> Vec<String> {
    lock().clone()
}

fn lock() -> std::sync::MutexGuard<'static, Vec<String>> {
    RECORDED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `cargo test`, and each test that failed once more, alone. In the output, a test that then passed is one that
/// passed. `command` gets the arguments of the test programs; those of the first run are `arguments`.
pub(crate) fn run_tests(
    arguments: &[&str],
    command: impl Fn(&[&str]) -> Command,
) -> io::Result<ProcessOutput> {
    repeat_failed(arguments, record, |arguments| {
        process::run_and_capture(&mut command(arguments))
    })
}

fn repeat_failed(
    arguments: &[&str],
    mut record: impl FnMut(String),
    run: impl Fn(&[&str]) -> io::Result<ProcessOutput>,
) -> io::Result<ProcessOutput> {
    let mut merged = run(arguments)?;
    let failed = TestCounts::of(&merged.output).failed;
    if failed.is_empty() || failed.len() > MAX_REPEATED || !all_ended(&merged.output) {
        return Ok(merged);
    }
    let mut all_passed = true;
    for name in failed {
        println!("\n--- again, alone: {name}");
        let alone = run(&["--exact", test_name(&name)])?;
        if passed(&name, &alone) {
            let result = |verdict| format!("test {name} ... {verdict}\n");
            merged.output = merged.output.replace(&result("FAILED"), &result("ok"));
            record(name);
        } else {
            all_passed = false;
        }
    }
    if all_passed {
        merged.end = ExitKind::Success;
    }
    Ok(merged)
}

/// Returns whether the test ran, and did not fail.
fn passed(name: &str, alone: &ProcessOutput) -> bool {
    let ran = test_lines(&alone.output).any(|(ran, end)| ran == name && end == "ok");
    ran && alone.end == ExitKind::Success
}

/// Returns whether each test program printed its verdict. One that did not was killed, perhaps by a test that it did not
/// name.
fn all_ended(output: &str) -> bool {
    let starting_with = |words: &str| {
        output
            .lines()
            .filter(|line| line.starts_with(words))
            .count()
    };
    let is_start = |line: &&str| line.starts_with("running ") && line.contains(" test");
    output.lines().filter(is_start).count() == starting_with("test result: ")
}

/// Returns the name without what test programs print after it.
fn test_name(printed: &str) -> &str {
    let mut notes = [" - should panic", " - compile fail", " - compile"].iter();
    let name = notes.find_map(|note| printed.strip_suffix(note));
    name.unwrap_or(printed)
}

/// More failures than these are not chance.
const MAX_REPEATED: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "\
running 2 tests
test a ... ok
test b (stdio) ... FAILED
test result: FAILED. 1 passed; 1 failed
";

    /// Runs tests of which one fails, and passes or fails with these outputs when it is run again.
    fn run(first: &str, alone: (ExitKind, &str)) -> (ProcessOutput, Vec<String>) {
        let mut recorded = Vec::new();
        let record = |name| recorded.push(name);
        let merged = repeat_failed(&["--skip", "c"], record, |arguments| {
            let (end, output) = match arguments {
                ["--skip", "c"] => (ExitKind::Failure, first),
                arguments => {
                    assert_eq!(arguments, ["--exact", "b (stdio)"]);
                    alone
                }
            };
            let output = output.to_owned();
            Ok(ProcessOutput { end, output })
        });
        (merged.unwrap(), recorded)
    }

    #[test]
    fn a_test_that_passes_alone_is_recorded_and_does_not_fail_the_run() {
        let alone = (ExitKind::Success, "test b (stdio) ... ok\n");

        let (merged, recorded) = run(FIRST, alone);

        assert_eq!(merged.end, ExitKind::Success);
        assert!(TestCounts::of(&merged.output).failed.is_empty());
        assert_eq!(recorded, ["b (stdio)"]);
    }

    #[test]
    fn a_test_that_fails_again_or_does_not_run_again_fails_the_run() {
        let outputs = [
            (ExitKind::Failure, "test b (stdio) ... FAILED\n"),
            (ExitKind::Failure, "test b (stdio) ... ok\n"),
            (ExitKind::Success, "test b ... ok\n"),
            (ExitKind::Success, ""),
        ];
        for alone in outputs {
            let (merged, recorded) = run(FIRST, alone);

            assert_eq!(merged.end, ExitKind::Failure);
            assert_eq!(TestCounts::of(&merged.output).failed, ["b (stdio)"]);
            assert!(recorded.is_empty());
        }
    }

    #[test]
    fn a_run_with_a_program_that_was_killed_fails() {
        let killed = format!("{FIRST}\nrunning 1 test\n");

        let (merged, recorded) = run(&killed, (ExitKind::Success, "test b (stdio) ... ok\n"));

        assert_eq!(merged.end, ExitKind::Failure);
        assert!(recorded.is_empty());
    }

    #[test]
    fn a_test_is_selected_by_its_name_without_notes() {
        assert_eq!(test_name("a::b - should panic"), "a::b");
        assert_eq!(
            test_name("src/lib.rs - b (line 3) - compile"),
            "src/lib.rs - b (line 3)"
        );
    }
}
