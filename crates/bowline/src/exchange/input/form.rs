//! [`Form`], a Rust type as the form of an elicitation, and [`form_of`], which derives its `requestedSchema`.
//!
//! The specification restricts it to a flat object whose members are strings, numbers, booleans or enums. A type with
//! other fields is rejected, naming the field, before the client is asked.

use bowline_types::{ElicitSchema, FormFields, PrimitiveSchemaDefinition};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// A type that [`Context::elicit`](crate::Context::elicit) can request: its fields are the fields of a form.
///
/// It is implemented for all types that derive `Deserialize` and `JsonSchema`. What fields a form may have is checked
/// when it is requested.
///
/// # Examples
///
/// ```
/// use bowline::Context;
/// use bowline::exchange::{Form, InputError};
/// use bowline::schemars::{self, JsonSchema};
///
/// #[derive(serde::Deserialize, JsonSchema)]
/// struct Name {
///     name: String,
/// }
///
/// async fn ask<T: Form>(cx: &Context, question: &str) -> Result<T, InputError> {
///     cx.elicit("question", question).await
/// }
///
/// async fn name(cx: &Context) -> Result<String, InputError> {
///     Ok(ask::<Name>(cx, "Who are you?").await?.name)
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a form",
    label = "the fields of the form are not known",
    note = "derive `serde::Deserialize` and `bowline::schemars::JsonSchema`"
)]
pub trait Form: DeserializeOwned + JsonSchema + 'static {}

// Otherwise the compiler reports a missing `JsonSchema` without the note of `Form`.
#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned + JsonSchema + 'static> Form for T {}

/// A type that cannot be represented as the form of an elicitation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormTypeError {
    /// The type is not a struct with named fields.
    #[error("expected a struct with named fields, got `{name}`")]
    NotAnObject {
        /// The type.
        name: String,
    },
    /// A field is not a string, number, boolean or enum.
    #[error(
        "field `{field}` of `{name}` must be a string, a number, a boolean or an enum of strings"
    )]
    Field {
        /// The type.
        name: String,
        /// The field.
        field: String,
    },
}

/// Returns the form for a `T`, with required fields first.
pub(super) fn form_of<T: JsonSchema>() -> Result<ElicitSchema, FormTypeError> {
    let settings = SchemaSettings::draft2020_12().with(|it| it.inline_subschemas = true);
    let schema = settings.into_generator().into_root_schema_for::<T>();
    read_form(&T::schema_name(), schema.to_value())
}

fn read_form(name: &str, schema: Value) -> Result<ElicitSchema, FormTypeError> {
    let not_an_object = || FormTypeError::NotAnObject { name: name.into() };
    let Value::Object(mut schema) = schema else {
        return Err(not_an_object());
    };
    if schema.get("type") != Some(&Value::from("object")) {
        return Err(not_an_object());
    }
    let Some(Value::Object(properties)) = schema.remove("properties") else {
        return Err(not_an_object());
    };
    let required: Vec<String> = match schema.remove("required") {
        Some(required) => serde_json::from_value(required).map_err(|_| not_an_object())?,
        None => Vec::new(),
    };
    let mut fields = Vec::new();
    for (field, schema) in properties {
        let definition = read_field(schema).ok_or_else(|| FormTypeError::Field {
            name: name.into(),
            field: field.clone(),
        })?;
        fields.push((field, definition));
    }
    let position = |name: &str| required.iter().position(|it| it == name);
    fields.sort_by_key(|(name, _)| position(name).unwrap_or(usize::MAX));
    let mut form = ElicitSchema::new();
    form.properties = FormFields(fields);
    form.required = (!required.is_empty()).then_some(required);
    Ok(form)
}

fn read_field(schema: Value) -> Option<PrimitiveSchemaDefinition> {
    let schema = to_form_subset(schema)?;
    match serde_json::from_value(Value::Object(schema)).ok()? {
        PrimitiveSchemaDefinition::Unknown(_) => None,
        known => Some(known),
    }
}

/// Rewrites the schema of a field into the subset that forms allow. An optional field is one that is not `required`; it
/// is never `null`.
fn to_form_subset(schema: Value) -> Option<Map<String, Value>> {
    let Value::Object(mut schema) = schema else {
        return None;
    };
    if let Some(Value::Array(either)) = schema.remove("anyOf") {
        let mut others = either.into_iter().filter(|it| !is_null_schema(it));
        let (Some(Value::Object(only)), None) = (others.next(), others.next()) else {
            return None;
        };
        for (keyword, value) in only {
            schema.entry(keyword).or_insert(value);
        }
    }
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|it| it != "null");
        let (Some(only), true) = (types.first().cloned(), types.len() == 1) else {
            return None;
        };
        schema.insert("type".into(), only);
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.retain(|it| !it.is_null());
    }
    if let Some(Value::Array(variants)) = schema.remove("oneOf") {
        schema.insert("type".into(), "string".into());
        schema.insert("oneOf".into(), titled_choices(variants)?);
    }
    if let Some(value) = schema.remove("const") {
        schema.insert("enum".into(), json!([value]));
    }
    if let Some(items) = schema.remove("items") {
        let mut items = to_form_subset(items)?;
        if let Some(variants) = items.remove("oneOf") {
            items.insert("anyOf".into(), variants);
        }
        schema.insert("items".into(), Value::Object(items));
    }
    let is_text = schema.get("type") == Some(&Value::from("string"));
    schema.retain(|keyword, value| match keyword.as_str() {
        "default" => !value.is_null(),
        "format" => is_text && FORMATS.iter().any(|format| value == format),
        _ => true,
    });
    Some(schema)
}

