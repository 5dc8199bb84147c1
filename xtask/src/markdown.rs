//! Links and headings of Markdown text.

use std::collections::BTreeSet;

/// Iterates over the inline links outside of code blocks, each with the number of its line.
pub(crate) fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    prose(text).flat_map(|(number, line)| {
        line.split("](")
            .skip(1)
            .filter_map(|rest| rest.split_once(')'))
            .map(move |(target, _)| (number, target))
    })
}

/// Returns the anchors that mdBook, rustdoc and code hosts give to the headings.
pub(crate) fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter_map(|(_, line)| line.strip_prefix('#'));
    let anchor = |heading: &str| {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        });
        kept.collect()
    };
    headings.map(anchor).collect()
}

/// Iterates over the lines that are not in code blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_in_code_blocks_are_left_out() {
        let text = "[a](b.md#c) and [d](e)\n```text\n[f](g)\n```\n[h](i)";

        let found: Vec<_> = links(text).collect();

        assert_eq!(found, [(1, "b.md#c"), (1, "e"), (5, "i")]);
    }

    #[test]
    fn an_anchor_has_no_punctuation() {
        let found = anchors("# One & two\n## `matrix()`, in tests\n```sh\n# a comment\n```");

        let expected = ["matrix-in-tests", "one--two"].map(str::to_owned);
        assert_eq!(found, expected.into());
    }
}
