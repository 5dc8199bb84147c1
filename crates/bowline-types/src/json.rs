//! JSON text that nobody has looked into yet.
//!
//! Params and results travel as [`Json`] and are decoded once, straight into the type that the method
//! names. A [`Json`] is a slice of the frame it arrived in: cloning it copies no text.

mod escape;
pub(crate) use escape::push_text;

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
    /// Checks that `text` is exactly one JSON value in UTF-8 and keeps it as it is.
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

    /// Takes text that is already known to be exactly one JSON value, such as a [`RawValue`]'s.
    ///
    /// # Panics
    ///
    /// If `text` is not UTF-8. Text that is not JSON is not noticed here, but by whoever decodes it.
    #[must_use]
    pub fn from_valid(text: Bytes) -> Self {
        assert!(std::str::from_utf8(&text).is_ok(), "JSON text is UTF-8");
        Self(text)
    }

    /// Takes text of the program's own that is exactly one JSON value.
    #[must_use]
    pub const fn from_static(text: &'static str) -> Self {
        Self(Bytes::from_static(text.as_bytes()))
    }

    /// Encodes `value`.
    ///
    /// # Errors
    ///
    /// If `value` has no JSON form, such as a map whose keys are not strings.
    pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        let mut text = Vec::with_capacity(USUAL);
        serde_json::to_writer(&mut text, value)?;
        Ok(Self(text.into()))
    }

    /// Decodes the text into `T`, which may borrow from it.
    ///
    /// # Errors
    ///
    /// If the text does not have the shape of `T`.
    pub fn decode<'de, T: Deserialize<'de>>(&'de self) -> Result<T, serde_json::Error> {
        // Checked as a whole it costs less than string by string.
        serde_json::from_str(self.as_str())
    }

    /// Appends `text` to `out` as a JSON string.
    ///
    /// # Examples
    ///
    /// ```
    /// let mut out = Vec::new();
    /// bowline_types::Json::push_text(&mut out, "a\nb");
    /// assert_eq!(out, br#""a\nb""#);
    /// ```
    pub fn push_text(out: &mut Vec<u8>, text: &str) {
        push_text(out, text);
    }

    /// Decodes a string, which is borrowed unless it is written with escapes.
    ///
    /// # Errors
    ///
    /// If the value is no string.
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

    /// Takes a part of this text, found by decoding it to a borrowed [`RawValue`], without copying.
    ///
    /// # Panics
    ///
    /// If `part` does not borrow from this text.
    #[must_use]
    pub fn part(&self, part: &RawValue) -> Self {
        Self::from_raw(&self.0, part)
    }

    /// Takes a part of `text`, found by decoding it to a borrowed [`RawValue`], without copying.
    ///
    /// # Panics
    ///
    /// If `part` does not borrow from `text`.
    #[must_use]
    pub fn from_raw(text: &Bytes, part: &RawValue) -> Self {
        Self(text.slice_ref(part.get().as_bytes()))
    }

    /// Takes a part of `text` that is already known to be exactly one JSON value, without copying.
    ///
    /// # Panics
    ///
    /// If `part` does not borrow from `text`. Text that is not JSON is not noticed here, but by whoever
    /// decodes it.
    #[must_use]
    pub fn from_checked(text: &Bytes, part: &str) -> Self {
        Self(text.slice_ref(part.as_bytes()))
    }

    /// Takes a part of this text that is a value too, without copying.
    ///
    /// # Panics
    ///
    /// If `part` does not borrow from this text, or begins or ends within a character.
    #[must_use]
    pub fn slice(&self, part: &[u8]) -> Self {
        let slice = self.0.slice_ref(part);
        let before = slice.as_ptr().addr() - self.0.as_ptr().addr();
        let begins_a_character = |at: usize| {
            // Of the bytes of a character only those after the first begin with the bits 10.
            self.0.get(at).is_none_or(|byte| byte & 0xC0 != 0x80)
        };
        assert!(
            begins_a_character(before) && begins_a_character(before + part.len()),
            "JSON text is UTF-8"
        );
        Self(slice)
    }

    /// A copy that holds on to nothing else: the frame that this was taken from may go.
    #[must_use]
    pub fn to_unshared(&self) -> Self {
        Self(Bytes::copy_from_slice(&self.0))
    }

    /// Joins members to an object, in their order.
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
        // Made of text that is UTF-8 already, so nothing is looked at twice.
        let mut text = Vec::with_capacity(lengths.sum::<usize>() + 2);
        text.push(b'{');
        for (name, value) in members {
            if text.len() > 1 {
                text.push(b',');
            }
            push_text(&mut text, name);
            text.push(b':');
            text.extend_from_slice(&value.0);
        }
        text.push(b'}');
        Self(text.into())
    }

    /// Opens an object at its end, for members to be added to it; `None` if it is no object.
    ///
    /// Where nobody else holds the text, it is not copied.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline_types::Json;
    ///
    /// let one = Json::encode(&1)?;
    /// let mut open = Json::parse(r#"{"a": 1}"#)?.into_open().unwrap();
    /// open.add("b", &one);
    /// open.begin("c");
    /// open.add("d", &one);
    /// open.end();
    /// assert_eq!(open.close().as_str(), r#"{"a": 1,"b":1,"c":{"d":1}}"#);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    #[must_use]
    pub fn into_open(self) -> Option<OpenObject> {
        if !self.is_object() {
            return None;
        }
        let mut text = Vec::from(self.0);
        let end = text.iter().rposition(|byte| *byte == b'}')?;
        text.truncate(end);
        text.truncate(text.trim_ascii_end().len());
        Some(OpenObject { text })
    }

    /// The empty object, `{}`.
    #[must_use]
    pub fn empty_object() -> Self {
        Self::from_static("{}")
    }

    /// The literal `null`.
    #[must_use]
    pub fn null() -> Self {
        Self::from_static("null")
    }

    /// Whether the value is the literal `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        &*self.0 == b"null"
    }

    /// Whether the value is an object.
    #[must_use]
    pub fn is_object(&self) -> bool {
        self.0.first() == Some(&b'{')
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("a `Json` is made from valid UTF-8 only")
    }

    /// The text as bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text as a shared buffer.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

