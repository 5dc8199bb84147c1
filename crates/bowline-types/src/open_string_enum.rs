//! A macro for open string enumerations: constants for the known values, and any other text is preserved.
//!
//! Known values are deserialized without allocating.

/// Implements conversions, `Display` and serde for a `struct Name(Cow<'static, str>)`.
macro_rules! open_string_enum {
    ($name:ident, $what:literal, [$($known:ident),* $(,)?]) => {
        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                $(if text == Self::$known.0 {
                    return Self::$known;
                })*
                Self(std::borrow::Cow::Owned(text.to_owned()))
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(std::borrow::Cow::Owned(text))
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct StringVisitor;

                impl serde::de::Visitor<'_> for StringVisitor {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str($what)
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$name, E> {
                        Ok($name::from(text))
                    }
                }

                deserializer.deserialize_str(StringVisitor)
            }
        }
    };
}

pub(crate) use open_string_enum;
