//! The fields of an elicitation form: a small part of JSON Schema.
//!
//! A field is told by its `type` and by the keywords it has. One that is not known here is kept, so that
//! a form can be refused with a reason rather than not be read. Fields stay in the order they were
//! written in, for that is the order to show them in.

use std::fmt;

use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Number;

use crate::Json;

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

/// What a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum StringFormat {
    /// An e-mail address.
    Email,
    /// A URI.
    Uri,
    /// A date.
    Date,
    /// A date and a time.
    DateTime,
}

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

/// A field for a choice: of one or of many, with or without titles.
///
/// It covers `SingleSelectEnumSchema` and `MultiSelectEnumSchema`, which are parts of the same union.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EnumSchema {
    /// One of some values.
    UntitledSingleSelect(UntitledSingleSelectEnumSchema),
    /// One of some values with titles (from 2025-11-25).
    TitledSingleSelect(TitledSingleSelectEnumSchema),
    /// Any of some values (from 2025-11-25).
    UntitledMultiSelect(UntitledMultiSelectEnumSchema),
    /// Any of some values with titles (from 2025-11-25).
    TitledMultiSelect(TitledMultiSelectEnumSchema),
    /// One of some values with titles, as 2025-06-18 wrote it.
    LegacyTitled(LegacyTitledEnumSchema),
}

impl EnumSchema {
    /// Reads a choice; nothing if the keywords are not those of one.
    fn read(keywords: &Keywords, json: &Json) -> Option<Result<Self, serde_json::Error>> {
        let items = keywords.items.as_ref();
        Some(match keywords.kind.as_str() {
            "string" if keywords.one_of.is_some() => json.decode().map(Self::TitledSingleSelect),
            "string" if keywords.enum_names.is_some() => json.decode().map(Self::LegacyTitled),
            "string" if keywords.values.is_some() => json.decode().map(Self::UntitledSingleSelect),
            "array" if items.is_some_and(|items| items.any_of.is_some()) => {
                json.decode().map(Self::TitledMultiSelect)
            }
            "array" if items.is_some_and(|items| items.values.is_some()) => {
                json.decode().map(Self::UntitledMultiSelect)
            }
            _ => return None,
        })
    }
}

impl Serialize for EnumSchema {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::UntitledSingleSelect(schema) => schema.serialize(serializer),
            Self::TitledSingleSelect(schema) => schema.serialize(serializer),
            Self::UntitledMultiSelect(schema) => schema.serialize(serializer),
            Self::TitledMultiSelect(schema) => schema.serialize(serializer),
            Self::LegacyTitled(schema) => schema.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for EnumSchema {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Json::deserialize(deserializer)?;
        let keywords = json.decode().map_err(D::Error::custom)?;
        Self::read(&keywords, &json)
            .ok_or_else(|| D::Error::custom("the schema is not that of a choice"))?
            .map_err(D::Error::custom)
    }
}

impl From<UntitledSingleSelectEnumSchema> for EnumSchema {
    fn from(schema: UntitledSingleSelectEnumSchema) -> Self {
        Self::UntitledSingleSelect(schema)
    }
}

impl From<TitledSingleSelectEnumSchema> for EnumSchema {
    fn from(schema: TitledSingleSelectEnumSchema) -> Self {
        Self::TitledSingleSelect(schema)
    }
}

impl From<UntitledMultiSelectEnumSchema> for EnumSchema {
    fn from(schema: UntitledMultiSelectEnumSchema) -> Self {
        Self::UntitledMultiSelect(schema)
    }
}

impl From<TitledMultiSelectEnumSchema> for EnumSchema {
    fn from(schema: TitledMultiSelectEnumSchema) -> Self {
        Self::TitledMultiSelect(schema)
    }
}

impl From<LegacyTitledEnumSchema> for EnumSchema {
    fn from(schema: LegacyTitledEnumSchema) -> Self {
        Self::LegacyTitled(schema)
    }
}

/// A field for one of some values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "string")]
#[non_exhaustive]
pub struct UntitledSingleSelectEnumSchema {
    /// The name of the field, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What to choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The values.
    #[serde(rename = "enum")]
    pub values: Vec<String>,
    /// What the field starts with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
}

impl UntitledSingleSelectEnumSchema {
    /// A choice of one of these values.
    #[must_use]
    pub fn new(values: Vec<String>) -> Self {
        Self {
            values,
            ..Self::default()
        }
    }
}

/// A field for one of some values with titles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "string", rename_all = "camelCase")]
#[non_exhaustive]
pub struct TitledSingleSelectEnumSchema {
    /// The name of the field, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What to choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The values.
    pub one_of: Vec<TitledValue>,
    /// What the field starts with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
}

impl TitledSingleSelectEnumSchema {
    /// A choice of one of these values.
    #[must_use]
    pub fn new(values: Vec<TitledValue>) -> Self {
        Self {
            one_of: values,
            ..Self::default()
        }
    }
}

