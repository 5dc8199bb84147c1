//! [`Members`]: the members of an object, without decoding their values.
//!
//! A short task is decoded twice, and with serde that costs as much as a third of its call.

use std::borrow::Cow;

/// Iterates over the members of an object: their names, and the text of their values.
///
/// The text must be JSON, which a [`Json`](bowline_types::Json) is. Other text ends the iteration early or yields values
/// that are not JSON; it does not panic.
pub(super) struct Members<'a> {
    /// What follows the opening bracket or the last member.
    rest: &'a [u8],
}

impl<'a> Members<'a> {
    /// Returns `None` if the text is not an object.
    pub(super) fn of(text: &'a [u8]) -> Option<Self> {
        let rest = text.trim_ascii_start().strip_prefix(b"{")?;
        Some(Self { rest })
    }

    fn split(&mut self) -> Option<(Cow<'a, str>, &'a [u8])> {
        let text = self.rest.trim_ascii_start();
        let text = text.strip_prefix(b",").unwrap_or(text).trim_ascii_start();
        let (name, text) = text.split_at_checked(string_len(text)?)?;
        let text = text.trim_ascii_start().strip_prefix(b":")?;
        let text = text.trim_ascii_start();
        let (value, rest) = text.split_at_checked(value_len(text)?)?;
        self.rest = rest;
        Some((unquoted(name)?, value))
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = (Cow<'a, str>, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        self.split()
    }
}

/// Returns the content of a string; `None` if the value is not one.
pub(super) fn unquoted(value: &[u8]) -> Option<Cow<'_, str>> {
    let content = value.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    match content.contains(&b'\\') {
        false => std::str::from_utf8(content).ok().map(Cow::Borrowed),
        true => serde_json::from_slice(value).ok().map(Cow::Owned),
    }
}

/// Returns the length of the string at the start, with its quotes.
fn string_len(text: &[u8]) -> Option<usize> {
    if text.first() != Some(&b'"') {
        return None;
    }
    let mut at = 1;
    loop {
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Returns the length of the value at the start. Brackets need not be matched by kind, because the text is JSON.
fn value_len(text: &[u8]) -> Option<usize> {
    let (mut at, mut depth) = (0, 0_usize);
    loop {
        match text.get(at)? {
            b'"' => at += string_len(&text[at..])?,
            b'{' | b'[' => {
                depth += 1;
                at += 1;
                continue;
            }
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                at += 1;
            }
            b',' | b':' | b' ' | b'\n' | b'\r' | b'\t' => at += 1,
            _ => at += plain_len(&text[at..]),
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

/// Returns the length of the number or word at the start.
fn plain_len(text: &[u8]) -> usize {
    let is_end = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
    text.iter().position(is_end).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(text: &str) -> Vec<(String, String)> {
        let members = Members::of(text.as_bytes()).unwrap();
        let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
        let owned = members.map(|(name, value)| (name.into_owned(), text(value)));
        owned.collect()
    }

    #[test]
    fn every_kind_of_value_is_found() {
        for value in [
            "0",
            "-1.5e+3",
            "true",
            "null",
            r#""""#,
            r#""a\"}\\""#,
            "[]",
            "{}",
            r#"[[1, true], {"]": "]"}]"#,
            r#"{"}": {"\"": "{", "a": [ ]}, "b":null}"#,
        ] {
            for text in [
                format!(r#"{{"a":{value},"b":{value}}}"#),
                format!(" {{ \"a\" : {value} ,\n\"b\"\t:\r{value} }} "),
            ] {
                let expected = ["a", "b"].map(|name| (name.to_owned(), value.to_owned()));
                assert_eq!(members(&text), expected, "{text}");
            }
        }
        assert_eq!(members("{}"), []);
        assert_eq!(members(" { } "), []);
    }

    #[test]
    fn escapes_are_read() {
        let read = members(r#"{"task\u0049d": "\u00e4\\"}"#);

        assert_eq!(read, [("taskId".to_owned(), r#""\u00e4\\""#.to_owned())]);
        assert_eq!(unquoted(br#""\u00e4\\""#).unwrap(), "ä\\");
        assert_eq!(unquoted(br#""""#).unwrap(), "");
        for other in [&b"7"[..], b"null", b"[]", b"\"", b""] {
            assert_eq!(unquoted(other), None);
        }
    }

    #[test]
    fn other_text_does_not_panic() {
        for text in ["", "[]", "7", "\"a\""] {
            assert!(Members::of(text.as_bytes()).is_none(), "{text}");
        }
        for text in [
            "{",
            "{\"",
            "{\"a\\",
            "{\"a",
            "{\"a\"",
            "{\"a\":",
            "{\"a\":}",
            "{,",
            "{\"a\":[}",
            "{\"a\":\"\\",
        ] {
            let _ = Members::of(text.as_bytes()).unwrap().count();
        }
    }
}
