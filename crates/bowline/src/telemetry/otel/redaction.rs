//! [`Redaction`], what is recorded of the arguments and results of tool calls.

use std::fmt;
use std::sync::Arc;

use bowline_types::Json;
use serde_json::Value;

/// The arguments or the result of a tool call, before redaction.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Payload<'a> {
    /// Whether it is the arguments or the result.
    pub kind: PayloadKind,
    /// The name of the tool.
    pub tool: &'a str,
    /// The JSON text.
    pub json: &'a Json,
}

/// The kind of a [`Payload`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "a call has arguments and a result")]
pub enum PayloadKind {
    /// The arguments of a call.
    Arguments,
    /// The result of a call.
    Result,
}

/// Decides what is recorded of the arguments and results of tool calls; see
/// [`Telemetry::record_payloads`](super::Telemetry::record_payloads). At most 8 KiB of each are recorded.
///
/// # Examples
///
/// ```
/// use bowline::telemetry::{PayloadKind, Redaction};
///
/// // The arguments of one tool as they are, and nothing else.
/// let redaction = Redaction::custom(|payload| {
///     let is_safe = payload.tool == "add" && payload.kind == PayloadKind::Arguments;
///     is_safe.then(|| payload.json.to_string())
/// });
/// ```
#[derive(Clone)]
pub struct Redaction(Arc<RedactFn>);

/// Returns the text to record, if any.
type RedactFn = dyn Fn(Payload<'_>) -> Option<String> + Send + Sync;

impl Redaction {
    /// Keeps the names of members and replaces every value by its type: `{"city":"string","days":"number"}`.
    #[must_use]
    pub fn types_only() -> Self {
        Self::custom(|payload| {
            let value: Value = payload.json.decode().ok()?;
            serde_json::to_string(&types_of(&value)).ok()
        })
    }

    /// Records what `redact` returns; nothing if it returns `None`. It is called for each call whose span is recorded.
    #[must_use]
    pub fn custom(redact: impl Fn(Payload<'_>) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(redact))
    }

    pub(super) fn apply(&self, kind: PayloadKind, tool: &str, json: &Json) -> Option<String> {
        let mut text = (self.0)(Payload { kind, tool, json })?;
        if text.len() > MAX_LEN {
            text.truncate(text.floor_char_boundary(MAX_LEN));
            text.push('…');
        }
        Some(text)
    }
}

impl fmt::Debug for Redaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redaction").finish_non_exhaustive()
    }
}

fn types_of(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let types = members
                .iter()
                .map(|(name, value)| (name.clone(), types_of(value)));
            Value::Object(types.collect())
        }
        // The elements of a list usually have one type.
        Value::Array(elements) => Value::Array(elements.iter().take(1).map(types_of).collect()),
        Value::String(_) => "string".into(),
        Value::Number(_) => "number".into(),
        Value::Bool(_) => "boolean".into(),
        Value::Null => Value::Null,
    }
}

/// The most bytes of a payload that are recorded.
const MAX_LEN: usize = 8 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_only_keeps_no_value() {
        let json = Json::parse(r#"{"city":"Bergen","days":[1,2],"deep":{"key":true,"no":null}}"#);

        let text = Redaction::types_only().apply(PayloadKind::Arguments, "t", &json.unwrap());

        let expected = r#"{"city":"string","days":["number"],"deep":{"key":"boolean","no":null}}"#;
        assert_eq!(text.unwrap(), expected);
    }

    #[test]
    fn a_long_payload_is_truncated_between_characters() {
        let redaction = Redaction::custom(|_| Some("é".repeat(MAX_LEN)));

        let text = redaction.apply(PayloadKind::Result, "t", &Json::null());

        assert_eq!(text.unwrap().len(), MAX_LEN + "…".len());
    }
}
