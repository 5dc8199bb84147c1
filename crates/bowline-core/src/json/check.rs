//! Checks that text is JSON, and splits an object at its top level on the way.
//!
//! Every byte of every message passes here, long strings above all: those are searched rather than read.

use std::ops::Range;

use memchr::memchr2;

use super::split::Name;

/// The text is not JSON, or not the JSON that it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotJson;

/// Checks that `text` is one object and nothing else. `member` is told of each name and where its value begins,
/// and says where that ends, as [`value_end`] and [`object_end`] find it.
pub(crate) fn object<'a>(
    text: &'a str,
    member: impl FnMut(Name<'a>, usize) -> Option<usize>,
) -> Result<(), NotJson> {
    let text = text.as_bytes();
    let end = object_end(text, blanks_end(text, 0), member).ok_or(NotJson)?;
    if blanks_end(text, end) < text.len() {
        return Err(NotJson);
    }
    Ok(())
}

/// Where the object ends that begins at `at`, if it is one.
pub(crate) fn object_end<'a>(
    text: &'a [u8],
    at: usize,
    mut member: impl FnMut(Name<'a>, usize) -> Option<usize>,
) -> Option<usize> {
    if *text.get(at)? != b'{' {
        return None;
    }
    let mut at = blanks_end(text, at + 1);
    if *text.get(at)? == b'}' {
        return Some(at + 1);
    }
    loop {
        let (name, value) = name_at(text, at)?;
        at = blanks_end(text, member(name, value)?);
        match *text.get(at)? {
            b',' => at = blanks_end(text, at + 1),
            b'}' => return Some(at + 1),
            _ => return None,
        }
    }
}

/// Checks that `text` is one array and nothing else, and returns where its elements are; `None` if there are more than
/// `max`. What stands behind these is not looked at.
pub(crate) fn elements(text: &str, max: usize) -> Result<Option<Vec<Range<usize>>>, NotJson> {
    let text = text.as_bytes();
    let mut found = Vec::new();
    let start = blanks_end(text, 0);
    if text.get(start) != Some(&b'[') {
        return Err(NotJson);
    }
    let mut at = blanks_end(text, start + 1);
    let mut is_over = text.get(at) == Some(&b']');
    while !is_over {
        if found.len() == max {
            return Ok(None);
        }
        let end = value_end(text, at).ok_or(NotJson)?;
        found.push(at..end);
        at = blanks_end(text, end);
        is_over = match text.get(at) {
            Some(b',') => false,
            Some(b']') => true,
            _ => return Err(NotJson),
        };
        if !is_over {
            at = blanks_end(text, at + 1);
        }
    }
    if blanks_end(text, at + 1) < text.len() {
        return Err(NotJson);
    }
    Ok(Some(found))
}

/// The name of a member that begins at `at`, and where its value begins.
pub(super) fn name_at(text: &[u8], at: usize) -> Option<(Name<'_>, usize)> {
    let (end, has_escapes) = string_end(text, at)?;
    let name = Name::new(&text[at..end], has_escapes);
    Some((name, colon_end(text, end)?))
}

/// Whether `text` is one JSON value and nothing else.
pub(crate) fn is_json(text: &str) -> bool {
    let text = text.as_bytes();
    let end = value_end(text, blanks_end(text, 0));
    end.is_some_and(|end| blanks_end(text, end) == text.len())
}

