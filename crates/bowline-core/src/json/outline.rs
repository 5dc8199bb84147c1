//! A value from text that was checked before, as far as whoever looks at it wants to know.

use bowline_types::Json;
use serde_json::{Map, Value};

use super::check::string_end;

/// Decodes a value, but leaves every string empty that is longer than `longest` bytes: to somebody who asks
/// only what there is, and not what it says, a long text is as good as a short one.
///
/// `None` if the value is nested too deeply, or is none that can be decoded.
///
/// # Examples
///
/// ```
/// use bowline_core::json::outline;
/// use bowline_types::Json;
/// use serde_json::json;
///
/// let value = json!({"name": "Moby Dick", "text": "Call me Ishmael. ".repeat(1000)});
/// assert_eq!(outline(&value.clone().into(), usize::MAX), Some(value.clone()));
/// assert_eq!(outline(&value.into(), 100), Some(json!({"name": "Moby Dick", "text": ""})));
/// ```
#[must_use]
pub fn outline(json: &Json, longest: usize) -> Option<Value> {
    let mut reader = Reader {
        rest: json.as_bytes(),
        longest,
    };
    let value = reader.value(DEEPEST)?;
    reader.skip_blanks();
    reader.rest.is_empty().then_some(value)
}

struct Reader<'a> {
    rest: &'a [u8],
    longest: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: usize) -> Option<Value> {
        self.skip_blanks();
        match self.rest.first()? {
            b'"' => self.text(self.longest).map(Value::String),
            b'{' => self.object(depth.checked_sub(1)?).map(Value::Object),
            b'[' => self.array(depth.checked_sub(1)?).map(Value::Array),
            _ => {
                let is_over = |byte: &u8| matches!(byte, b',' | b'}' | b']') || is_blank(*byte);
                let end = self.rest.iter().position(is_over);
                serde_json::from_slice(self.take(end.unwrap_or(self.rest.len()))).ok()
            }
        }
    }

    fn object(&mut self, depth: usize) -> Option<Map<String, Value>> {
        let mut object = Map::new();
        self.take(1);
        while !self.ends_with(b'}')? {
            let name = self.text(usize::MAX)?;
            self.skip_blanks();
            self.rest = self.rest.strip_prefix(b":")?;
            object.insert(name, self.value(depth)?);
        }
        Some(object)
    }

    fn array(&mut self, depth: usize) -> Option<Vec<Value>> {
        let mut array = Vec::new();
        self.take(1);
        while !self.ends_with(b']')? {
            array.push(self.value(depth)?);
        }
        Some(array)
    }

    fn text(&mut self, longest: usize) -> Option<String> {
        let (end, has_escapes) = string_end(self.rest, 0)?;
        let text = self.take(end);
        if has_escapes {
            // Which may stand for no character at all, however long the string is.
            return serde_json::from_slice(text).ok();
        }
        let inside = &text[1..end - 1];
        if inside.len() > longest {
            return Some(String::new());
        }
        String::from_utf8(inside.to_vec()).ok()
    }

    /// Whether what was begun is over; otherwise something follows, and the comma before it is gone.
    fn ends_with(&mut self, closing: u8) -> Option<bool> {
        self.skip_blanks();
        let is_over = *self.rest.first()? == closing;
        if is_over || self.rest[0] == b',' {
            self.take(1);
            self.skip_blanks();
        }
        Some(is_over)
    }

    fn skip_blanks(&mut self) {
        while self.rest.first().is_some_and(|byte| is_blank(*byte)) {
            self.rest = &self.rest[1..];
        }
    }

    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

/// As deep as serde goes.
const DEEPEST: usize = 127;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Option<Value> {
        outline(&Json::parse(text.to_owned()).unwrap(), usize::MAX)
    }

    #[test]
    fn it_is_what_serde_makes_of_it() {
        for text in [
            "1",
            "-0",
            "1e400",
            "18446744073709551616",
            "1.0",
            "true",
            "null",
            r#""""#,
            r#""é\n\u00e9\ud83d\ude00""#,
            r#""\ud800""#,
            "[]",
            "[ ]",
            "{ }",
            r#"[1, [2 ,{"a" : [ ] } ], "]"]"#,
            r#"{"a": 1, "b": {"c": "}"}, "a": 2, "\u0061": 3}"#,
        ] {
            let serde: Option<Value> = serde_json::from_str(text).ok();

            assert_eq!(read(text), serde, "{text}");
        }
    }

    #[test]
    fn it_is_as_deep_as_serde_goes() {
        for depth in [126, 127, 128, 129] {
            let text = "[".repeat(depth) + &"]".repeat(depth);
            let serde: Option<Value> = serde_json::from_str(&text).ok();

            assert_eq!(read(&text).is_some(), serde.is_some(), "{depth}");
        }
    }

    #[test]
    fn of_long_strings_only_that_they_are_there_is_kept() {
        let long = "x".repeat(11);
        let json = Json::from(json!({"a": [long, "short"], (long.clone()): 1}));

        let outlined = outline(&json, 10);

        assert_eq!(outlined, Some(json!({"a": ["", "short"], (long): 1})));
    }

    #[test]
    fn text_that_is_no_json_after_all_is_nothing() {
        for text in [
            "",
            "{",
            "[",
            r#"{"a"#,
            r#"{"a""#,
            r#"{"a":"#,
            r#"{"a":1"#,
            "[1",
            "x",
            "1 1",
            "\"",
        ] {
            let json = Json::from_valid(text.into());

            assert_eq!(outline(&json, 10), None, "{text}");
        }
    }
}
