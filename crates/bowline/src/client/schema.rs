//! Checking JSON against a schema.

use bowline_types::Json;
use jsonschema::Validator;

/// A JSON Schema, ready for use. What it refers to elsewhere is never fetched.
pub(super) struct Schema(Validator);

impl Schema {
    /// Reads a schema; `None`, and a word in the log, if it is unusable.
    pub(super) fn read(text: &Json) -> Option<Self> {
        let schema: serde_json::Value = text.decode().ok()?;
        match jsonschema::validator_for(&schema) {
            Ok(validator) => Some(Self(validator)),
            Err(error) => {
                tracing::warn!(%error, "a tool's output schema is unusable and is not applied");
                None
            }
        }
    }

    /// Says why `value` does not fit, if it does not.
    pub(super) fn check(&self, value: &str) -> Result<(), String> {
        let value: serde_json::Value = serde_json::from_str(value).map_err(|e| e.to_string())?;
        self.0.validate(&value).map_err(|error| error.to_string())
    }
}
