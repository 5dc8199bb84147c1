//! [`RawObject`]: the members of a JSON object as text, so that unknown ones and the spelling of numbers survive.

use std::borrow::Cow;
use std::fmt;

use bowline::Json;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The members of an object, in their order. Duplicates are kept.
pub(crate) struct RawObject<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> RawObject<'a> {
    pub(crate) fn parse(json: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(json)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(name, value)| (&**name, *value))
    }

    /// Returns the value of a member that is there exactly once.
    pub(crate) fn get(&self, name: &str) -> Option<&'a RawValue> {
        let mut found = self.iter().filter(|(member, _)| *member == name);
        let (_, value) = found.next()?;
        // Which of two members counts differs between readers: what one checks, another might not use.
        found.next().is_none().then_some(value)
    }

    /// Returns the text of a member that is there exactly once and a string.
    pub(crate) fn text(&self, name: &str) -> Option<Cow<'a, str>> {
        let value = self.get(name)?.get();
        let plain = value.strip_prefix('"')?.strip_suffix('"')?;
        match plain.contains('\\') {
            false => Some(Cow::Borrowed(plain)),
            true => serde_json::from_str(value).ok().map(Cow::Owned),
        }
    }

    /// Appends the object to `out`, with the value of one member replaced by a text.
    pub(crate) fn write_with(&self, out: &mut Vec<u8>, name: &str, text: &str) {
        let mut value = Vec::with_capacity(text.len() + 2);
        Json::push_string(&mut value, text);
        self.write_raw_with(out, name, &value);
    }

    /// Appends the object to `out`, with the value of one member replaced by JSON.
    pub(crate) fn write_raw_with(&self, out: &mut Vec<u8>, name: &str, value: &[u8]) {
        out.push(b'{');
        for (at, (member, raw)) in self.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            Json::push_string(out, member);
            out.push(b':');
            let value = if member == name {
                value
            } else {
                raw.get().as_bytes()
            };
            out.extend_from_slice(value);
        }
        out.push(b'}');
    }
}

impl<'de> Deserialize<'de> for RawObject<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = RawObject<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(name) = map.next_key::<MemberName<'de>>()? {
                    members.push((name.0, map.next_value()?));
                }
                Ok(RawObject(members))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// Borrowed unless it contains escapes; a plain `Cow` is always owned.
#[derive(serde::Deserialize)]
struct MemberName<'a>(#[serde(borrow)] Cow<'a, str>);
