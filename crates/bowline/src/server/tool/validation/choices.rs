//! Errors of `oneOf` and `anyOf`, which enums of Rust become: names the variants, or explains the one that was chosen.

use bowline_core::shortened;
use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind;
use serde_json::Value;

use super::{error_text, located};
use crate::server::tool::argument_names::{listed, quoted_list};

/// Describes the errors of a value that fits none of the choices; `None` if the error is another one.
pub(super) fn describe(root: &Value, error: &ValidationError<'_>) -> Option<Vec<String>> {
    describe_at(root, error, MAX_DEPTH)
}

fn describe_at(root: &Value, error: &ValidationError<'_>, depth: usize) -> Option<Vec<String>> {
    let (ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context }) =
        error.kind()
    else {
        return None;
    };
    let choices = root.pointer(error.schema_path().as_str())?.as_array()?;
    let choices: Vec<(usize, Variant<'_>)> = choices
        .iter()
        .map(|choice| Variant::of(resolved(root, choice)))
        .enumerate()
        .filter(|(_, variant)| !matches!(variant, Variant::Null))
        .collect();
    let chosen = match &choices[..] {
        [(only, _)] => Some(*only),
        choices => choices
            .iter()
            .find(|(_, variant)| variant.is_chosen_by(error.instance()))
            .map(|(position, _)| *position),
    };
    let depth = depth.checked_sub(1)?;
    if let Some(errors) = chosen.and_then(|chosen| context.get(chosen)) {
        let texts = errors.iter().flat_map(|error| {
            describe_at(root, error, depth).unwrap_or_else(|| vec![error_text(error)])
        });
        // Lazily, so that nested choices cost no more than the texts that are shown.
        return Some(texts.take(super::MAX_ERRORS).collect());
    }
    let text = expected(&choices, error.instance());
    Some(vec![located(error, text)])
}

/// What identifies one of the choices.
enum Variant<'a> {
    /// `null`, which a value that is not `null` is not meant to be.
    Null,
    /// An object with a member of this constant value: `#[serde(tag = "…")]`.
    Tagged(&'a str, &'a str),
    /// An object with only this member: a variant with fields.
    Keyed(&'a str),
    /// One of these texts: variants without fields.
    Names(Vec<&'a str>),
    /// Another schema: `#[serde(untagged)]`.
    Untagged(&'a Value),
}

impl<'a> Variant<'a> {
    fn of(schema: &'a Value) -> Self {
        if schema.get("type").is_some_and(|name| name == "null") {
            return Self::Null;
        }
        if let Some(name) = schema.get("const").and_then(Value::as_str) {
            return Self::Names(vec![name]);
        }
        if let Some(names) = schema.get("enum").and_then(Value::as_array) {
            return Self::Names(names.iter().filter_map(Value::as_str).collect());
        }
        let Some(members) = schema.get("properties").and_then(Value::as_object) else {
            return Self::Untagged(schema);
        };
        let tag = members
            .iter()
            .find_map(|(name, member)| Some((name.as_str(), only_value(member)?)));
        if let Some((name, value)) = tag {
            return Self::Tagged(name, value);
        }
        let is_closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
        match members.keys().next() {
            Some(name) if members.len() == 1 && is_closed => Self::Keyed(name),
            _ => Self::Untagged(schema),
        }
    }

    fn is_chosen_by(&self, value: &Value) -> bool {
        match self {
            Self::Tagged(name, tag) => value.get(name).is_some_and(|value| value == tag),
            Self::Keyed(name) => value.get(name).is_some(),
            Self::Null | Self::Names(_) | Self::Untagged(_) => false,
        }
    }
}

/// Returns the only text that the schema accepts: `const`, or an `enum` of one.
fn only_value(schema: &Value) -> Option<&str> {
    match schema.get("enum").and_then(Value::as_array) {
        Some(values) if values.len() == 1 => values[0].as_str(),
        Some(_) => None,
        None => schema.get("const")?.as_str(),
    }
}

fn expected(choices: &[(usize, Variant<'_>)], value: &Value) -> String {
    let variants = choices.iter().map(|(_, variant)| variant);
    if let Some(Variant::Tagged(tag, _)) = variants.clone().next()
        && let Some(values) = variants
            .clone()
            .map(|variant| match variant {
                Variant::Tagged(name, value) if name == tag => Some(*value),
                _ => None,
            })
            .collect::<Option<Vec<_>>>()
    {
        let got = match value.get(tag) {
            Some(got) => format!("got {}", shortened(got)),
            None if value.is_object() => "it is missing".to_owned(),
            None => format!("got {}", shortened(value)),
        };
        return format!(
            "expected `{tag}` to be one of {}; {got}",
            quoted_list(&values)
        );
    }
    let described: Vec<String> = variants.flat_map(descriptions).collect();
    format!(
        "expected one of {}; got {}",
        listed(described.into_iter()),
        shortened(value)
    )
}

fn descriptions(variant: &Variant<'_>) -> Vec<String> {
    match variant {
        Variant::Null => Vec::new(),
        Variant::Names(names) => names.iter().map(|name| format!("`\"{name}\"`")).collect(),
        Variant::Keyed(name) => vec![format!("`{{\"{name}\": …}}`")],
        Variant::Tagged(name, value) => vec![format!("an object with `\"{name}\": \"{value}\"`")],
        Variant::Untagged(schema) => vec![kind_of(schema)],
    }
}

fn kind_of(schema: &Value) -> String {
    let required = schema.get("required").and_then(Value::as_array);
    let required = required.into_iter().flatten().filter_map(Value::as_str);
    let required: Vec<&str> = required.collect();
    match schema.get("type").and_then(Value::as_str) {
        Some("object") if !required.is_empty() => {
            format!("an object with {}", quoted_list(&required))
        }
        Some(kind @ ("object" | "array" | "integer")) => format!("an {kind}"),
        Some(kind) => format!("a {kind}"),
        None => "another form".to_owned(),
    }
}

/// Follows a reference of a recursive type.
fn resolved<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let reference = schema.get("$ref").and_then(Value::as_str);
    let pointer = reference.and_then(|reference| reference.strip_prefix('#'));
    pointer
        .and_then(|pointer| root.pointer(pointer))
        .unwrap_or(schema)
}

/// Of choices within choices; deeper errors have the text of `jsonschema`.
const MAX_DEPTH: usize = 8;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nested_choices_are_described_no_further_than_they_are_shown() {
        let list = |of: Value| json!({"oneOf": [{"type": "array", "items": of}]});
        let schema = list(list(list(json!({"type": "integer"}))));
        let row = vec!["x"; 20];
        let value = json!([[row, row], vec![row; 20]]);
        let validator = jsonschema::validator_for(&schema).unwrap();
        let error = validator.iter_errors(&value).next().unwrap();

        let described = describe(&schema, &error).unwrap();

        assert_eq!(described.len(), super::super::MAX_ERRORS);
        assert_eq!(described[0], "/0/0/0: \"x\" is not of type \"integer\"");
    }
}
