//! Validates JSON against the schema of an untrusted server.
//!
//! A schema is applied to a value only if that takes a bounded number of steps; otherwise validation fails. A server
//! that does not want its output validated can omit the schema.

mod step_limit;

use bowline_types::Json;
use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use step_limit::{
    BYTES_PER_STEP, MAX_STEPS_PER_PART, StepLimitExceeded, check_step_limit, count_values,
};

/// A compiled JSON Schema. Other documents are never fetched.
pub(super) struct CompiledSchema {
    text: Value,
    /// The number of parts of a schema that applies no part to the same value twice.
    plain_size: Option<usize>,
    validator: Validator,
}

impl CompiledSchema {
    /// Compiles a schema; the error is the reason why it is unusable.
    pub(super) fn read(text: &Json) -> Result<Self, String> {
        if text.as_bytes().len() > MAX_SCHEMA_BYTES {
            return Err(format!("it exceeds the limit of {MAX_SCHEMA_BYTES} bytes"));
        }
        let text: Value = text.decode().map_err(|error| error.to_string())?;
        let parts = count_values(&text);
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
            .size_limit(MAX_REGEX_BYTES);
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

    /// Validates the JSON `text`. Fails, too, if the validation would exceed [`MAX_STEPS`].
    pub(super) fn check(&self, text: &str) -> Result<(), String> {
        let value: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
        if !self.is_trivially_within_limit(text, &value)
            && let Err(StepLimitExceeded) = check_step_limit(&self.text, &value, MAX_STEPS)
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

    /// Returns whether applying every part of the schema to every part of the value is within [`MAX_STEPS`], which
    /// holds for nearly all outputs and makes the walk of [`check_step_limit`] unnecessary.
    fn is_trivially_within_limit(&self, text: &str, value: &Value) -> bool {
        let value_size = count_values(value) + text.len() / BYTES_PER_STEP;
        self.plain_size.is_some_and(|schema_size| {
            schema_size.saturating_mul(value_size) <= MAX_STEPS / MAX_STEPS_PER_PART
        })
    }
}

/// Returns whether some object in `value` has a member whose name begins with `prefix`.
fn contains_member(value: &Value, prefix: &str) -> bool {
    match value {
        Value::Array(items) => items.iter().any(|item| contains_member(item, prefix)),
        Value::Object(members) => members
            .iter()
            .any(|(name, value)| name.starts_with(prefix) || contains_member(value, prefix)),
        _ => false,
    }
}

/// Returns the error text, truncated, because it quotes the value.
fn shortened(error: &jsonschema::ValidationError<'_>) -> String {
    let mut text = error.to_string();
    if let Some((end, _)) = text.char_indices().nth(MAX_ERROR_CHARS) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Counts the references. A reference to another document is an error, because it is never fetched.
fn count_references(schema: &Value) -> Result<usize, String> {
    // Draft 4 has `id` instead of `$id`. In later drafts `id` is an ordinary member.
    let is_draft_4 = |schema: &Value| {
        schema["$schema"]
            .as_str()
            .is_some_and(|it| it.contains("draft-04"))
    };
    let id = if is_draft_4(schema) { "id" } else { "$id" };

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
                        // A nested id changes the base of the references below it.
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

/// The maximum size of an output schema in bytes: 256 KiB.
const MAX_SCHEMA_BYTES: usize = 256 * 1024;
/// The maximum number of subschemas, keywords and values in a schema.
const MAX_PARTS: usize = 20_000;
/// The maximum number of `$ref`s in a schema: a validator takes quadratic time to follow a chain of them.
const MAX_REFERENCES: usize = 256;
/// The maximum number of steps of one validation; a step applies a keyword to a value.
const MAX_STEPS: usize = 1_000_000;
/// The maximum number of backtracking steps of a regular expression.
const MAX_BACKTRACKS: usize = 10_000;
/// The maximum size of a compiled regular expression in bytes.
const MAX_REGEX_BYTES: usize = 256 * 1024;
const MAX_ERROR_CHARS: usize = 300;

#[cfg(test)]
mod tests;
