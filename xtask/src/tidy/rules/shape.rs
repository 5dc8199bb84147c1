//! The shape of files: header docs, and limits on the length of files and functions.

use super::{Project, Violation};

/// A file starts with `//!` docs.
pub(super) fn files_have_header_docs(project: &Project<'_>) -> Vec<Violation> {
    project
        .sources_in(CODE_FOLDERS)
        .filter(|source| {
            let first = source.lines.first().map_or("", |line| line.raw);
            !first.starts_with("//!")
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

/// A function has one level of abstraction.
pub(super) fn functions_are_short(project: &Project<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in project.sources_in(CODE_FOLDERS) {
        for (name, lines) in source.functions() {
            if lines.len() > FUNCTION_LIMIT {
                let advice = format!(
                    "`{name}` has {} lines, {FUNCTION_LIMIT} allowed: extract a function",
                    lines.len()
                );
                let text = source.lines[lines.start - 1].raw;
                found.push(Violation::new(
                    "function-length",
                    source.path,
                    lines.start,
                    text,
                    &advice,
                ));
            }
        }
    }
    found
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
const FUNCTION_LIMIT: usize = 80;

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

    #[test]
    fn a_function_of_81_lines_is_found_and_one_of_80_is_not() {
        let function = |lines: usize| format!("\nfn a() {{\n{}}}\n", "    ();\n".repeat(lines - 2));

        assert_eq!(lines(functions_are_short, "xtask/a.rs", &function(81)), [2]);
        assert!(lines(functions_are_short, "xtask/a.rs", &function(80)).is_empty());
    }
}
