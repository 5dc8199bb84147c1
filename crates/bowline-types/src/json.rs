//! JSON text that is not decoded yet.
//!
//! Params and results are passed as [`Json`] and decoded once, directly into the type of the method. A
//! [`Json`] is a slice of the message it was received in: cloning it copies no text.

mod escape;
pub(crate) use escape::push_string;

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde::de::{Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// One valid JSON value, as text.
///
/// # Examples
///
/// ```
/// use bowline_types::Json;
///
/// let json = Json::encode(&[1, 2, 3])?;
/// assert_eq!(json.as_str(), "[1,2,3]");
/// assert_eq!(json.decode::<Vec<u8>>()?, [1, 2, 3]);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Json(Bytes);

impl Json {
    /// Checks that `text` is exactly one JSON value in UTF-8, and keeps its spelling.
    ///
    /// # Errors
    ///
    /// If `text` is not JSON.
    pub fn parse(text: impl Into<Bytes>) -> Result<Self, serde_json::Error> {
        let text = text.into();
        let raw: &RawValue = serde_json::from_slice(&text)?;
        let value = text.slice_ref(raw.get().as_bytes());
        Ok(Self(value))
    }

    /// Wraps text that is known to be exactly one JSON value, such as that of a [`RawValue`].
    ///
    /// # Panics
    ///
    /// If `text` is not UTF-8. Text that is not JSON is not detected until it is decoded.
    #[must_use]
    pub fn from_valid(text: Bytes) -> Self {
        assert!(std::str::from_utf8(&text).is_ok(), "JSON text is UTF-8");
        Self(text)
    }

    /// Wraps static text that is exactly one JSON value.
    #[must_use]
    pub const fn from_static(text: &'static str) -> Self {
        Self(Bytes::from_static(text.as_bytes()))
    }

    /// Encodes `value`.
    ///
    /// # Errors
    ///
    /// If `value` cannot be serialized to JSON, such as a map whose keys are not strings.
    pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        let mut text = Vec::with_capacity(INITIAL_CAPACITY);
        serde_json::to_writer(&mut text, value)?;
        Ok(Self(text.into()))
    }

    /// Decodes the text into `T`, which may borrow from it.
    ///
    /// # Errors
    ///
    /// If the text is not a valid `T`.
    pub fn decode<'de, T: Deserialize<'de>>(&'de self) -> Result<T, serde_json::Error> {
        // Checking UTF-8 once is cheaper than `from_slice`, which checks it string by string.
        serde_json::from_str(self.as_str())
    }

    /// Appends `text` to `out` as a JSON string.
    ///
    /// # Examples
    ///
    /// ```
    /// let mut out = Vec::new();
    /// bowline_types::Json::push_string(&mut out, "a\nb");
    /// assert_eq!(out, br#""a\nb""#);
    /// ```
    pub fn push_string(out: &mut Vec<u8>, text: &str) {
        push_string(out, text);
    }

    /// Decodes a string, which is borrowed unless it contains escapes.
    ///
    /// # Errors
    ///
    /// If the value is not a string.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline_types::Json;
    ///
    /// assert_eq!(Json::encode("ahoy")?.text()?, "ahoy");
    /// assert!(Json::null().text().is_err());
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn text(&self) -> Result<Cow<'_, str>, serde_json::Error> {
        let text = self.as_str();
        let quoted = text
            .strip_prefix('"')
            .and_then(|text| text.strip_suffix('"'));
        match quoted.filter(|text| !text.contains('\\')) {
            Some(text) => Ok(Cow::Borrowed(text)),
            None => serde_json::from_str(text).map(Cow::Owned),
        }
    }

    /// Returns a part of this text, found by decoding it to a borrowed [`RawValue`], without copying.
    ///
    /// # Panics
    ///
    /// If `part` does not borrow from this text.
    #[must_use]
    pub fn part(&self, part: &RawValue) -> Self {
        Self::from_raw(&self.0, part)
    }

    /// Returns a part of `text`, found by decoding it to a borrowed [`RawValue`], without copying.
    ///
    /// # Panics
    ///
    /// If `part` does not borrow from `text`.
    #[must_use]
    pub fn from_raw(text: &Bytes, part: &RawValue) -> Self {
        Self(text.slice_ref(part.get().as_bytes()))
    }

    /// Returns a part of `text` that is known to be exactly one JSON value, without copying.
    ///
    /// # Panics
    ///
    /// If `part` does not borrow from `text`. Text that is not JSON is not detected until it is decoded.
    #[must_use]
    pub fn from_checked(text: &Bytes, part: &str) -> Self {
        Self(text.slice_ref(part.as_bytes()))
    }

    /// Returns a part of this text that is a JSON value too, without copying.
    ///
    /// # Panics
    ///
    /// If `part` does not borrow from this text, or begins or ends within a character.
    #[must_use]
    pub fn slice(&self, part: &[u8]) -> Self {
        let slice = self.0.slice_ref(part);
        let before = slice.as_ptr().addr() - self.0.as_ptr().addr();
        let begins_a_character = |at: usize| {
            // In UTF-8 only continuation bytes begin with the bits 10.
            self.0.get(at).is_none_or(|byte| byte & 0xC0 != 0x80)
        };
        assert!(
            begins_a_character(before) && begins_a_character(before + part.len()),
            "JSON text is UTF-8"
        );
        Self(slice)
    }

    /// Returns a copy that does not keep the message alive that this is a slice of.
    #[must_use]
    pub fn to_unshared(&self) -> Self {
        Self(Bytes::copy_from_slice(&self.0))
    }

    /// Creates an object from members, in their order.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline_types::Json;
    ///
    /// let one = Json::encode(&1)?;
    /// assert_eq!(Json::object([("a", &one), ("b", &one)]).as_str(), r#"{"a":1,"b":1}"#);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    #[must_use]
    pub fn object<'a, I>(members: I) -> Self
    where
        I: IntoIterator<Item = (&'a str, &'a Self), IntoIter: Clone>,
    {
        let members = members.into_iter();
        let lengths = members
            .clone()
            .map(|(name, value)| name.len() + value.0.len() + 4);
        // All parts are UTF-8 already, so the result is not checked again.
        let mut text = Vec::with_capacity(lengths.sum::<usize>() + 2);
        text.push(b'{');
        for (name, value) in members {
            if text.len() > 1 {
                text.push(b',');
            }
            push_string(&mut text, name);
            text.push(b':');
            text.extend_from_slice(&value.0);
        }
        text.push(b'}');
        Self(text.into())
    }

    /// Removes the end of an object, so that members can be appended; `None` if it is not an object.
    ///
    /// The text is not copied unless it is shared.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline_types::Json;
    ///
    /// let one = Json::encode(&1)?;
    /// let mut writer = Json::parse(r#"{"a": 1}"#)?.into_writer().unwrap();
    /// writer.add("b", &one);
    /// writer.begin("c");
    /// writer.add("d", &one);
    /// writer.end();
    /// assert_eq!(writer.close().as_str(), r#"{"a": 1,"b":1,"c":{"d":1}}"#);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    #[must_use]
    pub fn into_writer(self) -> Option<JsonObjectWriter> {
        if !self.is_object() {
            return None;
        }
        let mut text = Vec::from(self.0);
        let end = text.iter().rposition(|byte| *byte == b'}')?;
        text.truncate(end);
        text.truncate(text.trim_ascii_end().len());
        Some(JsonObjectWriter { text })
    }

    /// Returns the empty object, `{}`.
    #[must_use]
    pub fn empty_object() -> Self {
        Self::from_static("{}")
    }

    /// Returns the literal `null`.
    #[must_use]
    pub fn null() -> Self {
        Self::from_static("null")
    }

    /// Returns whether the value is the literal `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        &*self.0 == b"null"
    }

    /// Returns whether the value is an object.
    #[must_use]
    pub fn is_object(&self) -> bool {
        self.0.first() == Some(&b'{')
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("a `Json` contains valid UTF-8 only")
    }

    /// Returns the text as bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the text as a shared buffer.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

