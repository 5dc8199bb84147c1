//! The shape of files: they introduce themselves, and they are short.

use super::{Project, Violation};

/// The second reader starts at the top.
pub(super) fn files_say_what_they_are_for(project: &Project<'_>) -> Vec<Violation> {
    project
        .sources_in(WRITTEN)
        .filter(|source| {
            let first = source.lines.first().map_or("", |line| line.raw);
            !first.starts_with("//!")
        })
        .map(|source| {
            let instead = "open the file with `//!` and say in one to five lines what it is for";
            Violation::new("file-docs", source.path, 1, "", instead)
        })
        .collect()
}

/// A long file hides a second idea.
pub(super) fn files_are_short(project: &Project<'_>) -> Vec<Violation> {
    project
        .sources_in(WRITTEN)
        .filter(|source| source.lines.len() > FILE_LIMIT)
        .map(|source| {
            let instead = format!(
                "{} lines, {FILE_LIMIT} allowed: look for the second idea and give it a file",
                source.lines.len()
            );
            Violation::new("file-length", source.path, source.lines.len(), "", &instead)
        })
        .collect()
}

/// One level of thought per function.
pub(super) fn functions_are_short(project: &Project<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in project.sources_in(WRITTEN) {
        for (name, lines) in source.functions() {
            if lines.len() > FUNCTION_LIMIT {
                let instead = format!(
                    "`{name}` has {} lines, {FUNCTION_LIMIT} allowed: name an idea in it and move that out",
                    lines.len()
                );
                let text = source.lines[lines.start - 1].raw;
                found.push(Violation::new(
                    "function-length",
                    source.path,
                    lines.start,
                    text,
                    &instead,
                ));
            }
        }
    }
    found
}

/// Where the project's own Rust is.
const WRITTEN: &[&str] = &[
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
    fn a_file_that_does_not_introduce_itself_is_found() {
        for text in ["use std::fmt;\n", "// Not docs.\n", ""] {
            let found = lines(files_say_what_they_are_for, "examples/a.rs", text);
            assert_eq!(found, [1], "{text:?}");
        }
        assert!(lines(files_say_what_they_are_for, "examples/a.rs", "//! A.\n").is_empty());
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
