//! Editing a JSON object without decoding what is in it.
//!
//! Stamping a request and sealing a result add or remove a member or two of an object whose other
//! members nobody here needs to understand. [`Object`] splits the text at its top level only.

use std::borrow::Cow;
use std::fmt;

use bowline_types::Json;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The members of a JSON object, in their order, each still text.
///
/// # Examples
///
/// ```
/// use bowline_core::json::Object;
/// use bowline_types::Json;
///
/// let json = Json::parse(r#"{"a": {"deep": 1}, "b": 2}"#)?;
/// let mut object = Object::read(&json)?;
/// object.remove("b");
/// object.set("c", Json::parse("3")?);
/// assert_eq!(object.to_json().as_str(), r#"{"a":{"deep": 1},"c":3}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Object<'a> {
    members: Vec<(Cow<'a, str>, Json)>,
}

impl<'a> Object<'a> {
    /// Splits `json` into its members.
    ///
    /// # Errors
    ///
    /// If `json` is not an object.
    pub fn read(json: &'a Json) -> Result<Self, serde_json::Error> {
        let Members(members) = json.decode()?;
        let members = members
            .into_iter()
            .map(|(name, raw)| (name, json.part(raw)))
            .collect();
        Ok(Self { members })
    }

    /// The value of a member.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<&Json> {
        self.members
            .iter()
            .find_map(|(own, value)| (own == name).then_some(value))
    }

    /// Adds a member, or replaces it where it stands.
    pub fn set(&mut self, name: impl Into<Cow<'a, str>>, value: Json) {
        let name = name.into();
        match self.members.iter_mut().find(|(own, _)| *own == name) {
            Some((_, old)) => *old = value,
            None => self.members.push((name, value)),
        }
    }

    /// Removes a member and returns its value.
    pub fn remove(&mut self, name: &str) -> Option<Json> {
        let at = self.members.iter().position(|(own, _)| own == name)?;
        Some(self.members.remove(at).1)
    }

    /// Whether there is no member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The members in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Json)> {
        self.members.iter().map(|(name, value)| (&**name, value))
    }

    /// Joins the members again.
    #[must_use]
    pub fn to_json(&self) -> Json {
        let length: usize = self
            .members
            .iter()
            .map(|(name, value)| name.len() + value.as_bytes().len() + 4)
            .sum();
        let mut text = Vec::with_capacity(length + 2);
        for (name, value) in &self.members {
            text.push(if text.is_empty() { b'{' } else { b',' });
            serde_json::to_writer(&mut text, name)
                .expect("text always has a JSON form, and a `Vec` takes it");
            text.push(b':');
            text.extend_from_slice(value.as_bytes());
        }
        if text.is_empty() {
            text.push(b'{');
        }
        text.push(b'}');
        Json::from_valid(text.into())
    }
}

struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

        struct Split;

        impl<'de> Visitor<'de> for Split {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((Name(name), value)) = map.next_entry()? {
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Split)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_keep_their_order_and_their_text() {
        let json = Json::parse(r#"{ "z": 1.0, "a" : [ ] }"#).unwrap();

        let object = Object::read(&json).unwrap();

        assert_eq!(object.to_json().as_str(), r#"{"z":1.0,"a":[ ]}"#);
        assert_eq!(object.member("a").unwrap().as_str(), "[ ]");
    }

    #[test]
    fn an_empty_object_stays_one() {
        let json = Json::parse("{ }").unwrap();

        let object = Object::read(&json).unwrap();

        assert!(object.is_empty());
        assert_eq!(object.to_json().as_str(), "{}");
    }

    #[test]
    fn only_an_object_has_members() {
        for text in ["[]", "1", "null", r#""{}""#] {
            assert!(Object::read(&Json::parse(text).unwrap()).is_err());
        }
    }
}