/// Appends members to a JSON object; created by [`Json::into_writer`].
#[derive(Debug)]
#[must_use = "the object is incomplete until `close` is called"]
pub struct JsonObjectWriter {
    /// UTF-8, because only JSON text is appended.
    text: Vec<u8>,
}

impl JsonObjectWriter {
    /// Creates an object with capacity for members of about `length` bytes.
    pub(crate) fn with_capacity(length: usize) -> Self {
        // Leaves room for escapes, and for members that are added later.
        let mut text = Vec::with_capacity(length + length / 16 + INITIAL_CAPACITY);
        text.push(b'{');
        Self { text }
    }

    /// Adds a member, serialized by serde.
    pub(crate) fn add_encoded(
        &mut self,
        name: &str,
        value: &impl Serialize,
    ) -> Result<(), serde_json::Error> {
        self.push_name(name);
        serde_json::to_writer(&mut self.text, value)
    }

    /// Adds a member that is an array, whose items `push` appends.
    pub(crate) fn add_list<T>(
        &mut self,
        name: &str,
        items: &[T],
        push: impl Fn(&T, &mut Vec<u8>) -> Result<(), serde_json::Error>,
    ) -> Result<(), serde_json::Error> {
        self.push_name(name);
        self.text.push(b'[');
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                self.text.push(b',');
            }
            push(item, &mut self.text)?;
        }
        self.text.push(b']');
        Ok(())
    }

    /// Reserves capacity for members of about `length` bytes.
    pub fn reserve(&mut self, length: usize) {
        self.text.reserve(length);
    }

    /// Adds a member to the object that was begun last.
    pub fn add(&mut self, name: &str, value: &Json) {
        // Includes the punctuation and the end, so that the text is reallocated at most once.
        self.text.reserve(name.len() + value.0.len() + 8);
        self.push_name(name);
        self.text.extend_from_slice(&value.0);
    }

    /// Begins a member that is an object itself.
    pub fn begin(&mut self, name: &str) {
        self.push_name(name);
        self.text.push(b'{');
    }

    /// Ends the member that was begun last.
    pub fn end(&mut self) {
        self.text.push(b'}');
    }

    /// Ends the object and returns it.
    #[must_use]
    pub fn close(mut self) -> Json {
        self.text.push(b'}');
        Json(self.text.into())
    }

    fn push_name(&mut self, name: &str) {
        if self.text.last() != Some(&b'{') {
            self.text.push(b',');
        }
        push_string(&mut self.text, name);
        self.text.push(b':');
    }
}

