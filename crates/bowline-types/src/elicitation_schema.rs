//! The fields of an elicitation form: a subset of JSON Schema.
//!
//! The `type` and the keywords of a field select its variant. An unknown field is kept, so that a form can be
//! rejected with a reason instead of a decoding error. Fields keep their order, which is the display order.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Number;

use crate::elicitation_enum::FieldKeywords;
use crate::open_string_enum::open_string_enum;
use crate::{EnumSchema, Json};

/// The schema of a form: an object without nested objects.
///
/// # Examples
///
/// ```
/// use bowline_types::{BooleanSchema, ElicitSchema, StringSchema};
///
/// let schema = ElicitSchema::new()
///     .with_required("name", StringSchema::default())
///     .with_optional("subscribe", BooleanSchema::default());
///
/// assert_eq!(schema.required, Some(vec!["name".to_owned()]));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "object")]
#[non_exhaustive]
pub struct ElicitSchema {
    /// The JSON Schema dialect.
    #[serde(rename = "$schema", default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// The fields.
    pub properties: FormFields,
    /// The names of the required fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required: Option<Vec<String>>,
}

impl ElicitSchema {
    /// Creates a form without fields.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a required field.
    #[must_use]
    pub fn with_required(
        self,
        name: impl Into<String>,
        field: impl Into<PrimitiveSchemaDefinition>,
    ) -> Self {
        let name = name.into();
        let mut schema = self.with_optional(name.clone(), field);
        schema.required.get_or_insert_default().push(name);
        schema
    }

    /// Adds an optional field.
    #[must_use]
    pub fn with_optional(
        mut self,
        name: impl Into<String>,
        field: impl Into<PrimitiveSchemaDefinition>,
    ) -> Self {
        self.properties.0.push((name.into(), field.into()));
        self
    }
}

/// Named fields, in display order.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "a newtype of a list")]
pub struct FormFields(pub Vec<(String, PrimitiveSchemaDefinition)>);

impl Serialize for FormFields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, field)| (name, field)))
    }
}

impl<'de> Deserialize<'de> for FormFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;

        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = FormFields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the fields of a form")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FormFields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(FormFields(fields))
            }
        }

        deserializer.deserialize_map(FieldsVisitor)
    }
}

/// One field of a form.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PrimitiveSchemaDefinition {
    /// A string.
    String(StringSchema),
    /// A number.
    Number(NumberSchema),
    /// A boolean.
    Boolean(BooleanSchema),
    /// A choice of values.
    Enum(EnumSchema),
    /// An unknown field.
    Unknown(Json),
}

impl Serialize for PrimitiveSchemaDefinition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::String(schema) => schema.serialize(serializer),
            Self::Number(schema) => schema.serialize(serializer),
            Self::Boolean(schema) => schema.serialize(serializer),
            Self::Enum(schema) => schema.serialize(serializer),
            Self::Unknown(schema) => schema.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for PrimitiveSchemaDefinition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Json::deserialize(deserializer)?;
        let Ok(keywords) = json.decode::<FieldKeywords>() else {
            return Ok(Self::Unknown(json));
        };
        if let Some(choice) = EnumSchema::read(&keywords, &json) {
            return choice.map(Self::Enum).map_err(D::Error::custom);
        }
        match keywords.kind.as_str() {
            "string" => json.decode().map(Self::String),
            "number" | "integer" => json.decode().map(Self::Number),
            "boolean" => json.decode().map(Self::Boolean),
            _ => Ok(Self::Unknown(json)),
        }
        .map_err(D::Error::custom)
    }
}

impl From<StringSchema> for PrimitiveSchemaDefinition {
    fn from(schema: StringSchema) -> Self {
        Self::String(schema)
    }
}

impl From<NumberSchema> for PrimitiveSchemaDefinition {
    fn from(schema: NumberSchema) -> Self {
        Self::Number(schema)
    }
}

