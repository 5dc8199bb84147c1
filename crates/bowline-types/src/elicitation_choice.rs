//! The choices of an elicitation form: one or many values, with or without titles.

use serde::de::{Deserializer, Error as _, IgnoredAny};
use serde::{Deserialize, Serialize, Serializer};

use crate::Json;

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
    pub(crate) fn read(
        keywords: &Keywords,
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
pub(crate) struct Keywords {
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
}
