//! Decoding of JSON with its long strings left out. `server/tool/validation.rs` of `bowline` uses it to validate
//! arguments and output against their schemas without decoding long strings.

use bowline_types::Json;
use serde_json::{Map, Value};

use super::check::string_end;

/// Decodes a value, with an empty string in place of each string longer than `max_string_len` bytes.
///
/// Member names are kept, and so are strings with escapes (they must be decoded to be checked). Returns `None` if
/// `serde_json` could not decode the value, for example because it is nested too deeply.
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
pub fn outline(json: &Json, max_string_len: usize) -> Option<Value> {
    let mut decoder = OutlineDecoder {
        rest: json.as_bytes(),
        max_string_len,
    };
    let value = decoder.value(MAX_DEPTH)?;
    decoder.skip_whitespace();
    decoder.rest.is_empty().then_some(value)
}

struct OutlineDecoder<'a> {
    rest: &'a [u8],
    max_string_len: usize,
}

impl<'a> OutlineDecoder<'a> {
    fn value(&mut self, depth: usize) -> Option<Value> {
        self.skip_whitespace();
        match self.rest.first()? {
            b'"' => self.text(self.max_string_len).map(Value::String),
            b'{' => self.object(depth.checked_sub(1)?).map(Value::Object),
            b'[' => self.array(depth.checked_sub(1)?).map(Value::Array),
            _ => {
                let is_over =
                    |byte: &u8| matches!(byte, b',' | b'}' | b']') || is_whitespace(*byte);
                let end = self.rest.iter().position(is_over);
                serde_json::from_slice(self.take(end.unwrap_or(self.rest.len()))).ok()
            }
        }
    }

    fn object(&mut self, depth: usize) -> Option<Map<String, Value>> {
        let mut object = Map::new();
        self.take(1);
        while self.next_item_or_end(b'}')? {
            let name = self.text(usize::MAX)?;
            self.skip_whitespace();
            self.rest = self.rest.strip_prefix(b":")?;
            object.insert(name, self.value(depth)?);
        }
        Some(object)
    }

    fn array(&mut self, depth: usize) -> Option<Vec<Value>> {
        let mut array = Vec::new();
        self.take(1);
        while self.next_item_or_end(b']')? {
            array.push(self.value(depth)?);
        }
        Some(array)
    }

    fn text(&mut self, max_string_len: usize) -> Option<String> {
        let (end, has_escapes) = string_end(self.rest, 0)?;
        let text = self.take(end);
        if has_escapes {
            // Decoded whatever its length: serde_json rejects unpaired surrogates, and so must this.
            return serde_json::from_slice(text).ok();
        }
        let inside = &text[1..end - 1];
        if inside.len() > max_string_len {
            return Some(String::new());
        }
        String::from_utf8(inside.to_vec()).ok()
    }

    /// Skips the comma before the next item and returns true, or consumes the closing bracket and returns false.
    fn next_item_or_end(&mut self, closing: u8) -> Option<bool> {
        self.skip_whitespace();
        let is_over = *self.rest.first()? == closing;
        if is_over || self.rest[0] == b',' {
            self.take(1);
            self.skip_whitespace();
        }
        Some(!is_over)
    }

    fn skip_whitespace(&mut self) {
        while self.rest.first().is_some_and(|byte| is_whitespace(*byte)) {
            self.rest = &self.rest[1..];
        }
    }

    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }
}

fn is_whitespace(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

/// The depth limit of `serde_json`.
const MAX_DEPTH: usize = 127;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn unlimited_outline(text: &str) -> Option<Value> {
        outline(&Json::parse(text.to_owned()).unwrap(), usize::MAX)
    }

    #[test]
    fn an_outline_without_a_limit_equals_the_decoded_value() {
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

            assert_eq!(unlimited_outline(text), serde, "{text}");
        }
    }

    #[test]
    fn the_depth_limit_is_that_of_serde() {
        for depth in [126, 127, 128, 129] {
            let text = "[".repeat(depth) + &"]".repeat(depth);
            let serde: Option<Value> = serde_json::from_str(&text).ok();

            assert_eq!(
                unlimited_outline(&text).is_some(),
                serde.is_some(),
                "{depth}"
            );
        }
    }

    #[test]
    fn long_strings_become_empty() {
        let long = "x".repeat(11);
        let json = Json::from(json!({"a": [long, "just right"], (long.clone()): 1}));

        let outlined = outline(&json, "just right".len());

        assert_eq!(outlined, Some(json!({"a": ["", "just right"], (long): 1})));
    }

    #[test]
    fn invalid_json_has_no_outline() {
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