impl From<Value> for Json {
    fn from(value: Value) -> Self {
        Self(value.to_string().into())
    }
}

impl From<Box<RawValue>> for Json {
    fn from(raw: Box<RawValue>) -> Self {
        Self(Box::<str>::from(raw).into_string().into())
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Borrowing as a `RawValue` scans the text again, but only a `RawValue` passes through serde
        // verbatim without `unsafe`. Encoding a message writes the bytes directly instead.
        let raw: &RawValue =
            serde_json::from_slice(&self.0).map_err(|_| serde::ser::Error::custom("not JSON"))?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self::from)
    }
}

/// Deserializes a present member to `Some`, even if it is `null`, which [`Option`] alone reads as `None`.
pub(crate) fn deserialize_present<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}

/// The initial capacity: enough for most values and for members that are added later.
const INITIAL_CAPACITY: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn text_is_kept_as_it_is() {
        let json = Json::parse(r#" {"b": 1, "a": 1.0} "#).unwrap();

        assert_eq!(json.as_str(), r#"{"b": 1, "a": 1.0}"#);
        assert_eq!(
            serde_json::to_string(&json).unwrap(),
            r#"{"b": 1, "a": 1.0}"#
        );
    }

    #[test]
    fn anything_but_one_json_value_is_rejected() {
        for text in ["", "{", "1 2", "nul", "\u{0}", "{\"a\":}"] {
            assert!(Json::parse(text).is_err(), "{text:?} was accepted as JSON");
        }
    }

    #[test]
    fn a_string_is_borrowed_unless_it_is_escaped() {
        let (plain, escaped) = (r#""é'""#, r#""\"\u00e9\\""#);
        let borrowed = Json::from_static(plain);

        assert!(matches!(borrowed.text(), Ok(Cow::Borrowed("é'"))));
        assert_eq!(Json::from_static(escaped).text().unwrap(), "\"é\\");
        for text in ["1", "null", "[\"\"]", r#""\ud800""#] {
            assert!(Json::from_static(text).text().is_err(), "{text}");
        }
    }

    #[test]
    fn members_are_appended_to_existing_ones() {
        let value = Json::from(json!([1]));
        for (before, after) in [
            ("{}", r#"{"\"":[1]}"#),
            ("{ }", r#"{"\"":[1]}"#),
            (r#"{"a": {} }"#, r#"{"a": {},"\"":[1]}"#),
        ] {
            let json = Json::parse(before).unwrap();
            let shared = json.clone();

            let mut writer = json.into_writer().unwrap();
            writer.add("\"", &value);

            assert_eq!(writer.close().as_str(), after);
            assert_eq!(shared.as_str(), before);
        }
    }

    #[test]
    fn unshared_text_is_not_copied() {
        let mut text = Vec::with_capacity(100);
        text.extend_from_slice(b"{}");
        let at = text.as_ptr();
        let json = Json::parse(text).unwrap();

        let mut writer = json.into_writer().unwrap();
        writer.add("a", &Json::null());

        assert_eq!(writer.close().as_bytes().as_ptr(), at);
    }

    #[test]
    fn only_an_object_can_be_extended() {
        for text in ["[]", "1", "null", r#""{}""#] {
            assert!(Json::parse(text).unwrap().into_writer().is_none(), "{text}");
        }
    }

    #[test]
    fn a_part_is_a_slice_of_the_whole() {
        let whole = Json::from(json!({"a": [1, 2]}));

        let object: std::collections::BTreeMap<&str, &RawValue> = whole.decode().unwrap();

        assert_eq!(whole.part(object["a"]).as_str(), "[1,2]");
    }
}
