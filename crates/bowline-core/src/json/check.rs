//! Checks that text is valid JSON, and splits an object at its top level in the same pass.
//!
//! Every byte of every message is scanned here. Most bytes are in long strings, which are searched with `memchr`.

use std::ops::Range;

use memchr::memchr2;

use super::split::MemberName;

/// The text is not valid JSON, or not of the expected type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotJson;

/// Checks that `text` is one object without trailing text.
///
/// `member` is called with each name and the start of its value, and returns the end of the value, which it finds
/// with [`value_end`] or [`object_end`].
pub(crate) fn object<'a>(
    text: &'a str,
    member: impl FnMut(MemberName<'a>, usize) -> Option<usize>,
) -> Result<(), NotJson> {
    let text = text.as_bytes();
    let end = object_end(text, whitespace_end(text, 0), member).ok_or(NotJson)?;
    if whitespace_end(text, end) < text.len() {
        return Err(NotJson);
    }
    Ok(())
}

/// Returns the end of the object at `at`, or `None` if it is not a valid object.
pub(crate) fn object_end<'a>(
    text: &'a [u8],
    at: usize,
    mut member: impl FnMut(MemberName<'a>, usize) -> Option<usize>,
) -> Option<usize> {
    if *text.get(at)? != b'{' {
        return None;
    }
    let mut at = whitespace_end(text, at + 1);
    if *text.get(at)? == b'}' {
        return Some(at + 1);
    }
    loop {
        let (name, value) = name_at(text, at)?;
        at = whitespace_end(text, member(name, value)?);
        match *text.get(at)? {
            b',' => at = whitespace_end(text, at + 1),
            b'}' => return Some(at + 1),
            _ => return None,
        }
    }
}

/// Checks that `text` is one array without trailing text, and returns the ranges of its elements.
///
/// Returns `None` if there are more than `max`; the text after these is not checked.
pub(crate) fn elements(text: &str, max: usize) -> Result<Option<Vec<Range<usize>>>, NotJson> {
    let text = text.as_bytes();
    let mut found = Vec::new();
    let start = whitespace_end(text, 0);
    if text.get(start) != Some(&b'[') {
        return Err(NotJson);
    }
    let mut at = whitespace_end(text, start + 1);
    let mut is_over = text.get(at) == Some(&b']');
    while !is_over {
        if found.len() == max {
            return Ok(None);
        }
        let end = value_end(text, at).ok_or(NotJson)?;
        found.push(at..end);
        at = whitespace_end(text, end);
        is_over = match text.get(at) {
            Some(b',') => false,
            Some(b']') => true,
            _ => return Err(NotJson),
        };
        if !is_over {
            at = whitespace_end(text, at + 1);
        }
    }
    if whitespace_end(text, at + 1) < text.len() {
        return Err(NotJson);
    }
    Ok(Some(found))
}

/// Returns the member name at `at` and the start of its value.
pub(super) fn name_at(text: &[u8], at: usize) -> Option<(MemberName<'_>, usize)> {
    let (end, has_escapes) = string_end(text, at)?;
    let name = MemberName::new(&text[at..end], has_escapes);
    Some((name, colon_end(text, end)?))
}

/// Returns whether `text` is one JSON value without trailing text.
pub(crate) fn is_json(text: &str) -> bool {
    let text = text.as_bytes();
    let end = value_end(text, whitespace_end(text, 0));
    end.is_some_and(|end| whitespace_end(text, end) == text.len())
}

