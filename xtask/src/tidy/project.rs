//! `Project`: all files, with the Rust files scanned once for all rules.

use std::collections::BTreeSet;

use super::source::Source;
use crate::tree::Tree;

/// All files, with the Rust ones scanned.
#[derive(Debug)]
pub(super) struct Project<'a> {
    pub(super) tree: &'a Tree,
    pub(super) sources: Vec<Source<'a>>,
}

impl<'a> Project<'a> {
    pub(super) fn new(tree: &'a Tree) -> Self {
        let rust: Vec<(&str, &str)> = tree
            .files()
            .iter()
            .filter(|file| file.path.ends_with(".rs"))
            .filter_map(|file| Some((file.path.as_str(), file.text()?)))
            .collect();
        let test_files: BTreeSet<String> = rust
            .iter()
            .flat_map(|(path, text)| test_files_of(path, &Source::new(path, text, false)))
            .collect();
        let sources = rust
            .into_iter()
            .map(|(path, text)| Source::new(path, text, is_test_file(path, &test_files)))
            .collect();
        Self { tree, sources }
    }

    /// Returns the Rust files of the published crates, `crates/*/src`.
    pub(super) fn crate_sources(&self) -> impl Iterator<Item = &Source<'a>> {
        let is_ours = |path: &str| path.starts_with("crates/") && path.contains("/src/");
        self.sources
            .iter()
            .filter(move |source| is_ours(source.path))
    }

    /// Returns the Rust files below one of `folders`.
    pub(super) fn sources_in(&self, folders: &'static [&str]) -> impl Iterator<Item = &Source<'a>> {
        self.sources
            .iter()
            .filter(move |source| folders.iter().any(|folder| source.path.starts_with(folder)))
    }
}

fn is_test_file(path: &str, declared: &BTreeSet<String>) -> bool {
    path.contains("/tests/")
        || path.contains("/benches/")
        || path.starts_with("scenarios/")
        || declared.iter().any(|test| path.starts_with(test.as_str()))
}

/// Returns the possible paths of the test modules that `source` declares: `a/tests.rs`, and anything below `a/tests/`.
fn test_files_of(path: &str, source: &Source<'_>) -> Vec<String> {
    let folder = ["/mod.rs", "/lib.rs", "/main.rs"]
        .iter()
        .find_map(|root| path.strip_suffix(root))
        .or_else(|| path.strip_suffix(".rs"))
        .unwrap_or(path);
    let modules = source.test_modules().into_iter();
    modules
        .flat_map(|module| {
            let place = format!("{folder}/{module}");
            [format!("{place}.rs"), format!("{place}/")]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    #[test]
    fn a_module_declared_for_tests_is_a_test_file() {
        let tree = tree(&[
            (
                "crates/a/src/mux/mod.rs",
                "#[cfg(test)]\nmod model;\nmod table;\n",
            ),
            ("crates/a/src/mux/model.rs", "fn a() {}\n"),
            ("crates/a/src/mux/table.rs", "fn a() {}\n"),
            ("crates/a/tests/it.rs", "fn a() {}\n"),
        ]);

        let project = Project::new(&tree);

        let first_line = |index: usize| project.sources[index].lines[0].in_test;
        assert!(first_line(1), "model.rs is declared under cfg(test)");
        assert!(!first_line(2), "table.rs is not");
        assert!(first_line(3), "files in tests/ are test files");
    }
}
