//! Names without a meaning, and names with a ticket number.

use super::{Project, Violation, find_lines};

/// A public name must not contain an empty word such as `manager`.
pub(super) fn names_are_specific(project: &Project<'_>) -> Vec<Violation> {
    let advice = "the name is not specific: use the word of the glossary for what it is or does";
    find_lines(project.crate_sources(), "names", advice, |line| {
        let name = public_name(&line.code).filter(|_| !line.in_test);
        name.is_some_and(|name| {
            let mut words = words(name);
            let is_getter = name.starts_with("get_") && !name.starts_with("get_or_");
            is_getter || words.any(|word| EMPTY_WORDS.contains(&word.as_str()))
        })
    })
}

/// A reader should not need the issue tracker to understand a name.
pub(super) fn tickets_are_not_names(project: &Project<'_>) -> Vec<Violation> {
    let advice = "name the behaviour, not the proposal's number";
    let sources = project.sources.iter();
    let files = sources.clone().filter(|source| has_ticket(source.path));
    let mut found: Vec<_> = files
        .map(|source| Violation::new("tickets", source.path, 0, "", advice))
        .collect();
    found.extend(find_lines(sources, "tickets", advice, |line| {
        has_ticket(&line.code)
    }));
    found
}

/// Returns the name of the public item that a line declares.
fn public_name(code: &str) -> Option<&str> {
    let mut words = code.trim().strip_prefix("pub ")?.split_whitespace();
    loop {
        match words.next()? {
            "async" | "const" | "unsafe" if code.contains(" fn ") => {}
            "struct" | "enum" | "trait" | "fn" | "mod" | "type" | "const" | "static" => break,
            _ => return None,
        }
    }
    let name = words.next()?;
    let end = name
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(name.len());
    Some(&name[..end])
}

/// Splits a name in snake or camel case into lower-case words.
fn words(name: &str) -> impl Iterator<Item = String> {
    let mut words = vec![String::new()];
    let mut after_lower = false;
    for c in name.chars() {
        if c == '_' || (c.is_uppercase() && after_lower) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c != '_') {
            word.extend(c.to_lowercase());
        }
        after_lower = c.is_lowercase();
    }
    words.into_iter()
}

/// Returns whether a name contains `sep` and at least three digits, as in `test_sep_2260` or `Sep2260`.
fn has_ticket(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    lower.match_indices("sep").any(|(at, _)| {
        let digits = lower[at + 3..].trim_start_matches(['_', '-']);
        let starts_a_word =
            !lower[..at].ends_with(|c: char| c.is_ascii_lowercase()) || text[at..].starts_with('S');
        starts_a_word && digits.bytes().take_while(u8::is_ascii_digit).count() >= 3
    })
}

const EMPTY_WORDS: [&str; 6] = ["manager", "helper", "helpers", "util", "utils", "common"];

#[cfg(test)]
mod tests {
    use super::super::tests::lines;
    use super::*;

    #[test]
    fn an_empty_word_in_a_public_name_is_found() {
        for item in [
            "pub struct CallManager;",
            "pub mod utils;",
            "pub async fn http_helper() {}",
            "pub fn get_tools() {}",
            "pub const COMMON: u8 = 0;",
        ] {
            assert_eq!(
                lines(names_are_specific, "crates/a/src/a.rs", item),
                [1],
                "{item}"
            );
        }
    }

    #[test]
    fn longer_words_and_private_names_are_allowed() {
        for item in [
            "pub struct Utility;",
            "pub fn commonly() {}",
            "struct Helper;",
            "pub fn target() {}",
        ] {
            assert!(
                lines(names_are_specific, "crates/a/src/a.rs", item).is_empty(),
                "{item}"
            );
        }
    }

    #[test]
    fn a_proposal_s_number_in_a_name_is_found() {
        for text in [
            "fn test_sep_2260() {}",
            "struct Sep2260;",
            "let sep2260 = 1;",
            "fn aSep260() {}",
        ] {
            assert_eq!(
                lines(tickets_are_not_names, "crates/a/src/a.rs", text),
                [1],
                "{text}"
            );
        }
        assert_eq!(
            lines(tickets_are_not_names, "crates/a/tests/sep_2260.rs", "//! x"),
            [0]
        );
    }

    #[test]
    fn separators_and_comments_are_not_proposals() {
        for text in [
            "let sep = 2260;",
            "// SEP-2260 says so",
            "let step_2260 = 1;",
        ] {
            assert!(
                lines(tickets_are_not_names, "crates/a/src/a.rs", text).is_empty(),
                "{text}"
            );
        }
    }
}
