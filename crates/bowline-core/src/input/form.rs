//! Validation of elicitation content against the requested schema.

mod format;

use std::collections::BTreeMap;

use bowline_types::{
    ElicitSchema, EnumSchema, Json, NumberKind, NumberSchema, PrimitiveSchemaDefinition,
    StringSchema, TitledValue,
};
use serde_json::{Number, Value};

/// The content of an elicitation result does not match the requested schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidFormContent {
    /// The content is not a JSON object.
    #[error("expected an object")]
    NotAnObject,
    /// A field is invalid.
    #[error("the field `{field}` {why}")]
    Field {
        /// The name of the field.
        field: String,
        /// The rule that it breaks.
        why: String,
    },
}

/// Validates elicitation content against the requested schema: required fields, types, lengths, ranges, formats, enums.
///
/// Fields that the schema does not have, and fields with a schema that Bowline does not know, are not checked.
///
/// # Errors
///
/// If a field is invalid or missing; the first one is reported.
///
/// # Examples
///
/// ```
/// use bowline_core::input::check_form;
/// use bowline_types::{ElicitSchema, Json};
///
/// let form: ElicitSchema = serde_json::from_str(
///     r#"{"type": "object", "properties": {"age": {"type": "integer", "minimum": 0}}, "required": ["age"]}"#,
/// )?;
/// assert!(check_form(&form, &Json::parse(r#"{"age": 36}"#)?).is_ok());
/// let error = check_form(&form, &Json::parse(r#"{"age": -1}"#)?).unwrap_err();
/// assert_eq!(error.to_string(), "the field `age` must be at least 0");
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn check_form(form: &ElicitSchema, content: &Json) -> Result<(), InvalidFormContent> {
    if !content.is_object() {
        return Err(InvalidFormContent::NotAnObject);
    }
    let filled: BTreeMap<String, Value> = content
        .decode()
        .map_err(|_| InvalidFormContent::NotAnObject)?;
    let invalid = |field: &str, why: String| {
        let field = field.to_owned();
        InvalidFormContent::Field { field, why }
    };
    for name in form.required.iter().flatten() {
        if !filled.contains_key(name) {
            return Err(invalid(name, "is required".to_owned()));
        }
    }
    for (name, field) in &form.properties.0 {
        if let Some(value) = filled.get(name) {
            check_field(field, value).map_err(|why| invalid(name, why))?;
        }
    }
    Ok(())
}

fn check_field(field: &PrimitiveSchemaDefinition, value: &Value) -> Result<(), String> {
    match (field, value) {
        (PrimitiveSchemaDefinition::String(schema), Value::String(text)) => {
            check_text(schema, text)
        }
        (PrimitiveSchemaDefinition::String(_), _) => Err("must be a string".to_owned()),
        (PrimitiveSchemaDefinition::Number(schema), Value::Number(number)) => {
            check_number(schema, number)
        }
        (PrimitiveSchemaDefinition::Number(_), _) => Err("must be a number".to_owned()),
        (PrimitiveSchemaDefinition::Boolean(_), Value::Bool(_)) => Ok(()),
        (PrimitiveSchemaDefinition::Boolean(_), _) => Err("must be a boolean".to_owned()),
        (PrimitiveSchemaDefinition::Enum(schema), value) => check_choice(schema, value),
        // A schema of a later revision.
        _ => Ok(()),
    }
}

fn check_text(schema: &StringSchema, text: &str) -> Result<(), String> {
    // JSON Schema counts characters, not bytes.
    let length = u64::try_from(text.chars().count()).unwrap_or(u64::MAX);
    if let Some(min) = schema.min_length.filter(|min| length < *min) {
        return Err(format!("must have at least {min} characters"));
    }
    if let Some(max) = schema.max_length.filter(|max| length > *max) {
        return Err(format!("must have at most {max} characters"));
    }
    match &schema.format {
        Some(format) if !format::fits(format.as_str(), text) => {
            Err(format!("must have the format `{}`", format.as_str()))
        }
        _ => Ok(()),
    }
}

fn check_number(schema: &NumberSchema, number: &Number) -> Result<(), String> {
    if schema.kind == NumberKind::Integer && !number.as_f64().is_some_and(is_whole) {
        return Err("must be an integer".to_owned());
    }
    let is_less = |one: &Number, other: &Number| match (as_integer(one), as_integer(other)) {
        (Some(one), Some(other)) => one < other,
        _ => one.as_f64() < other.as_f64(),
    };
    if let Some(min) = &schema.minimum
        && is_less(number, min)
    {
        return Err(format!("must be at least {min}"));
    }
    if let Some(max) = &schema.maximum
        && is_less(max, number)
    {
        return Err(format!("must be at most {max}"));
    }
    Ok(())
}

fn as_integer(number: &Number) -> Option<i128> {
    let unsigned = number.as_u64().map(i128::from);
    unsigned.or_else(|| number.as_i64().map(i128::from))
}

fn is_whole(number: f64) -> bool {
    number.fract() == 0.0
}

fn check_choice(schema: &EnumSchema, value: &Value) -> Result<(), String> {
    let values = |titled: &[TitledValue]| -> Vec<String> {
        titled.iter().map(|it| it.value.clone()).collect()
    };
    match schema {
        EnumSchema::UntitledSingleSelect(one) => check_one(&one.values, value),
        EnumSchema::LegacyTitled(one) => check_one(&one.values, value),
        EnumSchema::TitledSingleSelect(one) => check_one(&values(&one.one_of), value),
        EnumSchema::UntitledMultiSelect(many) => {
            check_several(&many.items.values, many.min_items, many.max_items, value)
        }
        EnumSchema::TitledMultiSelect(many) => {
            let choices = values(&many.items.any_of);
            check_several(&choices, many.min_items, many.max_items, value)
        }
        _ => Ok(()),
    }
}

fn check_one(choices: &[String], value: &Value) -> Result<(), String> {
    match value.as_str() {
        Some(chosen) if choices.iter().any(|choice| choice == chosen) => Ok(()),
        _ => Err("must be one of the allowed values".to_owned()),
    }
}

fn check_several(
    choices: &[String],
    min: Option<u64>,
    max: Option<u64>,
    value: &Value,
) -> Result<(), String> {
    let Value::Array(chosen) = value else {
        return Err("must be a list of allowed values".to_owned());
    };
    let count = u64::try_from(chosen.len()).unwrap_or(u64::MAX);
    if let Some(min) = min.filter(|min| count < *min) {
        return Err(format!("must have at least {min} items"));
    }
    if let Some(max) = max.filter(|max| count > *max) {
        return Err(format!("must have at most {max} items"));
    }
    // A set: searching a list for each value is quadratic, and both lists may be long.
    let choices: std::collections::BTreeSet<&str> = choices.iter().map(String::as_str).collect();
    let is_choice = |value: &Value| value.as_str().is_some_and(|it| choices.contains(it));
    match chosen.iter().all(is_choice) {
        true => Ok(()),
        false => Err("must be a list of allowed values".to_owned()),
    }
}

#[cfg(test)]
mod tests;
