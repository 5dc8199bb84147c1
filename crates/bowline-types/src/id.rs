//! Request ids and progress tokens: a string or an integer, kept exactly as received.

use std::fmt;
use std::sync::Arc;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

/// The id of a request, as on the wire: `7` and `"7"` are different ids.
///
/// `null`, booleans and fractions are never ids, nor integers outside `i64`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(clippy::exhaustive_enums, reason = "MCP allows exactly these two")]
pub enum RequestId {
    /// An integer.
    Number(i64),
    /// A string.
    Text(Arc<str>),
}

/// The token that associates `notifications/progress` with a request.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(clippy::exhaustive_enums, reason = "MCP allows exactly these two")]
pub enum ProgressToken {
    /// An integer.
    Number(i64),
    /// A string.
    Text(Arc<str>),
}

/// Implements conversions, formatting and serde for an enum of `Number` and `Text`.
macro_rules! number_or_text {
    ($name:ident, $what:literal) => {
        impl From<i64> for $name {
            fn from(number: i64) -> Self {
                Self::Number(number)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::Text(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self::Text(text.into())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    Self::Number(number) => fmt::Debug::fmt(number, f),
                    Self::Text(text) => fmt::Debug::fmt(text, f),
                }
            }
        }

        /// Formats for messages: a string is quoted.
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(self, f)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    Self::Number(number) => serializer.serialize_i64(*number),
                    Self::Text(text) => serializer.serialize_str(text),
                }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct NumberOrTextVisitor;

                impl Visitor<'_> for NumberOrTextVisitor {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str(concat!($what, " (a string or an integer)"))
                    }

                    fn visit_i64<E: de::Error>(self, number: i64) -> Result<$name, E> {
                        Ok($name::Number(number))
                    }

                    fn visit_u64<E: de::Error>(self, number: u64) -> Result<$name, E> {
                        i64::try_from(number)
                            .map($name::Number)
                            .map_err(|_| E::invalid_value(de::Unexpected::Unsigned(number), &self))
                    }

                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        Ok($name::Text(text.into()))
                    }
                }

                deserializer.deserialize_any(NumberOrTextVisitor)
            }
        }
    };
}

number_or_text!(RequestId, "a request id");
number_or_text!(ProgressToken, "a progress token");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_travel_verbatim() {
        for text in ["7", "-7", "\"7\"", "\"\"", "9223372036854775807"] {
            let id: RequestId = serde_json::from_str(text).unwrap();

            assert_eq!(serde_json::to_string(&id).unwrap(), text);
            assert_eq!(id.to_string(), text);
        }
    }

    #[test]
    fn nothing_else_is_an_id() {
        for text in [
            "null",
            "true",
            "1.5",
            "1.0",
            "1e3",
            "[]",
            "{}",
            "9223372036854775808",
        ] {
            assert!(
                serde_json::from_str::<RequestId>(text).is_err(),
                "{text} was accepted as an id"
            );
        }
    }
}