/// Where the value ends that begins at `at`, if it is one.
pub(crate) fn value_end(text: &[u8], mut at: usize) -> Option<usize> {
    let mut brackets = Brackets::default();
    loop {
        at = match *text.get(at)? {
            b'"' => string_end(text, at)?.0,
            open @ (b'{' | b'[') => {
                let inside = blanks_end(text, at + 1);
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
        // A value is over, and so may be what it stands in.
        loop {
            let Some(is_object) = brackets.last() else {
                return Some(at);
            };
            at = blanks_end(text, at);
            match *text.get(at)? {
                b',' => {
                    at = item_start(text, blanks_end(text, at + 1), is_object)?;
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

/// Where the next value begins; in an object its name stands before it.
fn item_start(text: &[u8], at: usize, is_object: bool) -> Option<usize> {
    if !is_object {
        return Some(at);
    }
    colon_end(text, string_end(text, at)?.0)
}

fn colon_end(text: &[u8], at: usize) -> Option<usize> {
    let at = blanks_end(text, at);
    (*text.get(at)? == b':').then(|| blanks_end(text, at + 1))
}

pub(super) fn blanks_end(text: &[u8], mut at: usize) -> usize {
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

/// Where the digits end of which at least one stands at `at`.
fn digits_end(text: &[u8], at: usize) -> Option<usize> {
    let mut end = at;
    while text.get(end).is_some_and(u8::is_ascii_digit) {
        end += 1;
    }
    (end > at).then_some(end)
}

/// Where the string ends that begins at `at`, its quotes included, and whether anything in it is escaped.
pub(super) fn string_end(text: &[u8], at: usize) -> Option<(usize, bool)> {
    if text.get(at) != Some(&b'"') {
        return None;
    }
    let mut at = at + 1;
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

/// How much of a string stands for itself: up to a quote, a backslash, or what may not stand in a string.
/// Most strings are short, and over before a search made for long ones has begun.
fn plain_len(text: &[u8]) -> Option<usize> {
    let (words, _) = text.as_chunks::<8>();
    let mut at = 0;
    for word in words.iter().take(SHORT / 8) {
        let word = u64::from_le_bytes(*word);
        let found = backslashes_in(word) | quotes_and_controls_in(word);
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    let end = at + memchr2(b'"', b'\\', &text[at..])?;
    // Without an early end, so that many bytes are looked at in one step.
    let has_control = text[at..end]
        .iter()
        .fold(false, |found, byte| found | (*byte < b' '));
    (!has_control).then_some(end)
}

/// A word whose lowest bit stands in the first of its bytes that is a backslash; zero if none is.
fn backslashes_in(word: u64) -> u64 {
    bytes_below(1, word ^ (ONES * u64::from(b'\\')))
}

/// The same for quotes and control characters: those stand below the blank, and the quote takes its place if
/// one bit of each byte is turned round.
fn quotes_and_controls_in(word: u64) -> u64 {
    bytes_below(b' ' + 1, word ^ (ONES * u64::from(b'"' ^ b' ')))
}

/// A word whose lowest bit stands in the first of its bytes that is less than `limit`; zero if none is.
fn bytes_below(limit: u8, word: u64) -> u64 {
    word.wrapping_sub(ONES * u64::from(limit)) & !word & (ONES << 7)
}

/// Where what a backslash escapes is over.
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

/// The brackets that are open: whether each is that of an object. Few are as many as a word has bits.
#[derive(Default)]
struct Brackets {
    depth: usize,
    inner: u64,
    outer: Vec<u64>,
}

impl Brackets {
    fn push(&mut self, is_object: bool) {
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.outer.push(self.inner);
        }
        self.inner = self.inner << 1 | u64::from(is_object);
        self.depth += 1;
    }

    fn pop(&mut self) {
        self.depth -= 1;
        self.inner >>= 1;
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.inner = self.outer.pop().unwrap_or_default();
        }
    }

    fn last(&self) -> Option<bool> {
        (self.depth > 0).then_some(self.inner & 1 == 1)
    }
}

/// A word with a one in each of its bytes.
const ONES: u64 = 0x0101_0101_0101_0101;

/// How many bytes are looked at word by word before the search for long strings takes over.
const SHORT: usize = 64;

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;
    use serde_json::{Map, Value};

    use super::*;

    /// What serde thinks, without looking at what the text means.
    fn serde_takes(text: &str) -> bool {
        serde_json::from_str::<&RawValue>(text).is_ok()
    }

    #[test]
    fn what_is_json_is_what_serde_takes_for_it() {
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
                assert_eq!(is_json(&text), serde_takes(&text), "{text:?}");
            }
        }
    }

    #[test]
    fn a_string_is_checked_wherever_in_it_the_fault_is() {
        for length in 0..200_usize {
            for at in [0, length / 2, length.saturating_sub(1)] {
                for fault in ["", "\\n", "é"] {
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

        assert_eq!(is_json(&text), serde_takes(&text), "{text:?}");
    }

    #[test]
    fn brackets_close_in_the_order_in_which_they_opened_however_many_they_are() {
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
    fn an_object_is_what_serde_takes_for_one() {
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
