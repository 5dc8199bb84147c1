//! Checks in the output of a full test run that the tests named in `scenarios/sentences.txt` ran and passed.
//!
//! The file names a test by source file and function, and a test program prints its module path:
//!
//! ```text
//! crates/bowline/tests/cancellation/ids.rs some_id_is_free_again
//! test ids::some_id_is_free_again ... ok
//! ```
//!
//! A function may run several times: in a module of its name with a test for each protocol version, or in a test
//! program that prints the parameters in parentheses after the name. All runs must have passed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::ci::test_lines;

/// Compares the sentences with the output of a run. Returns how many tests show how many sentences, or the problems.
pub(crate) fn check(root: &Path, output: &str) -> Result<String, Vec<String>> {
    let text = fs::read_to_string(root.join(FILE));
    let text = text.map_err(|error| vec![format!("failed to read {FILE}: {error}")])?;
    compare(&text, output)
}

fn compare(sentences: &str, output: &str) -> Result<String, Vec<String>> {
    let ran: Vec<_> = test_lines(output).collect();
    let (mut count, mut tests, mut problems) = (0, BTreeSet::new(), Vec::new());
    for line in sentences.lines().filter(|line| !line.is_empty()) {
        match line.strip_prefix("- ") {
            Some(test) if tests.insert(test) => problems.extend(problem(test, &ran)),
            Some(_) => {}
            None => count += usize::from(!line.starts_with("# ")),
        }
    }
    if tests.is_empty() {
        problems.push(format!("{FILE} names no tests"));
    }
    match problems.is_empty() {
        true => Ok(format!("{} of them show {count} sentences", tests.len())),
        false => Err(problems),
    }
}

/// Returns the problem with a named test, if any. `ran` has the printed names and results.
fn problem(test: &str, ran: &[(&str, &str)]) -> Option<String> {
    let Some(paths) = paths(test) else {
        return Some(format!("`{test}` is not a test file and a function"));
    };
    let matches = |name: &str| paths.iter().any(|path| is_run_of(name, path));
    let lines: Vec<_> = ran.iter().filter(|(name, _)| matches(name)).collect();
    if lines.is_empty() {
        return Some(format!("`{test}` did not run"));
    }
    if let Some((name, result)) = lines.iter().find(|(_, result)| *result != "ok") {
        return Some(format!("`{test}` did not pass: {name} ... {result}"));
    }
    let different: BTreeSet<_> = lines.iter().map(|(name, _)| name).collect();
    // The output does not contain the names of test programs. Of two equal lines, either test could be missing.
    (different.len() < lines.len())
        .then(|| format!("`{test}` has the name of another test; rename one"))
}

/// Returns whether the printed name is the test with this path, or one of its runs.
fn is_run_of(name: &str, path: &str) -> bool {
    let rest = name.strip_prefix(path);
    rest.is_some_and(|rest| {
        rest.is_empty() || rest.starts_with("::") || rest.starts_with(" (") || rest == SHOULD_PANIC
    })
}

/// Returns the paths that the test program may print for a file and a function: with and without a module `tests`.
fn paths(test: &str) -> Option<[String; 2]> {
    let (file, function) = test.split_once(' ')?;
    let file = file.strip_suffix(".rs")?;
    let module = match file.split_once("/src/") {
        Some((_, module)) => module,
        // The first folder, or a single file, is a test program.
        None => {
            let (_, program) = file.split_once("/tests/")?;
            program.split_once('/').map_or("", |(_, module)| module)
        }
    };
    let mut parts: Vec<&str> = module.split('/').filter(|part| !part.is_empty()).collect();
    if matches!(parts.last(), Some(&("mod" | "lib" | "main"))) {
        parts.pop();
    }
    let path = |inner: &[&str]| [&parts, inner, &[function]].concat().join("::");
    Some([path(&[]), path(&["tests"])])
}

