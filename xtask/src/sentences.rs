//! Whether the tests that `scenarios/sentences.txt` names have run and passed, by what a run of all tests printed.
//!
//! The file names a test by its source file and its function, and a test program prints the path of its module:
//!
//! ```text
//! crates/bowline/tests/letting_go/ids.rs some_id_is_free_again
//! test ids::some_id_is_free_again ... ok
//! ```
//!
//! A function may run several times: in a module of its name with a test for each protocol version, or in a program of ours
//! that prints what it ran over in parentheses after the name. All of them must have passed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::ci::verdicts;

/// Compares the sentences with the output of a run; how many tests show how many sentences, or what is missing, a line
/// each.
pub(crate) fn check(root: &Path, output: &str) -> Result<String, Vec<String>> {
    let text = fs::read_to_string(root.join(FILE));
    let text = text.map_err(|error| vec![format!("failed to read {FILE}: {error}")])?;
    compare(&text, output)
}

fn compare(sentences: &str, output: &str) -> Result<String, Vec<String>> {
    let ran: Vec<_> = verdicts(output).collect();
    let (mut count, mut tests, mut complaints) = (0, BTreeSet::new(), Vec::new());
    for line in sentences.lines().filter(|line| !line.is_empty()) {
        match line.strip_prefix("- ") {
            Some(test) if tests.insert(test) => complaints.extend(complaint(test, &ran)),
            Some(_) => {}
            None => count += usize::from(!line.starts_with("# ")),
        }
    }
    if tests.is_empty() {
        complaints.push(format!("{FILE} names no tests"));
    }
    match complaints.is_empty() {
        true => Ok(format!("{} of them show {count} sentences", tests.len())),
        false => Err(complaints),
    }
}

/// What is wrong with a test that a sentence names, if anything, by the names and verdicts that were printed.
fn complaint(test: &str, ran: &[(&str, &str)]) -> Option<String> {
    let Some(paths) = paths(test) else {
        return Some(format!(
            "`{test}` is not the file of a test and its function"
        ));
    };
    let is_it = |name: &str| paths.iter().any(|path| belongs(name, path));
    let lines: Vec<_> = ran.iter().filter(|(name, _)| is_it(name)).collect();
    if lines.is_empty() {
        return Some(format!("`{test}` did not run"));
    }
    if let Some((name, verdict)) = lines.iter().find(|(_, verdict)| *verdict != "ok") {
        return Some(format!("`{test}` did not pass: {name} ... {verdict}"));
    }
    let different: BTreeSet<_> = lines.iter().map(|(name, _)| name).collect();
    // The names of test programs are not in the output. Of two that print the same, either could have been left out.
    (different.len() < lines.len())
        .then(|| format!("`{test}` has the name of another test; rename one"))
}

/// Whether what was printed is the test with this path, or one of its runs.
fn belongs(name: &str, path: &str) -> bool {
    let rest = name.strip_prefix(path);
    rest.is_some_and(|rest| {
        rest.is_empty() || rest.starts_with("::") || rest.starts_with(" (") || rest == SHOULD_PANIC
    })
}

/// The paths that the test program may print for a file and a function: with and without a module for tests.
fn paths(test: &str) -> Option<[String; 2]> {
    let (file, function) = test.split_once(' ')?;
    let file = file.strip_suffix(".rs")?;
    let module = match file.split_once("/src/") {
        Some((_, module)) => module,
        // The first folder, or the only file, is a program of its own.
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

/// What follows the name of a test that is to panic.
const SHOULD_PANIC: &str = " - should panic";
const FILE: &str = "scenarios/sentences.txt";

#[cfg(test)]
mod tests {
    use super::*;

    const SENTENCES: &str = "\
# Ids

An id is free again.
- crates/bowline/tests/letting_go/ids.rs an_id_is_free_again
- crates/bowline-core/src/mux/pinned.rs entries_are_removed
Whatever left is cancelled.
- scenarios/tests/matrix/immediate.rs whatever_left_is_cancelled
- crates/bowline/tests/letting_go/ids.rs an_id_is_free_again
";

    const OUTPUT: &str = "\
running 2 tests
test ids::an_id_is_free_again::at_2024_11_05 ... ok
test ids::an_id_is_free_again::at_2026_07_28 ... ok
test ids::an_id_is_free_again_too ... FAILED
test mux::pinned::tests::entries_are_removed - should panic ... ok
test immediate::whatever_left_is_cancelled (10 calls, stdio at 2025-06-18) ... ok
test immediate::whatever_left_is_cancelled (10 calls, HTTP/2 at 2025-06-18) ... ok
test result: FAILED. 5 passed
";

    fn complaints(output: &str) -> Vec<String> {
        compare(SENTENCES, output).unwrap_err()
    }

    #[test]
    fn tests_that_ran_and_passed_show_their_sentences() {
        let shown = compare(SENTENCES, OUTPUT);

        assert_eq!(shown.unwrap(), "3 of them show 2 sentences");
    }

    #[test]
    fn a_test_that_did_not_run_shows_nothing() {
        let without = OUTPUT.replace("an_id_is_free_again::", "another::");
        let elsewhere = OUTPUT.replace("ids::an_id", "others::an_id");
        let said = "`crates/bowline/tests/letting_go/ids.rs an_id_is_free_again` did not run";

        assert_eq!(complaints(&without), [said]);
        assert_eq!(complaints(&elsewhere), [said]);
        assert_eq!(complaints("").len(), 3);
    }

    #[test]
    fn a_test_that_was_ignored_or_failed_shows_nothing() {
        for verdict in ["ignored", "ignored, it is slow", "FAILED"] {
            let output = OUTPUT.replace("2026_07_28 ... ok", &format!("2026_07_28 ... {verdict}"));

            let [complaint] = complaints(&output).try_into().unwrap();

            assert!(complaint.contains("did not pass"), "{complaint}");
            assert!(complaint.ends_with(verdict), "{complaint}");
        }
        let one_of_two = OUTPUT.replace("HTTP/2 at 2025-06-18) ... ok", "HTTP/2) ... FAILED");
        assert!(complaints(&one_of_two)[0].contains("immediate.rs"));
    }

    #[test]
    fn a_name_that_two_tests_have_shows_nothing() {
        let twice = format!("{OUTPUT}test ids::an_id_is_free_again::at_2024_11_05 ... ok\n");

        assert!(complaints(&twice)[0].contains("has the name of another test"));
    }

    #[test]
    fn files_and_functions_are_the_paths_that_test_programs_print() {
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
            let said = compare(&format!("A sentence.\n- {wrong}\n"), OUTPUT);
            assert!(said.unwrap_err()[0].contains("is not the file of a test"));
        }
        assert!(compare("", OUTPUT).is_err());
    }
}
