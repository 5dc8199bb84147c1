//! The content blocks of tool results and prompts; `sampling.rs` has its own union of some of these structs.
//!
//! The member `type` selects the variant. A block of unknown type is kept as [`UnknownContent`], so that it
//! does not invalidate the result that contains it.

use std::collections::BTreeMap;

use serde::de::{Deserializer, MapAccess};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};

use crate::json::push_string;
use crate::union::{self, TaggedUnion};
use crate::{InvalidBase64, Json, Meta, Resource, ResourceContents, binary};

/// One block of content in a prompt or a tool's result.
///
/// # Examples
///
/// ```
/// use bowline_types::ContentBlock;
///
/// let block = ContentBlock::text("done");
/// assert_eq!(serde_json::to_string(&block)?, r#"{"type":"text","text":"done"}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ContentBlock {
    /// Text.
    Text(TextContent),
    /// An image.
    Image(ImageContent),
    /// Audio (from 2025-03-26).
    Audio(AudioContent),
    /// A link to a resource (from 2025-06-18).
    ResourceLink(Box<ResourceLink>),
    /// A resource with its contents.
    Resource(Box<EmbeddedResource>),
    /// A block of unknown type.
    Unknown(UnknownContent),
}

impl ContentBlock {
    /// Creates a block of text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        TextContent::new(text).into()
    }

    /// Creates an image from its bytes.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline_types::ContentBlock;
    ///
    /// let block = ContentBlock::image([0x89, b'P', b'N', b'G'], "image/png");
    /// assert_eq!(
    ///     serde_json::to_string(&block)?,
    ///     r#"{"type":"image","data":"iVBORw==","mimeType":"image/png"}"#
    /// );
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    #[must_use]
    pub fn image(bytes: impl AsRef<[u8]>, mime_type: impl Into<String>) -> Self {
        ImageContent::from_bytes(bytes, mime_type).into()
    }

    /// Creates audio from its bytes.
    #[must_use]
    pub fn audio(bytes: impl AsRef<[u8]>, mime_type: impl Into<String>) -> Self {
        AudioContent::from_bytes(bytes, mime_type).into()
    }

    /// Returns the text, if it is a block of text.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(content) => Some(&content.text),
            _ => None,
        }
    }

    /// Appends the block as JSON, with the same output as `Serialize`, faster for plain text.
    pub(crate) fn push(&self, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        if let Self::Text(content) = self
            && let TextContent {
                text,
                annotations: None,
                meta: None,
            } = content
        {
            out.extend_from_slice(br#"{"type":"text","text":"#);
            push_string(out, text);
            out.push(b'}');
            return Ok(());
        }
        serde_json::to_writer(out, self)
    }

    /// Estimates the encoded length from below, for the capacity of a buffer; 0 for resources and unknown blocks.
    pub(crate) fn payload_len(&self) -> usize {
        match self {
            Self::Text(content) => content.text.len(),
            Self::Image(content) => content.data.len(),
            Self::Audio(content) => content.data.len(),
            _ => 0,
        }
    }
}

impl From<TextContent> for ContentBlock {
    fn from(content: TextContent) -> Self {
        Self::Text(content)
    }
}

impl From<ImageContent> for ContentBlock {
    fn from(content: ImageContent) -> Self {
        Self::Image(content)
    }
}

impl From<AudioContent> for ContentBlock {
    fn from(content: AudioContent) -> Self {
        Self::Audio(content)
    }
}

impl From<ResourceLink> for ContentBlock {
    fn from(content: ResourceLink) -> Self {
        Self::ResourceLink(Box::new(content))
    }
}

impl From<EmbeddedResource> for ContentBlock {
    fn from(content: EmbeddedResource) -> Self {
        Self::Resource(Box::new(content))
    }
}

impl Serialize for ContentBlock {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(content) => content.serialize(serializer),
            Self::Image(content) => content.serialize(serializer),
            Self::Audio(content) => content.serialize(serializer),
            Self::ResourceLink(content) => content.serialize(serializer),
            Self::Resource(content) => content.serialize(serializer),
            Self::Unknown(content) => content.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ContentBlock {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        union::read(deserializer)
    }
}

impl TaggedUnion for ContentBlock {
    const TAG: &'static str = "type";
    const EXPECTED: &'static str = "a content block";

