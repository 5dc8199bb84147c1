//! [`OrderedJson`], JSON whose objects keep the order of their members: a signature lists parameters as the server does.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum OrderedJson {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
}

impl OrderedJson {
    /// Parses JSON. Invalid text, which a server cannot have sent, is `null`.
    pub(crate) fn parse(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or(Self::Null)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        let members = self.members();
        members
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value)
    }

    /// Returns the members of an object; none of another value.
    pub(crate) fn members(&self) -> &[(String, Self)] {
        match self {
            Self::Object(members) => members,
            _ => &[],
        }
    }

    /// Returns the items of an array; none of another value.
    pub(crate) fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn to_value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(*value),
            Self::Number(number) => Value::Number(number.clone()),
            Self::Text(text) => Value::String(text.clone()),
            Self::List(items) => items.iter().map(Self::to_value).collect(),
            Self::Object(members) => {
                let members = members
                    .iter()
                    .map(|(name, value)| (name.clone(), value.to_value()));
                Value::Object(members.collect())
            }
        }
    }

    /// Writes the value on several lines, with two spaces for each level.
    pub(crate) fn pretty(&self) -> String {
        let mut text = String::new();
        self.write_pretty(&mut text, 0);
        text
    }

    fn write_pretty(&self, text: &mut String, level: usize) {
        let indent = |text: &mut String, level: usize| {
            text.push('\n');
            text.push_str(&"  ".repeat(level));
        };
        match self {
            Self::List(items) if !items.is_empty() => {
                text.push('[');
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        text.push(',');
                    }
                    indent(text, level + 1);
                    item.write_pretty(text, level + 1);
                }
                indent(text, level);
                text.push(']');
            }
            Self::Object(members) if !members.is_empty() => {
                text.push('{');
                for (at, (name, value)) in members.iter().enumerate() {
                    if at > 0 {
                        text.push(',');
                    }
                    indent(text, level + 1);
                    text.push_str(&Value::from(name.as_str()).to_string());
                    text.push_str(": ");
                    value.write_pretty(text, level + 1);
                }
                indent(text, level);
                text.push('}');
            }
            value => text.push_str(&value.to_value().to_string()),
        }
    }
}

impl<'de> Deserialize<'de> for OrderedJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct JsonVisitor;

        impl<'de> Visitor<'de> for JsonVisitor {
            type Value = OrderedJson;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON value")
            }

            fn visit_bool<E>(self, value: bool) -> Result<OrderedJson, E> {
                Ok(OrderedJson::Bool(value))
            }

            fn visit_i64<E>(self, value: i64) -> Result<OrderedJson, E> {
                Ok(OrderedJson::Number(value.into()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<OrderedJson, E> {
                Ok(OrderedJson::Number(value.into()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<OrderedJson, E> {
                Ok(Number::from_f64(value).map_or(OrderedJson::Null, OrderedJson::Number))
            }

            fn visit_str<E>(self, value: &str) -> Result<OrderedJson, E> {
                Ok(OrderedJson::Text(value.to_owned()))
            }

            fn visit_unit<E>(self) -> Result<OrderedJson, E> {
                Ok(OrderedJson::Null)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<OrderedJson, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(OrderedJson::List(items))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OrderedJson, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(OrderedJson::Object(members))
            }
        }

        deserializer.deserialize_any(JsonVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_keep_their_order() {
        let json = OrderedJson::parse(r#"{"b": [1, -2, 1.5, true, null], "a": {}, "c": []}"#);

        let names: Vec<_> = json
            .members()
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(names, ["b", "a", "c"]);
        assert_eq!(
            json.pretty(),
            "{\n  \"b\": [\n    1,\n    -2,\n    1.5,\n    true,\n    null\n  ],\n  \"a\": {},\n  \"c\": []\n}"
        );
        assert_eq!(OrderedJson::parse("{"), OrderedJson::Null);
    }
}