/// The suffix of a test with `#[should_panic]`.
const SHOULD_PANIC: &str = " - should panic";
const FILE: &str = "scenarios/sentences.txt";

#[cfg(test)]
mod tests {
    use super::*;

    const SENTENCES: &str = "\
# Ids

An id is free again.
- crates/bowline/tests/cancellation/ids.rs an_id_is_free_again
- crates/bowline-core/src/mux/pending.rs entries_are_removed
Whatever left is cancelled.
- scenarios/tests/matrix/immediate.rs whatever_left_is_cancelled
- crates/bowline/tests/cancellation/ids.rs an_id_is_free_again
";

    const OUTPUT: &str = "\
running 2 tests
test ids::an_id_is_free_again::at_2024_11_05 ... ok
test ids::an_id_is_free_again::at_2026_07_28 ... ok
test ids::an_id_is_free_again_too ... FAILED
test mux::pending::tests::entries_are_removed - should panic ... ok
test immediate::whatever_left_is_cancelled (10 calls, stdio at 2025-06-18) ... ok
test immediate::whatever_left_is_cancelled (10 calls, HTTP/2 at 2025-06-18) ... ok
test result: FAILED. 5 passed
";

    fn problems(output: &str) -> Vec<String> {
        compare(SENTENCES, output).unwrap_err()
    }

    #[test]
    fn tests_that_ran_and_passed_show_their_sentences() {
        let shown = compare(SENTENCES, OUTPUT);

        assert_eq!(shown.unwrap(), "3 of them show 2 sentences");
    }

    #[test]
    fn a_test_that_did_not_run_is_a_problem() {
        let without = OUTPUT.replace("an_id_is_free_again::", "another::");
        let elsewhere = OUTPUT.replace("ids::an_id", "others::an_id");
        let expected = "`crates/bowline/tests/cancellation/ids.rs an_id_is_free_again` did not run";

        assert_eq!(problems(&without), [expected]);
        assert_eq!(problems(&elsewhere), [expected]);
        assert_eq!(problems("").len(), 3);
    }

    #[test]
    fn a_test_that_was_ignored_or_failed_is_a_problem() {
        for result in ["ignored", "ignored, it is slow", "FAILED"] {
            let output = OUTPUT.replace("2026_07_28 ... ok", &format!("2026_07_28 ... {result}"));

            let [problem] = problems(&output).try_into().unwrap();

            assert!(problem.contains("did not pass"), "{problem}");
            assert!(problem.ends_with(result), "{problem}");
        }
        let one_of_two = OUTPUT.replace("HTTP/2 at 2025-06-18) ... ok", "HTTP/2) ... FAILED");
        assert!(problems(&one_of_two)[0].contains("immediate.rs"));
    }

    #[test]
    fn a_duplicate_test_name_is_a_problem() {
        let twice = format!("{OUTPUT}test ids::an_id_is_free_again::at_2024_11_05 ... ok\n");

        assert!(problems(&twice)[0].contains("has the name of another test"));
    }

    #[test]
    fn files_and_functions_map_to_printed_paths() {
        for (test, path) in [
            ("crates/a/tests/tools.rs f", "f"),
            ("crates/a/tests/http/main.rs f", "f"),
            (
                "crates/a/tests/http/legacy/streams.rs f",
                "legacy::streams::f",
            ),
            ("crates/a/tests/http/legacy/mod.rs f", "legacy::f"),
            ("crates/a/src/lib.rs f", "f"),
            ("crates/a/src/era/tests/door.rs f", "era::tests::door::f"),
        ] {
            assert_eq!(paths(test).unwrap()[0], path);
        }
        for wrong in ["crates/a/tests/tools.rs", "README.md f", "build.rs f"] {
            assert_eq!(paths(wrong), None);
            let result = compare(&format!("A sentence.\n- {wrong}\n"), OUTPUT);
            assert!(result.unwrap_err()[0].contains("is not a test file"));
        }
        assert!(compare("", OUTPUT).is_err());
    }
}
