//! Deserializes unions by the member that names the variant, for `content.rs`, `completion.rs` and `sampling.rs`.
//!
//! serde's own tagged enums buffer the whole object in a form that cannot hold [`Json`]. Here, if the tag
//! comes first, as is usual, the object is deserialized directly into the variant; otherwise all other
//! members are buffered as raw text.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::vec;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, StringDeserializer};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, Visitor};

use crate::Json;

/// A type whose variant is named by the member [`TAG`](Self::TAG).
pub(crate) trait TaggedUnion: Sized {
    /// The name of the tag member.
    const TAG: &'static str;
    /// The expected value, for error messages.
    const EXPECTED: &'static str;

    /// Deserializes the variant with this tag from the other members.
    fn read<'de, A: MapAccess<'de>>(tag: &str, rest: A) -> Result<Self, A::Error>;
}

/// Deserializes a union.
pub(crate) fn read<'de, T: TaggedUnion, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    deserializer.deserialize_map(TagVisitor(PhantomData))
}

/// Deserializes a variant from the members other than the tag.
pub(crate) fn variant<'de, T: Deserialize<'de>, A: MapAccess<'de>>(rest: A) -> Result<T, A::Error> {
    T::deserialize(MapAccessDeserializer::new(rest))
}

struct TagVisitor<T>(PhantomData<T>);

impl<'de, T: TaggedUnion> Visitor<'de> for TagVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        // The members before the tag. If there are any, the members after it are added.
        let mut before = Vec::new();
        while let Some(BorrowedString(key)) = map.next_key()? {
            if key != T::TAG {
                before.push((key.into_owned(), map.next_value::<Json>()?));
                continue;
            }
            let BorrowedString(tag) = map.next_value()?;
            if before.is_empty() {
                return T::read(&tag, map);
            }
            while let Some(member) = map.next_entry()? {
                before.push(member);
            }
            return T::read(&tag, BufferedMembers::new(before)).map_err(A::Error::custom);
        }
        Err(A::Error::missing_field(T::TAG))
    }
}

/// A string that is borrowed where the input allows.
#[derive(Deserialize)]
struct BorrowedString<'a>(#[serde(borrow)] Cow<'a, str>);

/// All members except the tag, in order.
struct BufferedMembers {
    left: vec::IntoIter<(String, Json)>,
    value: Option<Json>,
}

impl BufferedMembers {
    fn new(members: Vec<(String, Json)>) -> Self {
        Self {
            left: members.into_iter(),
            value: None,
        }
    }
}

impl<'de> MapAccess<'de> for BufferedMembers {
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
            return Err(Self::Error::custom("value requested before its key"));
        };
        // From a reader, so that no data is borrowed: `value` does not live for `'de`.
        seed.deserialize(&mut serde_json::Deserializer::from_reader(value.as_bytes()))
    }
}