/// Returns the end of the value at `at`, or `None` if it is not valid.
///
/// Does not recurse, so that deep nesting cannot overflow the stack.
pub(crate) fn value_end(text: &[u8], mut at: usize) -> Option<usize> {
    let mut brackets = BracketStack::default();
    loop {
        at = match *text.get(at)? {
            b'"' => string_end(text, at)?.0,
            open @ (b'{' | b'[') => {
                let inside = whitespace_end(text, at + 1);
                let is_object = open == b'{';
                if *text.get(inside)? == closing(is_object) {
                    inside + 1
                } else {
                    brackets.push(is_object);
                    at = item_start(text, inside, is_object)?;
                    continue;
                }
            }
            b't' => word_end(text, at, b"true")?,
            b'f' => word_end(text, at, b"false")?,
            b'n' => word_end(text, at, b"null")?,
            _ => number_end(text, at)?,
        };
        // After a value, its array or object continues or ends.
        loop {
            let Some(is_object) = brackets.last() else {
                return Some(at);
            };
            at = whitespace_end(text, at);
            match *text.get(at)? {
                b',' => {
                    at = item_start(text, whitespace_end(text, at + 1), is_object)?;
                    break;
                }
                byte if byte == closing(is_object) => {
                    brackets.pop();
                    at += 1;
                }
                _ => return None,
            }
        }
    }
}

fn closing(is_object: bool) -> u8 {
    if is_object { b'}' } else { b']' }
}

/// Returns the start of the next value; in an object, after its name and colon.
fn item_start(text: &[u8], at: usize, is_object: bool) -> Option<usize> {
    if !is_object {
        return Some(at);
    }
    colon_end(text, string_end(text, at)?.0)
}

fn colon_end(text: &[u8], at: usize) -> Option<usize> {
    let at = whitespace_end(text, at);
    (*text.get(at)? == b':').then(|| whitespace_end(text, at + 1))
}

pub(super) fn whitespace_end(text: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\r' | b'\t') = text.get(at) {
        at += 1;
    }
    at
}

fn word_end(text: &[u8], at: usize, word: &[u8]) -> Option<usize> {
    text[at..].starts_with(word).then_some(at + word.len())
}

fn number_end(text: &[u8], mut at: usize) -> Option<usize> {
    if text.get(at) == Some(&b'-') {
        at += 1;
    }
    at = match text.get(at)? {
        b'0' => at + 1,
        _ => digits_end(text, at)?,
    };
    if text.get(at) == Some(&b'.') {
        at = digits_end(text, at + 1)?;
    }
    if let Some(b'e' | b'E') = text.get(at) {
        at += 1;
        if let Some(b'+' | b'-') = text.get(at) {
            at += 1;
        }
        at = digits_end(text, at)?;
    }
    Some(at)
}

/// Returns the end of the digits at `at`, of which there must be at least one.
fn digits_end(text: &[u8], at: usize) -> Option<usize> {
    let mut end = at;
    while text.get(end).is_some_and(u8::is_ascii_digit) {
        end += 1;
    }
    (end > at).then_some(end)
}

/// Returns the end of the string at `at`, after its closing quote, and whether it contains escapes.
pub(super) fn string_end(text: &[u8], at: usize) -> Option<(usize, bool)> {
    if text.get(at) != Some(&b'"') {
        return None;
    }
    let mut at = at + 1;
    // Most strings end here: they are short, and have no escapes.
    for _ in 0..FIRST_WORDS {
        let Some(word) = text[at..].first_chunk() else {
            break;
        };
        let plain = plain_text_end(u64::from_le_bytes(*word));
        at += plain;
        if plain < word.len() {
            if text[at] == b'"' {
                return Some((at + 1, false));
            }
            break;
        }
    }
    long_string_end(text, at)
}

/// Returns the end of the string whose rest begins at `at`, and whether the rest contains escapes.
// Not inlined: short strings would save the registers that it needs.
#[inline(never)]
fn long_string_end(text: &[u8], mut at: usize) -> Option<(usize, bool)> {
    let mut has_escapes = false;
    loop {
        at += plain_len(text.get(at..)?)?;
        match text[at] {
            b'"' => return Some((at + 1, has_escapes)),
            b'\\' => at = escape_end(text, at + 1)?,
            _ => return None,
        }
        has_escapes = true;
    }
}

