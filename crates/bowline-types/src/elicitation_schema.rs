//! The fields of an elicitation form: a small part of JSON Schema.
//!
//! A field is told by its `type` and by the keywords it has. One that is not known here is kept, so that
//! a form can be refused with a reason rather than not be read. Fields stay in the order they were
//! written in, for that is the order to show them in.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Number;

use crate::elicitation_choice::Keywords;
use crate::text::open_text;
use crate::{EnumSchema, Json};

/// The fields of a form: the schema of an object without nested objects.
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
    /// The dialect of JSON Schema.
    #[serde(rename = "$schema", default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// The fields.
    pub properties: Fields,
    /// The names of the fields that have to be filled in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required: Option<Vec<String>>,
}

impl ElicitSchema {
    /// A form without fields.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a field that has to be filled in.
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

    /// Adds a field that may be left empty.
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

/// Named fields, in the order to show them in.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "it is a list and nothing else")]
pub struct Fields(pub Vec<(String, PrimitiveSchemaDefinition)>);

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, field)| (name, field)))
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the fields of a form")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}

/// One field of a form.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PrimitiveSchemaDefinition {
    /// A text.
    String(StringSchema),
    /// A number.
    Number(NumberSchema),
    /// Yes or no.
    Boolean(BooleanSchema),
    /// A choice.
    Enum(EnumSchema),
    /// A field that is not known here.
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
        let Ok(keywords) = json.decode::<Keywords>() else {
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

/// A field for a text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "string", rename_all = "camelCase")]
#[non_exhaustive]
pub struct StringSchema {
    /// The name of the field, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What to fill in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The least number of characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_length: Option<u64>,
    /// The greatest number of characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_length: Option<u64>,
    /// What the text is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<StringFormat>,
    /// What the field starts with (from 2025-11-25).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
}

/// What a text is. The set is open: a new format must not spoil a form.
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

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

open_text!(
    StringFormat,
    "a string format",
    [EMAIL, URI, DATE, DATE_TIME]
);

/// A field for a number. Bounds keep their spelling, and whole ones all of their digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NumberSchema {
    /// Whether fractions are allowed.
    #[serde(rename = "type")]
    pub kind: NumberKind,
    /// The name of the field, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What to fill in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The least number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum: Option<Number>,
    /// The greatest number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum: Option<Number>,
    /// What the field starts with (from 2025-11-25).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Number>,
}

impl NumberSchema {
    /// Any number of a kind.
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

/// Whether a number may have a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(clippy::exhaustive_enums, reason = "JSON Schema has these two")]
pub enum NumberKind {
    /// It may.
    Number,
    /// It may not.
    Integer,
}

/// A field for yes or no.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "boolean")]
#[non_exhaustive]
pub struct BooleanSchema {
    /// The name of the field, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What to fill in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What the field starts with.
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
