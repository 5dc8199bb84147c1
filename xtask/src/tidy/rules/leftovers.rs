//! What must not be left behind in code.

use super::{Project, Violation, has_word};

/// Work that is not done is not committed; a regret goes into `ROUGH_EDGES.md`.
pub(super) fn nothing_is_left_undone(project: &Project<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in &project.sources {
        for line in &source.lines {
            let in_code = UNDONE_CODE.iter().any(|word| line.code.contains(word));
            let in_comment = UNDONE_COMMENTS
                .iter()
                .any(|word| has_word(&line.comment, word));
            if in_code || in_comment {
                let instead = "do it, delete it, or write the regret into ROUGH_EDGES.md";
                found.push(Violation::new(
                    "leftovers",
                    source.path,
                    line.number,
                    line.raw,
                    instead,
                ));
            }
        }
    }
    found
}

/// A sleep in a test is either too short on a busy machine or too long on every other.
pub(super) fn tests_do_not_sleep(project: &Project<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in project.sources_in(TESTED) {
        for line in source.lines.iter().filter(|line| line.in_test) {
            if SLEEPS.iter().any(|sleep| line.code.contains(sleep)) {
                let instead =
                    "wait for the event itself, or move a paused clock with `tokio::time::advance`";
                found.push(Violation::new(
                    "sleeps",
                    source.path,
                    line.number,
                    line.raw,
                    instead,
                ));
            }
        }
    }
    found
}

const UNDONE_CODE: [&str; 4] = ["todo!", "dbg!", "unimplemented!", "#[ignore"];
const UNDONE_COMMENTS: [&str; 3] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];
const SLEEPS: [&str; 2] = ["thread::sleep", "time::sleep("];
const TESTED: &[&str] = &["crates/", "scenarios/", "examples/", "conformance/"];

#[cfg(test)]
mod tests {
    use super::super::tests::lines;
    use super::*;

    #[test]
    fn undone_work_is_found_in_code_and_in_comments() {
        for word in UNDONE_CODE {
            let found = lines(
                nothing_is_left_undone,
                "crates/a/src/a.rs",
                &format!("\n{word}()"),
            );
            assert_eq!(found, [2], "{word}");
        }
        for word in UNDONE_COMMENTS {
            let found = lines(
                nothing_is_left_undone,
                "crates/a/src/a.rs",
                &format!("// {word}: x"),
            );
            assert_eq!(found, [1], "{word}");
        }
    }

    #[test]
    fn a_sleep_is_found_in_tests_and_nowhere_else() {
        let sleep = "tokio::time::sleep(second).await;\n";

        assert_eq!(lines(tests_do_not_sleep, "crates/a/tests/a.rs", sleep), [1]);
        assert_eq!(lines(tests_do_not_sleep, "scenarios/src/a.rs", sleep), [1]);
        assert!(lines(tests_do_not_sleep, "crates/a/src/a.rs", sleep).is_empty());
    }
}