/// A field for any of some values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "array", rename_all = "camelCase")]
#[non_exhaustive]
pub struct UntitledMultiSelectEnumSchema {
    /// The name of the field, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What to choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The least number of values to choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_items: Option<u64>,
    /// The greatest number of values to choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_items: Option<u64>,
    /// The values.
    pub items: UntitledItems,
    /// What the field starts with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Vec<String>>,
}

impl UntitledMultiSelectEnumSchema {
    /// A choice of any of these values.
    #[must_use]
    pub fn new(values: Vec<String>) -> Self {
        Self {
            title: None,
            description: None,
            min_items: None,
            max_items: None,
            items: UntitledItems { values },
            default: None,
        }
    }
}

/// The values of an [`UntitledMultiSelectEnumSchema`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "string")]
#[non_exhaustive]
pub struct UntitledItems {
    /// The values.
    #[serde(rename = "enum")]
    pub values: Vec<String>,
}

/// A field for any of some values with titles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "array", rename_all = "camelCase")]
#[non_exhaustive]
pub struct TitledMultiSelectEnumSchema {
    /// The name of the field, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What to choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The least number of values to choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_items: Option<u64>,
    /// The greatest number of values to choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_items: Option<u64>,
    /// The values.
    pub items: TitledItems,
    /// What the field starts with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Vec<String>>,
}

impl TitledMultiSelectEnumSchema {
    /// A choice of any of these values.
    #[must_use]
    pub fn new(values: Vec<TitledValue>) -> Self {
        Self {
            title: None,
            description: None,
            min_items: None,
            max_items: None,
            items: TitledItems { any_of: values },
            default: None,
        }
    }
}

/// The values of a [`TitledMultiSelectEnumSchema`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct TitledItems {
    /// The values.
    pub any_of: Vec<TitledValue>,
}

/// A value and its title.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TitledValue {
    /// The value, for programs.
    #[serde(rename = "const")]
    pub value: String,
    /// The value, for people.
    pub title: String,
}

impl TitledValue {
    /// A value and its title.
    #[must_use]
    pub fn new(value: impl Into<String>, title: impl Into<String>) -> Self {
        Self {
            value: value.into(),
            title: title.into(),
        }
    }
}

/// A field for one of some values with titles, as 2025-06-18 wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "string", rename_all = "camelCase")]
#[non_exhaustive]
pub struct LegacyTitledEnumSchema {
    /// The name of the field, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What to choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The values.
    #[serde(rename = "enum")]
    pub values: Vec<String>,
    /// The titles, in the order of the values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enum_names: Option<Vec<String>>,
    /// What the field starts with (from 2025-11-25).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
}

impl LegacyTitledEnumSchema {
    /// A choice of one of these values, with these titles.
    #[must_use]
    pub fn new(values: Vec<String>, titles: Vec<String>) -> Self {
        Self {
            values,
            enum_names: Some(titles),
            ..Self::default()
        }
    }
}

/// The keywords that tell which field it is.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Keywords {
    #[serde(rename = "type")]
    kind: String,
    #[serde(rename = "enum")]
    values: Option<IgnoredAny>,
    enum_names: Option<IgnoredAny>,
    one_of: Option<IgnoredAny>,
    items: Option<ItemKeywords>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ItemKeywords {
    #[serde(rename = "enum")]
    values: Option<IgnoredAny>,
    any_of: Option<IgnoredAny>,
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
    fn each_spelling_of_a_choice_is_told_apart() {
        for (text, expected) in [
            (r#"{"type":"string","enum":["a"]}"#, "UntitledSingleSelect"),
            (
                r#"{"type":"string","enum":["a"],"enumNames":["A"]}"#,
                "LegacyTitled",
            ),
            (
                r#"{"type":"string","oneOf":[{"const":"a","title":"A"}]}"#,
                "TitledSingleSelect",
            ),
            (
                r#"{"type":"array","items":{"type":"string","enum":["a"]}}"#,
                "UntitledMultiSelect",
            ),
            (
                r#"{"type":"array","items":{"anyOf":[{"const":"a","title":"A"}]}}"#,
                "TitledMultiSelect",
            ),
        ] {
            let field: PrimitiveSchemaDefinition = serde_json::from_str(text).unwrap();

            let PrimitiveSchemaDefinition::Enum(choice) = &field else {
                panic!("{text} was read as {field:?}");
            };
            assert!(format!("{choice:?}").starts_with(expected), "{choice:?}");
            assert_eq!(serde_json::to_string(&field).unwrap(), text);
        }
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
    fn the_bounds_of_a_number_keep_their_digits() {
        let text = r#"{"type":"integer","minimum":-9007199254740993,"maximum":10,"default":1.5}"#;

        let field: PrimitiveSchemaDefinition = serde_json::from_str(text).unwrap();

        assert_eq!(serde_json::to_string(&field).unwrap(), text);
    }
}
