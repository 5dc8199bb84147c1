//! Checking JSON against a schema that a server wrote.
//!
//! A schema and a value are applied to each other only if that takes a bounded number of steps: otherwise the check
//! is skipped, and a warning says so. A server that wants its output unchecked need not go to such lengths, it has
//! only to declare no schema.

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
    /// Reads a schema; `None`, and a word in the log, if it is unusable.
    pub(super) fn read(text: &Json) -> Option<Self> {
        let length = text.as_bytes().len();
        if length > MAX_SCHEMA {
            tracing::warn!(
                length,
                "a tool's output schema exceeds the limit of {MAX_SCHEMA} bytes and is not applied"
            );
            return None;
        }
        let text: Value = text.decode().ok()?;
        let references = count_references(&text);
        if references > MAX_REFERENCES {
            tracing::warn!(
                references,
                "a tool's output schema exceeds the limit of {MAX_REFERENCES} references and is not applied"
            );
            return None;
        }
        let is_plain = references == 0 && !contains_member(&text, "unevaluated");
        let plain_size = is_plain.then(|| size(&text));
        let patterns = PatternOptions::fancy_regex()
            .backtrack_limit(MAX_BACKTRACKS)
            .size_limit(MAX_PATTERN);
        match jsonschema::options()
            .with_pattern_options(patterns)
            .build(&text)
        {
            Ok(validator) => Some(Self {
                text,
                plain_size,
                validator,
            }),
            Err(error) => {
                let error = shortened(&error);
                tracing::warn!(
                    error,
                    "a tool's output schema is unusable and is not applied"
                );
                None
            }
        }
    }

    /// Says why `value` does not fit, if it does not.
    pub(super) fn check(&self, text: &str) -> Result<(), String> {
        let value: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
        if !self.is_surely_quick(text, &value)
            && let Err(TooMuchWork) = check_work(&self.text, &value, MAX_STEPS)
        {
            tracing::warn!(
                "checking a tool's output exceeds the limit of {MAX_STEPS} steps; it is not checked"
            );
            return Ok(());
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

/// How many references there are, and names of the places that they lead to: a name below the root may change what
/// a reference means, so that one is too many.
fn count_references(schema: &Value) -> usize {
    fn count(value: &Value, depth: usize) -> usize {
        match value {
            Value::Array(items) => items.iter().map(|item| count(item, depth + 1)).sum(),
            Value::Object(members) => members
                .iter()
                .map(|(name, value)| {
                    let here = match (name.as_str(), value) {
                        ("$ref", Value::String(_)) => 1,
                        ("$id" | "id", Value::String(_)) if depth > 0 => MAX_REFERENCES + 1,
                        _ => 0,
                    };
                    here + count(value, depth + 1)
                })
                .sum(),
            _ => 0,
        }
    }
    count(schema, 0)
}

/// How long an output schema may be, in bytes: 256 KiB.
const MAX_SCHEMA: usize = 256 * 1024;
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