/// An object whose end is still to be written.
#[derive(Debug)]
#[must_use = "an object is complete when it is closed"]
pub struct OpenObject {
    /// UTF-8, for nothing but JSON text was ever put into it.
    text: Vec<u8>,
}

impl OpenObject {
    /// An object with room for members of about so many bytes.
    pub(crate) fn with_room_for(length: usize) -> Self {
        // Some of it may have to be escaped, and something may be added on the way.
        let mut text = Vec::with_capacity(length + length / 16 + USUAL);
        text.push(b'{');
        Self { text }
    }

    /// Adds a member, encoded by serde.
    pub(crate) fn encode(
        &mut self,
        name: &str,
        value: &impl Serialize,
    ) -> Result<(), serde_json::Error> {
        self.push_name(name);
        serde_json::to_writer(&mut self.text, value)
    }

    /// Adds a member that is a list, whose items append themselves.
    pub(crate) fn list<T>(
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

    /// Makes room for members of about so many bytes.
    pub fn reserve(&mut self, length: usize) {
        self.text.reserve(length);
    }

    /// Adds a member to the object that was begun last.
    pub fn add(&mut self, name: &str, value: &Json) {
        // With what stands around the two, and the end, so that the text moves once.
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

    /// Ends the object itself.
    #[must_use]
    pub fn close(mut self) -> Json {
        self.text.push(b'}');
        Json(self.text.into())
    }

    fn push_name(&mut self, name: &str) {
        if self.text.last() != Some(&b'{') {
            self.text.push(b',');
        }
        push_text(&mut self.text, name);
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
        // Borrowing as a `RawValue` scans the text once more; it is the price of writing it unescaped
        // through serde without `unsafe`. The message path writes the bytes directly instead.
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

/// Reads a member that is there, even if it is `null`, for which [`Option`] alone reads nothing.
pub(crate) fn present<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}

/// Room for most values, and for what may be added to them on their way.
const USUAL: usize = 256;

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
    fn anything_but_one_value_is_refused() {
        for text in ["", "{", "1 2", "nul", "\u{0}", "{\"a\":}"] {
            assert!(Json::parse(text).is_err(), "{text:?} was taken for JSON");
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
    fn members_are_added_behind_those_that_stand() {
        let value = Json::from(json!([1]));
        for (before, after) in [
            ("{}", r#"{"\"":[1]}"#),
            ("{ }", r#"{"\"":[1]}"#),
            (r#"{"a": {} }"#, r#"{"a": {},"\"":[1]}"#),
        ] {
            let json = Json::parse(before).unwrap();
            let held_by_another = json.clone();

            let mut open = json.into_open().unwrap();
            open.add("\"", &value);

            assert_eq!(open.close().as_str(), after);
            assert_eq!(held_by_another.as_str(), before);
        }
    }

    #[test]
    fn what_nobody_else_holds_is_not_copied_to_be_added_to() {
        let mut text = Vec::with_capacity(100);
        text.extend_from_slice(b"{}");
        let at = text.as_ptr();
        let json = Json::parse(text).unwrap();

        let mut open = json.into_open().unwrap();
        open.add("a", &Json::null());

        assert_eq!(open.close().as_bytes().as_ptr(), at);
    }

    #[test]
    fn nothing_but_an_object_can_be_added_to() {
        for text in ["[]", "1", "null", r#""{}""#] {
            assert!(Json::parse(text).unwrap().into_open().is_none(), "{text}");
        }
    }

    #[test]
    fn a_part_shares_the_whole() {
        let whole = Json::from(json!({"a": [1, 2]}));

        let object: std::collections::BTreeMap<&str, &RawValue> = whole.decode().unwrap();

        assert_eq!(whole.part(object["a"]).as_str(), "[1,2]");
    }
}