impl From<BooleanSchema> for PrimitiveSchemaDefinition {
    fn from(schema: BooleanSchema) -> Self {
        Self::Boolean(schema)
    }
}

impl<T: Into<EnumSchema>> From<T> for PrimitiveSchemaDefinition {
    fn from(schema: T) -> Self {
        Self::Enum(schema.into())
    }
}

/// A string field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "string", rename_all = "camelCase")]
#[non_exhaustive]
pub struct StringSchema {
    /// The display name of the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The description of the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The minimum length in characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_length: Option<u64>,
    /// The maximum length in characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_length: Option<u64>,
    /// The format of the string.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<StringFormat>,
    /// The default value (from 2025-11-25).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
}

/// The format of a string. The set is open, so that a new format does not invalidate a form.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StringFormat(Cow<'static, str>);

impl StringFormat {
    /// An e-mail address.
    pub const EMAIL: Self = Self(Cow::Borrowed("email"));
    /// A URI.
    pub const URI: Self = Self(Cow::Borrowed("uri"));
    /// A date.
    pub const DATE: Self = Self(Cow::Borrowed("date"));
    /// A date and a time.
    pub const DATE_TIME: Self = Self(Cow::Borrowed("date-time"));

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

open_string_enum!(
    StringFormat,
    "a string format",
    [EMAIL, URI, DATE, DATE_TIME]
);

/// A number field. Bounds keep their spelling, and integers all of their digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NumberSchema {
    /// `number` or `integer`.
    #[serde(rename = "type")]
    pub kind: NumberKind,
    /// The display name of the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The description of the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The minimum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum: Option<Number>,
    /// The maximum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum: Option<Number>,
    /// The default value (from 2025-11-25).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Number>,
}

impl NumberSchema {
    /// Creates a field without bounds.
    #[must_use]
    pub fn new(kind: NumberKind) -> Self {
        Self {
            kind,
            title: None,
            description: None,
            minimum: None,
            maximum: None,
            default: None,
        }
    }
}

/// Whether a number may have a fraction: the `type` of a [`NumberSchema`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(clippy::exhaustive_enums, reason = "JSON Schema has these two")]
pub enum NumberKind {
    /// Any number.
    Number,
    /// An integer.
    Integer,
}

/// A boolean field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "boolean")]
#[non_exhaustive]
pub struct BooleanSchema {
    /// The display name of the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The description of the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The default value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<bool>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_their_order() {
        let text = r#"{"type":"object","properties":{"z":{"type":"boolean"},"a":{"type":"string"}},"required":["z"]}"#;

        let schema: ElicitSchema = serde_json::from_str(text).unwrap();

        assert_eq!(serde_json::to_string(&schema).unwrap(), text);
    }

    #[test]
    fn a_field_that_is_not_known_survives() {
        for text in [
            r#"{"type":"object","properties":{"x":{"type":"string"}}}"#,
            r#"{"type":["string","null"]}"#,
            r#"{"anyOf":[]}"#,
        ] {
            let field: PrimitiveSchemaDefinition = serde_json::from_str(text).unwrap();

            assert!(matches!(field, PrimitiveSchemaDefinition::Unknown(_)));
            assert_eq!(serde_json::to_string(&field).unwrap(), text);
        }
    }

    #[test]
    fn a_format_that_is_not_known_survives() {
        let text = r#"{"type":"string","format":"duration"}"#;

        let field: PrimitiveSchemaDefinition = serde_json::from_str(text).unwrap();

        assert_eq!(serde_json::to_string(&field).unwrap(), text);
    }

    #[test]
    fn the_bounds_of_a_number_keep_their_digits() {
        let text = r#"{"type":"integer","minimum":-9007199254740993,"maximum":10,"default":1.5}"#;

        let field: PrimitiveSchemaDefinition = serde_json::from_str(text).unwrap();

        assert_eq!(serde_json::to_string(&field).unwrap(), text);
    }
}