/// Returns the number of bytes before the next quote, backslash or control character.
///
/// There may be an escape every few bytes, where the setup of `memchr2` would cost more than the first words.
fn plain_len(text: &[u8]) -> Option<usize> {
    let (words, _) = text.as_chunks::<8>();
    let mut at = 0;
    for word in words.iter().take(FIRST_WORDS) {
        let plain = plain_text_end(u64::from_le_bytes(*word));
        at += plain;
        if plain < word.len() {
            return Some(at);
        }
    }
    let end = at + memchr2(b'"', b'\\', &text[at..])?;
    // `fold` instead of `any`: without an early exit the compiler vectorizes the loop.
    let has_control = text[at..end]
        .iter()
        .fold(false, |found, byte| found | (*byte < b' '));
    (!has_control).then_some(end)
}

/// Returns the number of bytes before the first quote, backslash or control character of the word: 8 for plain text.
fn plain_text_end(word: u64) -> usize {
    let found = backslashes_in(word) | quotes_and_controls_in(word);
    found.trailing_zeros() as usize / 8
}

/// Returns a word whose lowest set bit is in the first byte that is a backslash; zero if there is none.
fn backslashes_in(word: u64) -> u64 {
    bytes_below(1, word ^ (ONES * u64::from(b'\\')))
}

/// The same for quotes and control characters. Flipping bit 1 of each byte maps `"` to the space and keeps control
/// characters below it, so that one comparison finds both.
fn quotes_and_controls_in(word: u64) -> u64 {
    bytes_below(b' ' + 1, word ^ (ONES * u64::from(b'"' ^ b' ')))
}

/// Returns a word whose lowest set bit is in the first byte that is less than `limit`; zero if there is none.
///
/// Only the lowest set bit is meaningful: the subtraction borrows from the bytes after a match.
fn bytes_below(limit: u8, word: u64) -> u64 {
    word.wrapping_sub(ONES * u64::from(limit)) & !word & (ONES << 7)
}

/// Returns the end of the escape whose backslash is before `at`.
fn escape_end(text: &[u8], at: usize) -> Option<usize> {
    match text.get(at)? {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(at + 1),
        b'u' => {
            let digits = text.get(at + 1..at + 5)?;
            digits.iter().all(u8::is_ascii_hexdigit).then_some(at + 5)
        }
        _ => None,
    }
}

/// A stack of open brackets, one bit each: 1 for an object, 0 for an array. Allocates only beyond a depth of 64.
#[derive(Default)]
struct BracketStack {
    depth: usize,
    inner: u64,
    outer: Vec<u64>,
}

impl BracketStack {
    fn push(&mut self, is_object: bool) {
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.outer.push(self.inner);
        }
        self.inner = (self.inner << 1) + u64::from(is_object);
        self.depth += 1;
    }

    fn pop(&mut self) {
        self.depth -= 1;
        self.inner >>= 1;
        if self.depth.is_multiple_of(64) {
            self.inner = self.outer.pop().unwrap_or_default();
        }
    }

    fn last(&self) -> Option<bool> {
        (self.depth > 0).then_some(self.inner & 1 == 1)
    }
}

/// A word in which each byte is 1.
const ONES: u64 = 0x0101_0101_0101_0101;

