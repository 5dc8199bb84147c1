//! The enum fields of an elicitation form: single- or multi-select, whose values may have titles.

use serde::de::{Deserializer, Error as _, IgnoredAny};
use serde::{Deserialize, Serialize, Serializer};

use crate::Json;

/// An enum field: single- or multi-select, whose values may have titles.
///
/// The specification groups the first two variants as `SingleSelectEnumSchema`, the next two as
/// `MultiSelectEnumSchema`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EnumSchema {
    /// Single-select.
    UntitledSingleSelect(UntitledSingleSelectEnumSchema),
    /// Single-select whose values have titles (from 2025-11-25).
    TitledSingleSelect(TitledSingleSelectEnumSchema),
    /// Multi-select (from 2025-11-25).
    UntitledMultiSelect(UntitledMultiSelectEnumSchema),
    /// Multi-select whose values have titles (from 2025-11-25).
    TitledMultiSelect(TitledMultiSelectEnumSchema),
    /// Single-select with `enumNames`, as in 2025-06-18.
    LegacyTitled(LegacyTitledEnumSchema),
}

impl EnumSchema {
    /// Decodes `json` as an enum field; `None` if its `keywords` are those of another type of field.
    pub(crate) fn read(
        keywords: &FieldKeywords,
        json: &Json,
    ) -> Option<Result<Self, serde_json::Error>> {
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
            .ok_or_else(|| D::Error::custom("expected an enum schema"))?
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

/// A single-select field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "string")]
#[non_exhaustive]
pub struct UntitledSingleSelectEnumSchema {
    /// The display name of the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The description of the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The values.
    #[serde(rename = "enum")]
    pub values: Vec<String>,
    /// The default value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
}

impl UntitledSingleSelectEnumSchema {
    /// Creates a field with these values.
    #[must_use]
    pub fn new(values: Vec<String>) -> Self {
        Self {
            values,
            ..Self::default()
        }
    }
}

/// A single-select field whose values have titles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "string", rename_all = "camelCase")]
#[non_exhaustive]
pub struct TitledSingleSelectEnumSchema {
    /// The display name of the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The description of the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The values.
    pub one_of: Vec<TitledValue>,
    /// The default value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
}

impl TitledSingleSelectEnumSchema {
    /// Creates a field with these values.
    #[must_use]
    pub fn new(values: Vec<TitledValue>) -> Self {
        Self {
            one_of: values,
            ..Self::default()
        }
    }
}

/// A multi-select field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "array", rename_all = "camelCase")]
#[non_exhaustive]
pub struct UntitledMultiSelectEnumSchema {
    /// The display name of the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The description of the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The minimum number of values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_items: Option<u64>,
    /// The maximum number of values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_items: Option<u64>,
    /// The values.
    pub items: UntitledItems,
    /// The default value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Vec<String>>,
}

impl UntitledMultiSelectEnumSchema {
    /// Creates a field with these values.
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

/// A multi-select field whose values have titles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "array", rename_all = "camelCase")]
#[non_exhaustive]
pub struct TitledMultiSelectEnumSchema {
    /// The display name of the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The description of the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The minimum number of values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_items: Option<u64>,
    /// The maximum number of values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_items: Option<u64>,
    /// The values.
    pub items: TitledItems,
    /// The default value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Vec<String>>,
}

impl TitledMultiSelectEnumSchema {
    /// Creates a field with these values.
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

/// An enum value with a title.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TitledValue {
    /// The value.
    #[serde(rename = "const")]
    pub value: String,
    /// The display name of the value.
    pub title: String,
}

impl TitledValue {
    /// Creates a value with a title.
    #[must_use]
    pub fn new(value: impl Into<String>, title: impl Into<String>) -> Self {
        Self {
            value: value.into(),
            title: title.into(),
        }
    }
}

/// A single-select field with titles in `enumNames`, as in 2025-06-18.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "string", rename_all = "camelCase")]
#[non_exhaustive]
pub struct LegacyTitledEnumSchema {
    /// The display name of the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The description of the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The values.
    #[serde(rename = "enum")]
    pub values: Vec<String>,
    /// The titles, in the order of the values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enum_names: Option<Vec<String>>,
    /// The default value (from 2025-11-25).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
}

impl LegacyTitledEnumSchema {
    /// Creates a field with these values and titles.
    #[must_use]
    pub fn new(values: Vec<String>, titles: Vec<String>) -> Self {
        Self {
            values,
            enum_names: Some(titles),
            ..Self::default()
        }
    }
}

/// The keywords that determine the type of a field.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FieldKeywords {
    #[serde(rename = "type")]
    pub(crate) kind: String,
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
    use crate::PrimitiveSchemaDefinition;

    #[test]
    fn each_form_of_an_enum_schema_is_distinguished() {
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
}
