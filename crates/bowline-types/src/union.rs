//! Reading a union by the member that names its variant.
//!
//! serde's own tagged enums read the whole object into a buffer that cannot hold [`Json`]. Here the
//! object streams straight into the variant when the tag comes first, as everybody writes it, and is
//! kept as raw text until the tag turns up otherwise.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::vec;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, StringDeserializer};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, Visitor};

use crate::Json;

/// A type whose variant is named by the member [`TAG`](Self::TAG).
pub(crate) trait Union: Sized {
    /// The name of the member that tells.
    const TAG: &'static str;
    /// What an error says was expected.
    const WHAT: &'static str;

    /// Reads the variant called `tag` from the other members.
    fn read<'de, A: MapAccess<'de>>(tag: &str, rest: A) -> Result<Self, A::Error>;
}

/// Reads a union.
pub(crate) fn read<'de, T: Union, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_map(ByTag(PhantomData))
}

/// Reads a variant from the members that are not the tag.
pub(crate) fn variant<'de, T: Deserialize<'de>, A: MapAccess<'de>>(rest: A) -> Result<T, A::Error> {
    T::deserialize(MapAccessDeserializer::new(rest))
}

struct ByTag<T>(PhantomData<T>);

impl<'de, T: Union> Visitor<'de> for ByTag<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::WHAT)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        let mut before = Vec::new();
        while let Some(Name(key)) = map.next_key()? {
            if key != T::TAG {
                before.push((key.into_owned(), map.next_value::<Json>()?));
                continue;
            }
            let Name(tag) = map.next_value()?;
            if before.is_empty() {
                return T::read(&tag, map);
            }
            while let Some(member) = map.next_entry()? {
                before.push(member);
            }
            return T::read(&tag, Members::new(before)).map_err(A::Error::custom);
        }
        Err(A::Error::missing_field(T::TAG))
    }
}

/// A text that is borrowed where the input allows.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// Members that had to wait for the tag.
struct Members {
    left: vec::IntoIter<(String, Json)>,
    value: Option<Json>,
}

impl Members {
    fn new(members: Vec<(String, Json)>) -> Self {
        Self {
            left: members.into_iter(),
            value: None,
        }
    }
}

impl<'de> MapAccess<'de> for Members {
    type Error = serde_json::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Self::Error> {
        let Some((key, value)) = self.left.next() else {
            return Ok(None);
        };
        self.value = Some(value);
        let key: StringDeserializer<Self::Error> = key.into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, Self::Error> {
        let Some(value) = self.value.take() else {
            return Err(Self::Error::custom("a value was read before its key"));
        };
        // Read as an owned reader: what is borrowed from `value` would not live for `'de`.
        seed.deserialize(&mut serde_json::Deserializer::from_reader(value.as_bytes()))
    }
}
