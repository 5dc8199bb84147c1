//! [`Members`]: an iterator over the members of an object whose text was already checked to be JSON.

use std::borrow::Cow;

use super::NotAnObject;
use super::check::{name_at, string_end, whitespace_end};

/// Iterates over the members of an object without decoding them.
///
/// The text is that of a [`Json`](bowline_types::Json). Invalid text is an error, not a panic.
pub(crate) struct Members<'a> {
    text: &'a [u8],
    /// The start of the next name, or the closing bracket.
    at: usize,
}

/// A name and the text of its value.
type Member<'a> = (MemberName<'a>, &'a [u8]);

/// A member name that is not unescaped.
pub(crate) struct MemberName<'a> {
    /// The text with its quotes.
    text: &'a [u8],
    has_escapes: bool,
}

impl<'a> Members<'a> {
    pub(crate) fn of(text: &'a [u8]) -> Result<Self, NotAnObject> {
        if text.first() != Some(&b'{') {
            return Err(NotAnObject);
        }
        let at = whitespace_end(text, 1);
        Ok(Self { text, at })
    }

    /// Returns the next member.
    pub(crate) fn next(&mut self) -> Result<Option<Member<'a>>, NotAnObject> {
        if self.text.get(self.at) == Some(&b'}') {
            return Ok(None);
        }
        self.split().map(Some).ok_or(NotAnObject)
    }

    fn split(&mut self) -> Option<Member<'a>> {
        let (name, start) = name_at(self.text, self.at)?;
        let end = skip_value(self.text, start)?;
        let next = whitespace_end(self.text, end);
        self.at = match *self.text.get(next)? {
            b',' => whitespace_end(self.text, next + 1),
            _ => next,
        };
        Some((name, &self.text[start..end]))
    }
}

/// Returns the end of the value at `at`. The text was checked before, so only its strings and brackets are looked at.
fn skip_value(text: &[u8], at: usize) -> Option<usize> {
    match text.get(at)? {
        b'"' => Some(string_end(text, at)?.0),
        b'{' | b'[' => skip_nested(text, at),
        _ => scalar_end(text, at),
    }
}

/// Returns the end of the object or array at `at`.
fn skip_nested(text: &[u8], mut at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    loop {
        let byte = *text.get(at)?;
        if byte == b'"' {
            at = string_end(text, at)?.0;
            continue;
        }
        at += 1;
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1, // not below zero: the first byte opens, and the last one returns
            _ => continue,
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

/// Returns the end of the number, boolean or null at `at`.
fn scalar_end(text: &[u8], at: usize) -> Option<usize> {
    let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    let length = text[at..].iter().take_while(is_part).count();
    (length > 0).then_some(at + length)
}

impl<'a> MemberName<'a> {
    /// Creates a name from its text with quotes.
    pub(super) fn new(text: &'a [u8], has_escapes: bool) -> Self {
        Self { text, has_escapes }
    }

    pub(crate) fn is(&self, name: &str) -> bool {
        if self.has_escapes {
            return self.read().is_ok_and(|own| own == name);
        }
        self.unquoted() == name.as_bytes()
    }

    /// Returns the unescaped name, borrowed unless it contains escapes.
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

#[cfg(test)]
mod tests {
    use super::super::check::value_end;
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
    fn the_end_of_every_kind_of_value_is_found() {
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
    fn values_that_are_skipped_end_where_the_check_ends() {
        let nested = format!("{}{}", "[{\"a\":[".repeat(100), "]}]".repeat(100));
        for value in [
            r#"[1, -2.5E-3, true,false , null, "", [], {}, [ ] ]"#,
            r#"{ "a" : { "\u005d" : "]\\" } , "b" : [ "}" , { } ] }"#,
            nested.as_str(),
        ] {
            for text in [value.to_owned(), format!("{value} ,\"x\":1}}")] {
                let text = text.as_bytes();
                assert_eq!(skip_value(text, 0), value_end(text, 0));
                assert_eq!(skip_value(text, 0), Some(value.len()));
            }
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
    fn text_that_is_not_an_object_is_an_error() {
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
