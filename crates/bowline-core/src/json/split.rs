//! Splits the text of an object at its top level.
//!
//! The text is that of a [`Json`](bowline_types::Json), which was checked when it was made: a value is
//! skipped by its quotes and brackets alone. Text that is no JSON after all is an error, never a panic.

use std::borrow::Cow;

use memchr::memchr2;

use super::NotAnObject;

/// The members of an object that nobody has looked at yet.
pub(crate) struct Members<'a> {
    rest: &'a [u8],
}

/// A name, and a value as text.
type Member<'a> = (Name<'a>, &'a [u8]);

/// The name of a member, as it is written.
pub(crate) struct Name<'a> {
    /// With its quotes.
    text: &'a [u8],
    has_escapes: bool,
}

impl<'a> Members<'a> {
    pub(crate) fn of(text: &'a [u8]) -> Result<Self, NotAnObject> {
        let rest = text.strip_prefix(b"{").ok_or(NotAnObject)?;
        Ok(Self { rest })
    }

    /// The next member.
    pub(crate) fn next(&mut self) -> Result<Option<Member<'a>>, NotAnObject> {
        let rest = self.rest.trim_ascii_start();
        // Where the comma stands was checked long ago.
        let rest = rest
            .strip_prefix(b",")
            .map_or(rest, <[u8]>::trim_ascii_start);
        if rest.first() == Some(&b'}') {
            return Ok(None);
        }
        self.split(rest).map(Some).ok_or(NotAnObject)
    }

    fn split(&mut self, rest: &'a [u8]) -> Option<Member<'a>> {
        let (end, has_escapes) = string_end(rest)?;
        let (text, rest) = rest.split_at_checked(end)?;
        let rest = rest.trim_ascii_start().strip_prefix(b":")?;
        let rest = rest.trim_ascii_start();
        let (value, rest) = rest.split_at_checked(value_end(rest)?)?;
        self.rest = rest;
        Some((Name { text, has_escapes }, value))
    }
}

impl<'a> Name<'a> {
    /// A name as it is written, with its quotes.
    pub(super) fn new(text: &'a [u8], has_escapes: bool) -> Self {
        Self { text, has_escapes }
    }

    pub(crate) fn is(&self, name: &str) -> bool {
        if self.has_escapes {
            return self.read().is_ok_and(|own| own == name);
        }
        self.unquoted() == name.as_bytes()
    }

    /// The name itself, borrowed unless it is written with escapes.
    pub(crate) fn read(&self) -> Result<Cow<'a, str>, NotAnObject> {
        let read = if self.has_escapes {
            serde_json::from_slice(self.text).ok().map(Cow::Owned)
        } else {
            std::str::from_utf8(self.unquoted()).ok().map(Cow::Borrowed)
        };
        read.ok_or(NotAnObject)
    }

    fn unquoted(&self) -> &'a [u8] {
        &self.text[1..self.text.len() - 1]
    }
}

/// Where the value ends that `text` begins with.
fn value_end(text: &[u8]) -> Option<usize> {
    match text.first()? {
        b'"' => string_end(text).map(|(end, _)| end),
        b'{' => bracket_end(text, b'{', b'}'),
        b'[' => bracket_end(text, b'[', b']'),
        _ => text
            .iter()
            .position(|byte| matches!(byte, b',' | b'}' | b' ' | b'\t' | b'\n' | b'\r'))
            .filter(|end| *end > 0),
    }
}

/// Where the brackets close that `text` begins with. Those of the other kind are closed by then too.
fn bracket_end(text: &[u8], open: u8, close: u8) -> Option<usize> {
    let mut depth = 0_usize;
    let mut at = 0;
    loop {
        // Between strings there is too little text to be worth a search.
        match *text.get(at)? {
            b'"' => {
                at += string_end(&text[at..])?.0;
                continue;
            }
            byte if byte == open => depth += 1,
            byte if byte == close => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return Some(at);
        }
    }
}

/// Where the string ends that `text` begins with, its quotes included, and whether anything in it is escaped.
pub(super) fn string_end(text: &[u8]) -> Option<(usize, bool)> {
    if text.first() != Some(&b'"') {
        return None;
    }
    let mut at = 1;
    let mut has_escapes = false;
    loop {
        at += quote_or_backslash(text.get(at..)?)?;
        if text[at] == b'"' {
            return Some((at + 1, has_escapes));
        }
        has_escapes = true;
        at += 2; // the backslash, and what it escapes
    }
}

/// Where the first quote or backslash stands. Most strings are short, and over before a search made for
/// long ones has begun.
fn quote_or_backslash(text: &[u8]) -> Option<usize> {
    let (words, _) = text.as_chunks::<8>();
    let mut at = 0;
    for word in words.iter().take(SHORT / 8) {
        let word = u64::from_le_bytes(*word);
        let found = bytes_that_are(b'"', word) | bytes_that_are(b'\\', word);
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    memchr2(b'"', b'\\', &text[at..]).map(|beyond| at + beyond)
}

/// A word whose lowest bit stands in the first of its bytes that is `byte`; zero if none is.
pub(super) fn bytes_that_are(byte: u8, word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let zero_where_equal = word ^ (ONES * u64::from(byte));
    zero_where_equal.wrapping_sub(ONES) & !zero_where_equal & (ONES << 7)
}

/// How many bytes are looked at word by word before the search for long strings takes over.
pub(super) const SHORT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn members(text: &str) -> Result<Vec<(String, String)>, NotAnObject> {
        let mut members = Members::of(text.as_bytes())?;
        let mut found = Vec::new();
        while let Some((name, value)) = members.next()? {
            let value = std::str::from_utf8(value).unwrap();
            found.push((name.read()?.into_owned(), value.to_owned()));
        }
        Ok(found)
    }

    #[test]
    fn every_kind_of_value_ends_where_it_ends() {
        for value in [
            "1",
            "-1.5e+3",
            "true",
            "null",
            r#""""#,
            r#""a\"}""#,
            r#""\\""#,
            "[]",
            r#"[[1], {"]": "]"}]"#,
            r#"{"}": {"\"": "{"}}"#,
        ] {
            let text = format!("{{ \"a\" : {value} ,\n\"b\":{value}}}");

            let found = members(&text).unwrap();

            let expected = ["a", "b"].map(|name| (name.to_owned(), value.to_owned()));
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn a_string_ends_at_its_quote_however_long_it_is() {
        for length in 0..200 {
            let plain = format!("\"{}\"", "x".repeat(length));
            let escaped = format!("\"{}\\\"\\\\\"", "é".repeat(length));

            for value in [plain, escaped] {
                let text = format!("{{\"a\":{value},\"b\":1}}");
                assert_eq!(members(&text).unwrap()[0].1, value);
            }
        }
    }

    #[test]
    fn a_name_may_be_written_with_escapes() {
        assert_eq!(members(r#"{"\u0061\"":1}"#).unwrap()[0].0, "a\"");
    }

    #[test]
    fn text_that_is_no_object_is_an_error() {
        for text in [
            "",
            "[]",
            "{",
            r#"{"a"#,
            r#"{"a""#,
            r#"{"a":"#,
            r#"{"a":1"#,
            r#"{"a":"\"#,
            "{a:1}",
            r#"{"a":[}"#,
            r#"{"a":{"b":"}"#,
            r#"{"a":}"#,
        ] {
            assert!(members(text).is_err(), "{text} was taken for an object");
        }
    }
}
