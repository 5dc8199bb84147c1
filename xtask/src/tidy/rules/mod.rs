//! The list of all rules.

use super::source::{Line, Source};
use super::{Project, Violation};

mod boundaries;
mod documents;
mod eras;
mod guide;
mod names;
mod shape;
mod urls;

/// A rule: returns its violations.
pub(super) type Rule = fn(&Project<'_>) -> Vec<Violation>;

/// Every rule, in the order of the report.
pub(super) const ALL: &[Rule] = &[
    boundaries::the_core_does_no_io,
    boundaries::unions_are_read_by_their_tag,
    boundaries::features_only_choose_modules,
    boundaries::selects_are_biased,
    boundaries::tests_do_not_sleep,
    eras::versions_are_compared_in_one_place,
    eras::sessions_are_legacy,
    shape::files_have_header_docs,
    shape::files_are_short,
    names::names_are_specific,
    names::tickets_are_not_names,
    urls::shown_urls_are_redacted,
    documents::async_functions_document_cancel_safety,
    documents::dependencies_have_reasons,
    documents::crates_can_be_published,
    documents::architecture_paths_exist,
    documents::no_machine_paths,
    guide::links_lead_somewhere,
    guide::pages_are_doctests,
    guide::features_are_listed,
    guide::input_requests_warn_of_reruns,
];

/// Returns a violation for each line of `sources` for which `is_violation` is true.
fn find_lines<'s, 'a: 's>(
    sources: impl Iterator<Item = &'s Source<'a>>,
    rule: &'static str,
    advice: &str,
    is_violation: impl Fn(&Line<'a>) -> bool,
) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in sources {
        let lines = source.lines.iter().filter(|line| is_violation(line));
        found.extend(lines.map(|line| source.violation(rule, line, advice)));
    }
    found
}

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
        assert!(has_word("use std::net::TcpStream;", "std::net"));
        assert!(!has_word("use std::netting;", "std::net"));
    }
}
