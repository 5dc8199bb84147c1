//! [`Text`] and [`Number`]: members of a task that a client can do without, so that any type of value is accepted.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::info::printable;

/// A text in a form that can be displayed, of at most `MAX` characters; `None` if it is empty or not a text.
#[derive(Debug, Default)]
pub(super) struct Text<const MAX: usize>(pub(super) Option<String>);

/// A number; `None` if it is not one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Number(pub(super) Option<f64>);

impl<'de, const MAX: usize> Deserialize<'de> for Text<MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = |text: &str| Some(printable(text, MAX)).filter(|text| !text.is_empty());
        let found = deserializer.deserialize_any(Lenient {
            text,
            number: |_| None,
        });
        found.map(Self)
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let found = deserializer.deserialize_any(Lenient {
            text: |_: &str| None,
            number: Some,
        });
        found.map(Self)
    }
}

/// Accepts every value, without storing those that are not used.
struct Lenient<F, G> {
    text: F,
    number: G,
}

impl<'de, T, F, G> Visitor<'de> for Lenient<F, G>
where
    F: FnOnce(&str) -> Option<T>,
    G: FnOnce(f64) -> Option<T>,
{
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok((self.text)(text))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        Ok((self.number)(number))
    }

    #[allow(
        clippy::cast_precision_loss,
        reason = "milliseconds beyond 2^53 need not be exact"
    )]
    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok((self.number)(number as f64))
    }

    #[allow(
        clippy::cast_precision_loss,
        reason = "milliseconds beyond 2^53 need not be exact"
    )]
    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok((self.number)(number as f64))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_another_type_is_none() {
        for other in ["null", "true", "[[1],\"a\"]", "{\"a\":{\"b\":1}}"] {
            assert_eq!(serde_json::from_str::<Text<9>>(other).unwrap().0, None);
            assert_eq!(serde_json::from_str::<Number>(other).unwrap().0, None);
        }
        assert_eq!(serde_json::from_str::<Text<9>>("7").unwrap().0, None);
        assert_eq!(serde_json::from_str::<Number>("\"7\"").unwrap().0, None);
    }

    #[test]
    fn texts_and_numbers_of_every_form_are_read() {
        let text: Text<3> = serde_json::from_str("\"\\u0041bcd\"").unwrap();
        assert_eq!(text.0.as_deref(), Some("Abc…"));
        for (number, expected) in [("7", 7.0), ("-7", -7.0), ("7.5", 7.5), ("1e3", 1000.0)] {
            let read: Number = serde_json::from_str(number).unwrap();
            assert_eq!(read.0, Some(expected));
        }
    }
}
