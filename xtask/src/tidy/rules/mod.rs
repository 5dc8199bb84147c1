//! The list of all rules.

use super::{Project, Violation};

mod boundaries;
mod dependencies;
mod determinism;
mod documents;
mod eras;
mod leftovers;
mod names;
mod shape;
mod words;

/// A rule: returns its violations.
pub(super) type Rule = fn(&Project<'_>) -> Vec<Violation>;

/// Every rule, in the order of the report.
pub(super) const ALL: &[Rule] = &[
    boundaries::the_core_does_no_io,
    boundaries::unions_are_read_by_their_tag,
    boundaries::features_only_choose_modules,
    determinism::order_is_deterministic,
    dependencies::core_dependencies_are_listed,
    dependencies::dependencies_have_reasons,
    eras::versions_are_compared_in_one_place,
    eras::sessions_are_legacy,
    shape::files_have_header_docs,
    shape::files_are_short,
    shape::functions_are_short,
    leftovers::no_unfinished_work,
    leftovers::tests_do_not_sleep,
    names::names_are_specific,
    names::tickets_are_not_names,
    words::prose_is_plain,
    documents::async_functions_document_cancel_safety,
    documents::architecture_paths_exist,
    documents::no_machine_paths,
    documents::mutants_name_a_law_and_a_test,
];

/// Returns whether `text` contains `word` without a letter, digit or underscore on either side.
fn has_word(text: &str, word: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        !text[..at].ends_with(is_word) && !text[at + word.len()..].starts_with(is_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    /// Returns the lines of one file that violate `rule`.
    pub(super) fn lines(rule: Rule, path: &str, text: &str) -> Vec<usize> {
        let tree = tree(&[(path, text)]);
        let found = rule(&Project::new(&tree));
        found.into_iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn a_word_is_matched_only_as_a_whole() {
        assert!(has_word("use rand::Rng;", "rand"));
        assert!(!has_word("let operand = brand(random);", "rand"));
    }
}
