//! Open sets of names: the specification gives some, and anything else must survive.
//!
//! Such a type is a text with constants for the known names. A known name is decoded without allocating.

/// Gives a `struct Name(Cow<'static, str>)` its spelling in Rust and on the wire.
macro_rules! open_text {
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
                struct Text;

                impl serde::de::Visitor<'_> for Text {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str($what)
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$name, E> {
                        Ok($name::from(text))
                    }
                }

                deserializer.deserialize_str(Text)
            }
        }
    };
}

pub(crate) use open_text;
