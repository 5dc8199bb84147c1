//! The rules, by what they protect.

use super::{Project, Violation};

mod boundaries;
mod dependencies;
mod documents;
mod eras;
mod leftovers;
mod names;
mod order;
mod shape;

/// One rule: what in the project breaks it.
pub(super) type Rule = fn(&Project<'_>) -> Vec<Violation>;

/// Every rule, in the order of the report.
pub(super) const ALL: &[Rule] = &[
    boundaries::the_core_does_no_io,
    boundaries::unions_are_read_by_their_tag,
    boundaries::features_only_choose_modules,
    order::chance_decides_nothing,
    dependencies::the_core_depends_on_little,
    dependencies::dependencies_have_reasons,
    eras::versions_are_compared_in_one_place,
    eras::sessions_are_legacy,
    shape::files_say_what_they_are_for,
    shape::files_are_short,
    shape::functions_are_short,
    leftovers::nothing_is_left_undone,
    leftovers::tests_do_not_sleep,
    names::names_say_something,
    names::tickets_are_not_names,
    documents::async_functions_say_what_a_drop_does,
    documents::the_architecture_is_true,
    documents::no_machine_is_named,
    documents::mutants_name_a_law_and_a_test,
];

/// Whether `text` contains `word` with no letter, digit or underscore at either side.
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

    /// The lines at which `rule` finds fault with one file.
    pub(super) fn lines(rule: Rule, path: &str, text: &str) -> Vec<usize> {
        let tree = tree(&[(path, text)]);
        let found = rule(&Project::new(&tree));
        found.into_iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn a_word_stands_alone() {
        assert!(has_word("use rand::Rng;", "rand"));
        assert!(!has_word("let operand = brand(random);", "rand"));
    }
}
