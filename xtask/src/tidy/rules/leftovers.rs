//! Unfinished work in code, and sleeps in tests.

use super::{Project, Violation, has_word};

/// Unfinished work is not committed; known shortcomings are listed in `ROUGH_EDGES.md`.
pub(super) fn no_unfinished_work(project: &Project<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in &project.sources {
        for line in &source.lines {
            let in_code = UNFINISHED_CODE.iter().any(|word| line.code.contains(word));
            let in_comment = UNFINISHED_COMMENTS
                .iter()
                .any(|word| has_word(&line.comment, word));
            if in_code || in_comment {
                let advice = "finish it, delete it, or list it in ROUGH_EDGES.md";
                found.push(Violation::new(
                    "leftovers",
                    source.path,
                    line.number,
                    line.raw,
                    advice,
                ));
            }
        }
    }
    found
}

/// A sleep in a test is too short on a busy machine, or too long on any other.
pub(super) fn tests_do_not_sleep(project: &Project<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in project.sources_in(TEST_FOLDERS) {
        for line in source.lines.iter().filter(|line| line.in_test) {
            if SLEEPS.iter().any(|sleep| line.code.contains(sleep)) {
                let advice = "wait for the event itself, or advance a paused clock with `tokio::time::advance`";
                found.push(Violation::new(
                    "sleeps",
                    source.path,
                    line.number,
                    line.raw,
                    advice,
                ));
            }
        }
    }
    found
}

const UNFINISHED_CODE: [&str; 4] = ["todo!", "dbg!", "unimplemented!", "#[ignore"];
const UNFINISHED_COMMENTS: [&str; 3] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];
const SLEEPS: [&str; 2] = ["thread::sleep", "time::sleep("];
const TEST_FOLDERS: &[&str] = &["crates/", "scenarios/", "examples/", "conformance/"];

#[cfg(test)]
mod tests {
    use super::super::tests::lines;
    use super::*;

    #[test]
    fn unfinished_work_is_found_in_code_and_in_comments() {
        for word in UNFINISHED_CODE {
            let found = lines(
                no_unfinished_work,
                "crates/a/src/a.rs",
                &format!("\n{word}()"),
            );
            assert_eq!(found, [2], "{word}");
        }
        for word in UNFINISHED_COMMENTS {
            let found = lines(
                no_unfinished_work,
                "crates/a/src/a.rs",
                &format!("// {word}: x"),
            );
            assert_eq!(found, [1], "{word}");
        }
    }

    #[test]
    fn a_sleep_is_found_in_tests_only() {
        let sleep = "tokio::time::sleep(second).await;\n";

        assert_eq!(lines(tests_do_not_sleep, "crates/a/tests/a.rs", sleep), [1]);
        assert_eq!(lines(tests_do_not_sleep, "scenarios/src/a.rs", sleep), [1]);
        assert!(lines(tests_do_not_sleep, "crates/a/src/a.rs", sleep).is_empty());
    }
}
