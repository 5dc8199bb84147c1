//! Replaces `validation` without the feature `validate`: every value is valid, except unknown arguments of a tool that
//! refuses them.

use bowline_core::json::Object;
use bowline_types::Json;
use serde_json::Value;

use super::argument_names::ArgumentNames;

#[derive(Debug)]
pub(super) struct SchemaValidators {
    /// The names of the arguments, if others are refused.
    names: Option<ArgumentNames>,
}

impl SchemaValidators {
    #[allow(
        clippy::unnecessary_wraps,
        reason = "the signature of the validating version"
    )]
    pub(super) fn compile(input: &Json, _: Option<&Json>) -> Result<Self, String> {
        let schema: Value = input.decode().unwrap_or_default();
        let names = is_closed(&schema).then(|| ArgumentNames::of(&schema));
        Ok(Self { names })
    }

    pub(super) fn arguments(&self, arguments: &Json) -> Result<(), String> {
        let (Some(names), Ok(given)) = (&self.names, Object::read(arguments)) else {
            return Ok(());
        };
        let mut unknown = given.iter().filter(|(name, _)| !names.contains(name));
        match unknown.next() {
            Some((name, _)) => Err(names.unknown(name)),
            None => Ok(()),
        }
    }

    #[allow(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "the signature of the validating version"
    )]
    pub(super) fn output(&self, _: &Json) -> Result<(), String> {
        Ok(())
    }
}

/// Returns whether the schema refuses members that [`ArgumentNames::of`] does not collect.
fn is_closed(schema: &Value) -> bool {
    let refuses = |keyword| schema.get(keyword) == Some(&Value::Bool(false));
    let others = [
        "patternProperties",
        "$ref",
        "$dynamicRef",
        "if",
        "dependentSchemas",
    ];
    (refuses("additionalProperties") || refuses("unevaluatedProperties"))
        && !others.iter().any(|keyword| schema.get(keyword).is_some())
}
