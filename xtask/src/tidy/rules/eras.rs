//! Eras: protocol versions are compared in one file, and sessions exist in legacy code only.

use super::super::source::Line;
use super::{Project, Violation, find_lines};

/// The properties of a version are a row of the dialect table.
pub(super) fn versions_are_compared_in_one_place(project: &Project<'_>) -> Vec<Violation> {
    let advice = "use a property of the `Dialect`; only era/dialect.rs compares versions";
    let sources = project.crate_sources();
    let others = sources.filter(|source| !VERSION_FILES.contains(&source.path));
    find_lines(others, "versions", advice, |line| {
        !line.in_test && (has_version(&line.strings, '-') || compares_a_version(line))
    })
}

/// The modern protocol has no sessions, so the word may appear in legacy code only, and in recordings, which are of
/// either era.
pub(super) fn sessions_are_legacy(project: &Project<'_>) -> Vec<Violation> {
    let advice = "only legacy code has sessions: move it to a `legacy` module, or use another word";
    let sources = project.crate_sources();
    let modern = sources.filter(|source| {
        let is_recording = source.path.starts_with("crates/bowline-recording/");
        !source.path.contains("legacy") && !is_recording
    });
    find_lines(modern, "sessions", advice, |line| {
        line.raw.to_ascii_lowercase().contains("session")
    })
}

/// Returns whether a line compares a constant such as `V2025_06_18`.
fn compares_a_version(line: &Line<'_>) -> bool {
    const COMPARISONS: [&str; 7] = ["==", "!=", "<=", ">=", " < ", " > ", "matches!"];
    has_version(&line.code, '_') && COMPARISONS.iter().any(|sign| line.code.contains(sign))
}

/// Returns whether `text` contains a version, which is a date of this century with this separator.
fn has_version(text: &str, separator: char) -> bool {
    let shape = [4, 2, 2];
    text.match_indices("20").any(|(at, _)| {
        let mut parts = text[at..].splitn(3, separator);
        shape.iter().all(|&length| {
            parts.next().is_some_and(|part| {
                let digits = part.bytes().take_while(u8::is_ascii_digit).count();
                digits == length && (part.len() == length || length == 2)
            })
        })
    })
}

const VERSION_FILES: [&str; 2] = [
    "crates/bowline-core/src/era/dialect.rs",
    "crates/bowline-types/src/version.rs",
];

#[cfg(test)]
mod tests {
    use super::super::tests::lines;
    use super::*;

    #[test]
    fn a_version_in_a_string_is_found_outside_the_dialect_table() {
        let text = "//! Since 2025-06-18.\nif version == \"2025-06-18\" {}\n#[cfg(test)]\nmod tests { const A: &str = \"2025-06-18\"; }\n";

        let found = lines(
            versions_are_compared_in_one_place,
            "crates/bowline/src/a.rs",
            text,
        );

        assert_eq!(found, [2]);
        for path in VERSION_FILES {
            assert!(lines(versions_are_compared_in_one_place, path, text).is_empty());
        }
    }

    #[test]
    fn a_version_constant_may_be_named_but_not_compared() {
        let text = "let a = Version::V2026_07_28;\nif v >= Version::V2026_07_28 {}\n";

        let found = lines(
            versions_are_compared_in_one_place,
            "crates/bowline/src/a.rs",
            text,
        );

        assert_eq!(found, [2]);
    }

    #[test]
    fn other_numbers_are_not_versions() {
        for text in ["2025-6-18", "20-25", "12025", "2025-06", "20250618"] {
            assert!(!has_version(text, '-'), "{text}");
        }
    }

    #[test]
    fn a_session_outside_legacy_code_is_found_even_in_a_comment() {
        let text = "//! x\n// the session ends\nstruct SessionId;\n";

        assert_eq!(
            lines(sessions_are_legacy, "crates/bowline/src/a.rs", text),
            [2, 3]
        );
        let recording = "crates/bowline-recording/src/a.rs";
        assert!(lines(sessions_are_legacy, recording, text).is_empty());
        assert!(
            lines(
                sessions_are_legacy,
                "crates/bowline/src/http/legacy/a.rs",
                text
            )
            .is_empty()
        );
        assert!(lines(sessions_are_legacy, "crates/bowline/tests/a.rs", text).is_empty());
    }
}