    fn read<'de, A: MapAccess<'de>>(tag: &str, rest: A) -> Result<Self, A::Error> {
        Ok(match tag {
            "text" => Self::Text(union::variant(rest)?),
            "image" => Self::Image(union::variant(rest)?),
            "audio" => Self::Audio(union::variant(rest)?),
            "resource_link" => Self::ResourceLink(union::variant(rest)?),
            "resource" => Self::Resource(union::variant(rest)?),
            _ => Self::Unknown(UnknownContent::read(tag, rest)?),
        })
    }
}

/// Text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "text")]
#[non_exhaustive]
pub struct TextContent {
    /// The text.
    pub text: String,
    /// Hints about audience, priority and age.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Annotations>,
    /// The `_meta` of the block (from 2025-06-18).
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl TextContent {
    /// Creates a block of text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            annotations: None,
            meta: None,
        }
    }
}

/// An image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "image", rename_all = "camelCase")]
#[non_exhaustive]
pub struct ImageContent {
    /// The image in base64.
    pub data: String,
    /// The media type.
    pub mime_type: String,
    /// Hints about audience, priority and age.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Annotations>,
    /// The `_meta` of the block (from 2025-06-18).
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl ImageContent {
    /// Creates an image from base64 data.
    #[must_use]
    pub fn new(data: impl Into<String>, mime_type: impl Into<String>) -> Self {
        Self {
            data: data.into(),
            mime_type: mime_type.into(),
            annotations: None,
            meta: None,
        }
    }

    /// Creates an image from its bytes, as base64.
    #[must_use]
    pub fn from_bytes(bytes: impl AsRef<[u8]>, mime_type: impl Into<String>) -> Self {
        Self::new(binary::encode(bytes), mime_type)
    }

    /// Decodes [`data`](Self::data).
    ///
    /// # Errors
    ///
    /// If it is not base64.
    pub fn bytes(&self) -> Result<Vec<u8>, InvalidBase64> {
        binary::decode(&self.data)
    }
}

/// Audio.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "audio", rename_all = "camelCase")]
#[non_exhaustive]
pub struct AudioContent {
    /// The audio data in base64.
    pub data: String,
    /// The media type.
    pub mime_type: String,
    /// Hints about audience, priority and age.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Annotations>,
    /// The `_meta` of the block (from 2025-06-18).
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl AudioContent {
    /// Creates audio from base64 data.
    #[must_use]
    pub fn new(data: impl Into<String>, mime_type: impl Into<String>) -> Self {
        Self {
            data: data.into(),
            mime_type: mime_type.into(),
            annotations: None,
            meta: None,
        }
    }

    /// Creates audio from its bytes, as base64.
    #[must_use]
    pub fn from_bytes(bytes: impl AsRef<[u8]>, mime_type: impl Into<String>) -> Self {
        Self::new(binary::encode(bytes), mime_type)
    }

    /// Decodes [`data`](Self::data).
    ///
    /// # Errors
    ///
    /// If it is not base64.
    pub fn bytes(&self) -> Result<Vec<u8>, InvalidBase64> {
        binary::decode(&self.data)
    }
}

/// A link to a resource: a [`Resource`] as a content block.
#[derive(Clone, Debug, PartialEq)]
#[allow(
    clippy::exhaustive_structs,
    reason = "a resource with a `type`, by definition"
)]
pub struct ResourceLink(pub Resource);

impl Serialize for ResourceLink {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(tag = "type", rename = "resource_link")]
        struct Tagged<'a> {
            #[serde(flatten)]
            resource: &'a Resource,
        }

        Tagged { resource: &self.0 }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ResourceLink {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Resource::deserialize(deserializer).map(Self)
    }
}

/// A resource with its contents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "resource")]
#[non_exhaustive]
pub struct EmbeddedResource {
    /// The contents.
    pub resource: ResourceContents,
    /// Hints about audience, priority and age.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Annotations>,
    /// The `_meta` of the block (from 2025-06-18).
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl EmbeddedResource {
    /// Creates a block with these contents.
    #[must_use]
    pub fn new(resource: impl Into<ResourceContents>) -> Self {
        Self {
            resource: resource.into(),
            annotations: None,
            meta: None,
        }
    }
}

/// A content block of unknown type, kept as received.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownContent {
    /// The `type` of the block.
    pub kind: String,
    /// The other members.
    pub members: BTreeMap<String, Json>,
}

impl UnknownContent {
    /// Creates a block of a type that this crate does not define.
    #[must_use]
    pub fn new(kind: impl Into<String>, members: BTreeMap<String, Json>) -> Self {
        Self {
            kind: kind.into(),
            members,
        }
    }

