//! Checking JSON against a schema that a server wrote.
//!
//! A schema and a value are applied to each other only if that takes a bounded number of steps: otherwise the output counts as
//! unchecked, which is an error. A server that wants its output unchecked has only to declare no schema.

mod work;

use bowline_types::Json;
use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use work::{BYTES_IN_A_STEP, STEPS_OF_A_PART, TooMuchWork, check_work, size};

/// A JSON Schema, ready for use. What it refers to elsewhere is never fetched.
pub(super) struct Schema {
    text: Value,
    /// How large a schema is of which no part meets a value twice.
    plain_size: Option<usize>,
    validator: Validator,
}

impl Schema {
    /// Compiles a schema; the error says why it cannot be used.
    pub(super) fn read(text: &Json) -> Result<Self, String> {
        if text.as_bytes().len() > MAX_SCHEMA {
            return Err(format!("it exceeds the limit of {MAX_SCHEMA} bytes"));
        }
        let text: Value = text.decode().map_err(|error| error.to_string())?;
        let parts = size(&text);
        if parts > MAX_PARTS {
            return Err(format!("it exceeds the limit of {MAX_PARTS} parts"));
        }
        let references = count_references(&text)?;
        if references > MAX_REFERENCES {
            return Err(format!(
                "it exceeds the limit of {MAX_REFERENCES} references"
            ));
        }
        let is_plain = references == 0 && !contains_member(&text, "unevaluated");
        let plain_size = is_plain.then_some(parts);
        let patterns = PatternOptions::fancy_regex()
            .backtrack_limit(MAX_BACKTRACKS)
            .size_limit(MAX_PATTERN);
        let validator = jsonschema::options()
            .with_pattern_options(patterns)
            .build(&text)
            .map_err(|error| shortened(&error))?;
        Ok(Self {
            text,
            plain_size,
            validator,
        })
    }

    /// Validates `value`. Fails, too, if the validation would exceed [`MAX_STEPS`].
    pub(super) fn check(&self, text: &str) -> Result<(), String> {
        let value: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
        if !self.is_surely_quick(text, &value)
            && let Err(TooMuchWork) = check_work(&self.text, &value, MAX_STEPS)
        {
            return Err(format!(
                "the validation exceeds the limit of {MAX_STEPS} steps"
            ));
        }
        if self.validator.is_valid(&value) {
            return Ok(());
        }
        self.validator
            .validate(&value)
            .map_err(|error| shortened(&error))
    }

    /// Whether every part of the schema may meet every part of the value, which takes no walk to find out. It is so
    /// for nearly all.
    fn is_surely_quick(&self, text: &str, value: &Value) -> bool {
        let value_size = size(value) + text.len() / BYTES_IN_A_STEP;
        self.plain_size.is_some_and(|schema_size| {
            schema_size.saturating_mul(value_size) <= MAX_STEPS / STEPS_OF_A_PART
        })
    }
}

/// Whether some object in `value` has a member whose name begins with `prefix`.
fn contains_member(value: &Value, prefix: &str) -> bool {
    match value {
        Value::Array(items) => items.iter().any(|item| contains_member(item, prefix)),
        Value::Object(members) => members
            .iter()
            .any(|(name, value)| name.starts_with(prefix) || contains_member(value, prefix)),
        _ => false,
    }
}

/// The error without most of the value that it quotes.
fn shortened(error: &jsonschema::ValidationError<'_>) -> String {
    let mut text = error.to_string();
    if let Some((end, _)) = text.char_indices().nth(LONGEST_COMPLAINT) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Counts the references. A reference to another document is an error, because it is never fetched.
fn count_references(schema: &Value) -> Result<usize, String> {
    // Draft 4 has `id` for `$id`. In later drafts `id` is an ordinary member.
    let of_draft_4 = |schema: &Value| {
        schema["$schema"]
            .as_str()
            .is_some_and(|it| it.contains("draft-04"))
    };
    let id = if of_draft_4(schema) { "id" } else { "$id" };

    fn count(value: &Value, id: &str, depth: usize) -> Result<usize, String> {
        let mut found = 0;
        match value {
            Value::Array(items) => {
                for item in items {
                    found += count(item, id, depth + 1)?;
                }
            }
            Value::Object(members) => {
                for (name, value) in members {
                    match (name.as_str(), value.as_str()) {
                        ("$ref" | "$dynamicRef" | "$recursiveRef", Some(target))
                            if target.starts_with('#') =>
                        {
                            found += 1;
                        }
                        ("$ref" | "$dynamicRef" | "$recursiveRef", Some(_)) => {
                            return Err("it has a `$ref` to another document".to_owned());
                        }
                        // It may change what a reference means.
                        (name, Some(_)) if depth > 0 && name == id => {
                            return Err(format!("it has an `{id}` below its root"));
                        }
                        _ => {}
                    }
                    found += count(value, id, depth + 1)?;
                }
            }
            _ => {}
        }
        Ok(found)
    }
    count(schema, id, 0)
}

/// How long an output schema may be, in bytes: 256 KiB.
const MAX_SCHEMA: usize = 256 * 1024;
/// How many subschemas, keywords and values it may have.
const MAX_PARTS: usize = 20_000;
/// How many `$ref`s it may have: a validator takes quadratic time to follow a chain of them.
const MAX_REFERENCES: usize = 256;
/// How many steps a check may take; a step is a keyword that meets a value.
const MAX_STEPS: usize = 1_000_000;
/// How often a regular expression may go back in its text.
const MAX_BACKTRACKS: usize = 10_000;
/// How large a compiled regular expression may be, in bytes.
const MAX_PATTERN: usize = 256 * 1024;
const LONGEST_COMPLAINT: usize = 300;

#[cfg(test)]
mod tests;
