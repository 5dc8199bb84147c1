//! [`ToolDefinition`]: what is pinned of a tool.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize as DeriveDeserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::diff::visible;
use crate::many::RawObject;

/// The members of a tool that a model or a user decides by.
#[derive(Clone, Debug, PartialEq, Serialize, DeriveDeserialize)]
#[serde(transparent)]
pub(super) struct ToolDefinition(BTreeMap<String, Value>);

impl ToolDefinition {
    /// Reads the name and the definition of a tool; `None` if it has no unique name, as it is not listed then.
    pub(super) fn read(tool: &RawValue) -> Option<(String, Self)> {
        let tool = RawObject::parse(tool.get()).ok()?;
        let name = tool.text("name")?.into_owned();
        let mut members = BTreeMap::new();
        for (member, value) in tool.iter().filter(|(member, _)| PINNED.contains(member)) {
            let value = serde_json::from_str(value.get()).map(|UniqueValue(value)| value);
            let before = match value {
                // Deeper ones could be written to the file, and not read again.
                Ok(value) if depth(&value) <= MAX_DEPTH => members.insert(member.to_owned(), value),
                _ => return Some((name, Self::ambiguous())),
            };
            if before.is_some() {
                return Some((name, Self::ambiguous()));
            }
        }
        Some((name, Self(members)))
    }

    /// Returns the definition of a tool that two readers could understand differently.
    pub(super) fn ambiguous() -> Self {
        let problem = "the definition has duplicate members, is offered twice, is nested too deeply, or is too large";
        Self(BTreeMap::from([(AMBIGUOUS.to_owned(), problem.into())]))
    }

    pub(super) fn is_ambiguous(&self) -> bool {
        self.0.contains_key(AMBIGUOUS)
    }

    /// Returns about how much it takes, in memory or in the file, whichever is more.
    pub(super) fn bytes(&self) -> usize {
        let members = self.0.iter();
        members
            .map(|(member, value)| member.len() + value_bytes(value, DEPTH_IN_FILE))
            .sum()
    }

    /// Returns the definition for people.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let order = [&PINNED[..], &[AMBIGUOUS]].concat();
        for (member, value) in order.iter().filter_map(|it| Some((it, self.0.get(*it)?))) {
            lines.push(format!("{member}:"));
            let text = match value {
                Value::String(text) => text.clone(),
                value => format!("{value:#}"),
            };
            lines.extend(text.split('\n').map(|line| format!("  {}", visible(line))));
        }
        lines
    }
}

/// Returns how deeply a value is nested.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// Returns about how much a value takes that stands at this depth in the file, which has a line for each.
fn value_bytes(value: &Value, depth: usize) -> usize {
    let inside = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => escaped_bytes(text),
        Value::Array(items) => items.iter().map(|it| value_bytes(it, depth + 1)).sum(),
        Value::Object(members) => {
            let members = members.iter();
            let bytes = members.map(|(name, it)| escaped_bytes(name) + value_bytes(it, depth + 1));
            bytes.sum()
        }
    };
    VALUE_BYTES + 2 * depth + inside
}

fn escaped_bytes(text: &str) -> usize {
    let bytes = text.bytes().map(|byte| match byte {
        0..0x20 => 6,
        b'"' | b'\\' => 2,
        _ => 1,
    });
    bytes.sum()
}

/// A JSON value without duplicate members.
struct UniqueValue(Value);

impl<'de> Deserialize<'de> for UniqueValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(Self)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(UniqueValue(value)) = items.next_element()? {
            values.push(value);
        }
        Ok(values.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let UniqueValue(value) = members.next_value()?;
            if object.insert(name, value).is_some() {
                return Err(de::Error::custom("duplicate member"));
            }
        }
        Ok(object.into())
    }
}

/// JSON of more than 127 levels is not read, and the file has some around a definition.
const MAX_DEPTH: usize = 64;
const DEPTH_IN_FILE: usize = 5;
/// What a value takes without its text: its place in a list or a map.
const VALUE_BYTES: usize = 64;

const PINNED: [&str; 5] = [
    "title",
    "description",
    "inputSchema",
    "outputSchema",
    "annotations",
];
const AMBIGUOUS: &str = "ambiguous";