    pub(crate) fn read<'de, A: MapAccess<'de>>(tag: &str, rest: A) -> Result<Self, A::Error> {
        let mut members: BTreeMap<String, Json> = union::variant(rest)?;
        // A duplicate `type` member would be written after the first, and parsers disagree on which one counts.
        members.remove(ContentBlock::TAG);
        Ok(Self::new(tag, members))
    }
}

impl Serialize for UnknownContent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.members.len() + 1))?;
        map.serialize_entry("type", &self.kind)?;
        for (name, value) in &self.members {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// Hints about the audience, priority and age of content or a resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Annotations {
    /// The intended audience.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<Vec<Role>>,
    /// The importance: from 0, optional, to 1, required.
    #[serde(
        default,
        with = "crate::number::optional_measure",
        skip_serializing_if = "Option::is_none"
    )]
    pub priority: Option<f64>,
    /// The time of the last modification in ISO 8601 (from 2025-06-18).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_modified: Option<String>,
}

/// The author of a message, or an intended reader of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(
    clippy::exhaustive_enums,
    reason = "every revision has exactly these two"
)]
pub enum Role {
    /// The user.
    User,
    /// The model.
    Assistant,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn round_trip(text: &str) -> (ContentBlock, Value) {
        let block: ContentBlock = serde_json::from_str(text).unwrap();
        let value = serde_json::to_value(&block).unwrap();
        (block, value)
    }

    #[test]
    fn the_type_may_come_last() {
        let text = r#"{"text":"hi","_meta":{"n":1.0},"type":"text"}"#;

        let (block, value) = round_trip(text);

        assert_eq!(block.as_text(), Some("hi"));
        assert_eq!(value, serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn a_kind_of_block_that_is_not_known_survives() {
        for text in [
            r#"{"type":"hologram","depth":1.0,"layers":[{"a":null}]}"#,
            r#"{"depth":1.0,"type":"hologram","layers":[{"a":null}]}"#,
        ] {
            let (block, value) = round_trip(text);

            assert!(matches!(&block, ContentBlock::Unknown(unknown) if unknown.kind == "hologram"));
            assert_eq!(value, serde_json::from_str::<Value>(text).unwrap());
        }
    }

    #[test]
    fn a_second_type_is_not_written_back() {
        let (_, value) = round_trip(r#"{"type":"hologram","type":"text"}"#);

        assert_eq!(value, json!({"type": "hologram"}));
    }

    #[test]
    fn a_block_without_a_type_is_refused() {
        let error = serde_json::from_str::<ContentBlock>(r#"{"text":"hi"}"#).unwrap_err();

        assert!(
            error.to_string().contains("missing field `type`"),
            "{error}"
        );
    }

    #[test]
    fn a_known_block_with_a_member_missing_is_refused() {
        assert!(serde_json::from_str::<ContentBlock>(r#"{"type":"text"}"#).is_err());
        assert!(serde_json::from_str::<ContentBlock>(r#"{"data":"","type":"image"}"#).is_err());
    }

    #[test]
    fn blocks_are_read_from_a_value_too() {
        let value = json!({"type": "resource", "resource": {"uri": "a:b", "blob": "AA=="}});

        let block: ContentBlock = serde_json::from_value(value.clone()).unwrap();

        assert_eq!(serde_json::to_value(block).unwrap(), value);
    }

    #[test]
    fn bytes_survive_the_way_through_json() {
        let bytes: Vec<u8> = (0..=255).collect();
        let image = ImageContent::from_bytes(&bytes, "image/png");
        let audio = AudioContent::from_bytes([], "audio/wav");

        let image: ImageContent =
            serde_json::from_str(&serde_json::to_string(&image).unwrap()).unwrap();

        assert_eq!(image.bytes().unwrap(), bytes);
        assert_eq!(audio.bytes().unwrap(), [0_u8; 0]);
        assert_eq!(ContentBlock::image(&bytes, "image/png"), image.into());
        assert_eq!(ContentBlock::audio([], "audio/wav"), audio.into());
    }

    #[test]
    fn text_that_is_not_base64_is_an_error() {
        for data in ["x", "a b=", "_-8=", "AAA"] {
            assert!(
                ImageContent::new(data, "image/png").bytes().is_err(),
                "{data}"
            );
        }
    }
}