/// The number of words that are searched one by one before `memchr2` takes over.
const FIRST_WORDS: usize = 8;

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;
    use serde_json::{Map, Value};

    use super::*;

    /// Returns whether `serde_json` accepts the text as JSON, without decoding it.
    fn serde_accepts(text: &str) -> bool {
        serde_json::from_str::<&RawValue>(text).is_ok()
    }

    #[test]
    fn the_bracket_stack_allocates_only_beyond_a_depth_of_64() {
        let mut stack = BracketStack::default();
        let is_object = |depth: usize| depth.is_multiple_of(3);

        for depth in 0..200 {
            stack.push(is_object(depth));
            assert_eq!(stack.outer.len(), depth / 64, "at depth {depth}");
        }

        for depth in (0..200).rev() {
            assert_eq!(stack.last(), Some(is_object(depth)), "at depth {depth}");
            stack.pop();
        }
        assert_eq!(stack.last(), None);
    }

    #[test]
    fn the_check_accepts_the_same_values_as_serde() {
        let values = [
            "",
            "0",
            "-0",
            "01",
            "-",
            "1.",
            "1.5",
            ".5",
            "1e",
            "1e5",
            "1E+5",
            "-1.25e-300",
            "+1",
            "1x",
            "nul",
            "null",
            "nullx",
            "true",
            "tru",
            "false",
            "fals",
            "NaN",
            "'a'",
            "[",
            "]",
            "{",
            "}",
            "[]",
            "{}",
            "[ ]",
            "{ }",
            "[1,]",
            "[,1]",
            "[1 2]",
            "[1,2]",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{,}",
            "{\"a\":1 \"b\":2}",
            "{\"a\" : 1 , \"b\":[{}]}",
            "{a:1}",
            "{1:1}",
            "[}",
            "{]",
            "[{]}",
            "\"",
            "\"a",
            "\"a\"",
            "\"\\\"",
            "\"\\\\\"",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\u12g4\"",
            "\"\\u12F4\"",
            "\"\\ud800\"",
            "\"\\/\\b\\f\\n\\r\\t\"",
            "\"\u{7f}\u{80}é\"",
            "\"\u{1f}\"",
            "\"\n\"",
            "\"\u{0}\"",
            "1 2",
            "{} x",
            " \t\r\n1 \n",
            "\u{a0}1",
            "\u{c}1",
        ];
        for value in values {
            for text in [
                value.to_owned(),
                format!("[{value}]"),
                format!("{{\"name\":{value}}}"),
                format!("[[],{{\"a\":[{value},0]}}]"),
            ] {
                assert_eq!(is_json(&text), serde_accepts(&text), "{text:?}");
            }
        }
    }

    #[test]
    fn every_byte_of_a_string_is_checked() {
        for length in 0..200_usize {
            for at in [0, length / 2, length.saturating_sub(1)] {
                for fault in ["", "\\n", "é", "\n\n"] {
                    check_string(length, at, fault);
                }
                for fault in '\0'..='\u{ff}' {
                    check_string(length, at, fault.encode_utf8(&mut [0; 2]));
                }
            }
        }
    }

    fn check_string(length: usize, at: usize, fault: &str) {
        let mut inside = "x".repeat(length);
        inside.insert_str(at, fault);
        let text = format!("[\"{inside}\",1]");

        assert_eq!(is_json(&text), serde_accepts(&text), "{text:?}");
    }

    #[test]
    fn mismatched_brackets_are_rejected_at_every_depth() {
        for depth in [1, 63, 64, 65, 127, 128, 129, 200, 5000] {
            let open: String = "[{\"a\":".repeat(depth);
            let close = "}]".repeat(depth);
            let whole = format!("{open}1{close}");
            let mixed = format!("{open}1{}", "]}".repeat(depth));

            assert!(is_json(&whole), "{depth}");
            assert!(!is_json(&mixed), "{depth}");
            assert!(!is_json(&whole[..whole.len() - 1]), "{depth}");
        }
    }

    #[test]
    fn an_object_is_split_into_its_members() {
        let text = r#" { "a" : [1, "}"] ,"\u0062":{} } "#;
        let mut found = Vec::new();

        let checked = object(text, |name, at| {
            let end = value_end(text.as_bytes(), at)?;
            found.push((name.read().unwrap().into_owned(), &text[at..end]));
            Some(end)
        });

        assert_eq!(checked, Ok(()));
        let expected = [("a".to_owned(), r#"[1, "}"]"#), ("b".to_owned(), "{}")];
        assert_eq!(found, expected);
    }

    #[test]
    fn the_check_accepts_the_same_objects_as_serde() {
        for text in [
            "{}",
            "{ }",
            "{} 1",
            "{}}",
            "{},",
            "{",
            "",
            "[]",
            "1",
            "{,}",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1",
            "{\"a\":1}",
            "{\"a\":1,}",
            "{\"a\":1]",
            "{\"a\":1}]",
            "{\"a\":1 \"b\":1}",
            " {\"a\" :1 , \"b\": []} ",
        ] {
            let is_object = serde_json::from_str::<Map<String, Value>>(text).is_ok();

            let checked = object(text, |_, at| value_end(text.as_bytes(), at));

            assert_eq!(checked.is_ok(), is_object, "{text}");
        }
    }
}
