//! The shape of files: header docs, and a limit on their length.

use super::{Project, Violation};

/// A file starts with `//!` docs, or includes them.
pub(super) fn files_have_header_docs(project: &Project<'_>) -> Vec<Violation> {
    project
        .sources_in(CODE_FOLDERS)
        .filter(|source| {
            let first = source.lines.first().map_or("", |line| line.raw);
            !first.starts_with("//!") && !first.starts_with("#![doc = include_str!")
        })
        .map(|source| {
            let advice =
                "start the file with `//!`, and describe in one to five lines what it defines";
            Violation::new("file-docs", source.path, 1, "", advice)
        })
        .collect()
}

/// A long file usually has a second topic.
pub(super) fn files_are_short(project: &Project<'_>) -> Vec<Violation> {
    project
        .sources_in(CODE_FOLDERS)
        .filter(|source| source.lines.len() > FILE_LIMIT)
        .map(|source| {
            let advice = format!(
                "{} lines, {FILE_LIMIT} allowed: move a second topic to its own file",
                source.lines.len()
            );
            Violation::new("file-length", source.path, source.lines.len(), "", &advice)
        })
        .collect()
}

/// The folders with Rust code of this project.
const CODE_FOLDERS: &[&str] = &[
    "crates/",
    "xtask/",
    "scenarios/",
    "conformance/",
    "examples/",
    "bench/",
    "fuzz/",
];

const FILE_LIMIT: usize = 800;

#[cfg(test)]
mod tests {
    use super::super::tests::lines;
    use super::*;

    #[test]
    fn a_file_without_header_docs_is_found() {
        for text in ["use std::fmt;\n", "// Not docs.\n", ""] {
            let found = lines(files_have_header_docs, "examples/a.rs", text);
            assert_eq!(found, [1], "{text:?}");
        }
        assert!(lines(files_have_header_docs, "examples/a.rs", "//! A.\n").is_empty());
    }

    #[test]
    fn a_file_of_801_lines_is_found_and_one_of_800_is_not() {
        assert_eq!(
            lines(files_are_short, "xtask/a.rs", &"\n".repeat(801)),
            [801]
        );
        assert!(lines(files_are_short, "xtask/a.rs", &"\n".repeat(800)).is_empty());
    }
}