fn is_null_schema(schema: &Value) -> bool {
    schema.get("type") == Some(&Value::from("null"))
}

/// Converts the variants of a documented `enum`. schemars emits a `const` for each variant with a doc comment, and one
/// `enum` list for the others.
fn titled_choices(variants: Vec<Value>) -> Option<Value> {
    let mut choices = Vec::new();
    for variant in variants {
        if is_null_schema(&variant) {
            continue;
        }
        if let Some(Value::Array(values)) = variant.get("enum") {
            choices.extend(
                values
                    .iter()
                    .map(|value| json!({"const": value, "title": value})),
            );
            continue;
        }
        let value = variant.get("const").filter(|value| value.is_string())?;
        let title = variant.get("title").or_else(|| variant.get("description"));
        choices.push(json!({"const": value, "title": title.unwrap_or(value)}));
    }
    Some(Value::Array(choices))
}

/// The string formats that forms allow. Others are omitted and checked when the answer is decoded.
const FORMATS: [&str; 4] = ["email", "uri", "date", "date-time"];

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(JsonSchema)]
    #[allow(dead_code, reason = "only its schema is of interest")]
    struct Booking {
        /// Who is coming.
        name: String,
        #[schemars(range(min = 1, max = 9))]
        guests: u8,
        #[serde(default)]
        vegan: bool,
        tip: Option<f64>,
        seat: Seat,
        drink: Option<Drink>,
        extras: Vec<Drink>,
        #[schemars(email)]
        mail: Option<String>,
    }

    #[derive(JsonSchema)]
    #[allow(dead_code, reason = "only its schema is of interest")]
    enum Seat {
        /// With a view.
        Window,
        Aisle,
    }

    #[derive(JsonSchema)]
    #[allow(dead_code, reason = "only its schema is of interest")]
    #[serde(rename_all = "lowercase")]
    enum Drink {
        Tea,
        Coffee,
    }

    #[test]
    fn every_kind_of_field_is_converted() {
        let form = form_of::<Booking>().unwrap();

        assert_eq!(
            serde_json::to_value(&form).unwrap(),
            json!({
                "type": "object",
                "properties": {
                    "name": {"type": "string", "description": "Who is coming."},
                    "guests": {"type": "integer", "minimum": 1, "maximum": 9},
                    "seat": {"type": "string", "oneOf": [
                        {"const": "Aisle", "title": "Aisle"},
                        {"const": "Window", "title": "With a view."},
                    ]},
                    "extras": {"type": "array", "items": {"type": "string", "enum": ["tea", "coffee"]}},
                    "vegan": {"type": "boolean", "default": false},
                    "tip": {"type": "number"},
                    "drink": {"type": "string", "enum": ["tea", "coffee"]},
                    "mail": {"type": "string", "format": "email"},
                },
                "required": ["name", "guests", "seat", "extras"],
            })
        );
    }

    #[test]
    fn required_fields_come_first_in_the_order_of_the_type() {
        let form = form_of::<Booking>().unwrap();

        let names: Vec<_> = form.properties.0.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names[..4], ["name", "guests", "seat", "extras"]);
    }

    #[test]
    fn a_nested_struct_is_rejected_with_the_name_of_its_field() {
        #[derive(JsonSchema)]
        #[allow(dead_code, reason = "only its schema is of interest")]
        struct Trip {
            from: String,
            booking: Booking,
        }

        let error = form_of::<Trip>().unwrap_err();

        assert_eq!(
            error.to_string(),
            "field `booking` of `Trip` must be a string, a number, a boolean or an enum of strings"
        );
    }

    #[test]
    fn a_list_of_strings_is_rejected() {
        #[derive(JsonSchema)]
        #[allow(dead_code, reason = "only its schema is of interest")]
        struct Tags {
            tags: Vec<String>,
        }

        assert!(
            matches!(form_of::<Tags>(), Err(FormTypeError::Field { field, .. }) if field == "tags")
        );
    }

    #[test]
    fn a_type_that_is_not_a_struct_is_rejected() {
        assert!(matches!(
            form_of::<String>(),
            Err(FormTypeError::NotAnObject { .. })
        ));
        assert!(matches!(
            form_of::<Seat>(),
            Err(FormTypeError::NotAnObject { .. })
        ));
    }
}
