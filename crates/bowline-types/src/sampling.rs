//! Sampling: a server requests a message from the client's model (`sampling/createMessage`).
//!
//! Message content is one block or a list; serializing preserves which. Blocks of unknown type are kept.

use std::borrow::Cow;
use std::fmt;
use std::slice;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use crate::json::deserialize_present;
use crate::legacy_tasks::TaskMetadata;
use crate::number::count;
use crate::open_string_enum::open_string_enum;
use crate::union::{self, TaggedUnion};
use crate::{
    AudioContent, ContentBlock, ImageContent, Json, Meta, Role, TextContent, Tool, UnknownContent,
};

/// The params of `sampling/createMessage`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CreateMessageRequestParams {
    /// The conversation so far.
    pub messages: Vec<SamplingMessage>,
    /// The model preferences of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_preferences: Option<ModelPreferences>,
    /// The system prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// The context that the client should include.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include_context: Option<IncludeContext>,
    /// The sampling temperature.
    #[serde(
        default,
        with = "crate::number::optional_measure",
        skip_serializing_if = "Option::is_none"
    )]
    pub temperature: Option<f64>,
    /// The maximum number of tokens to generate.
    #[serde(deserialize_with = "count")]
    pub max_tokens: u64,
    /// The stop sequences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_sequences: Option<Vec<String>>,
    /// Metadata for the model provider: an object in a provider-specific format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
    /// The tools that the model may use (from 2025-11-25).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<Tool>>,
    /// Whether the model must use a tool (from 2025-11-25).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// Requests execution as a task (2025-11-25 only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskMetadata>,
    /// The `_meta` of the request (until 2025-11-25).
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl CreateMessageRequestParams {
    /// Creates params with messages and a maximum number of tokens.
    #[must_use]
    pub fn new(messages: Vec<SamplingMessage>, max_tokens: u64) -> Self {
        Self {
            messages,
            model_preferences: None,
            system_prompt: None,
            include_context: None,
            temperature: None,
            max_tokens,
            stop_sequences: None,
            metadata: None,
            tools: None,
            tool_choice: None,
            task: None,
            meta: None,
        }
    }
}

/// The result of `sampling/createMessage`: the message of the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CreateMessageResult {
    /// The role of the sender.
    pub role: Role,
    /// The content.
    pub content: SamplingContent,
    /// The name of the model.
    pub model: String,
    /// Why the model stopped, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    /// The `_meta` of the result.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl CreateMessageResult {
    /// Creates a result with the role `assistant`.
    #[must_use]
    pub fn new(model: impl Into<String>, content: impl Into<SamplingContent>) -> Self {
        Self {
            role: Role::Assistant,
            content: content.into(),
            model: model.into(),
            stop_reason: None,
            meta: None,
        }
    }
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SamplingMessage {
    /// The role of the sender.
    pub role: Role,
    /// The content.
    pub content: SamplingContent,
    /// The `_meta` of the message (from 2025-11-25).
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl SamplingMessage {
    /// Creates a message.
    #[must_use]
    pub fn new(role: Role, content: impl Into<SamplingContent>) -> Self {
        Self {
            role,
            content: content.into(),
            meta: None,
        }
    }
}

/// The content of a message: one block, or from 2025-11-25 a list of them.
#[derive(Clone, Debug, PartialEq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "the specification allows exactly these two"
)]
pub enum SamplingContent {
    /// One block.
    One(SamplingMessageContentBlock),
    /// A list of blocks.
    Many(Vec<SamplingMessageContentBlock>),
}

impl SamplingContent {
    /// Returns the blocks.
    #[must_use]
    pub fn blocks(&self) -> &[SamplingMessageContentBlock] {
        match self {
            Self::One(block) => slice::from_ref(block),
            Self::Many(blocks) => blocks,
        }
    }
}

impl<T: Into<SamplingMessageContentBlock>> From<T> for SamplingContent {
    fn from(block: T) -> Self {
        Self::One(block.into())
    }
}

impl From<Vec<SamplingMessageContentBlock>> for SamplingContent {
    fn from(blocks: Vec<SamplingMessageContentBlock>) -> Self {
        Self::Many(blocks)
    }
}

impl Serialize for SamplingContent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::One(block) => block.serialize(serializer),
            Self::Many(blocks) => blocks.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for SamplingContent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrManyVisitor;

        impl<'de> Visitor<'de> for OneOrManyVisitor {
            type Value = SamplingContent;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a content block or a list of them")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<SamplingContent, A::Error> {
                Deserialize::deserialize(MapAccessDeserializer::new(map)).map(SamplingContent::One)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<SamplingContent, A::Error> {
                Deserialize::deserialize(SeqAccessDeserializer::new(seq)).map(SamplingContent::Many)
            }
        }

        deserializer.deserialize_any(OneOrManyVisitor)
    }
}

/// One block of a message.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SamplingMessageContentBlock {
    /// Text.
    Text(TextContent),
    /// An image.
    Image(ImageContent),
    /// Audio (from 2025-03-26).
    Audio(AudioContent),
    /// The model uses a tool (from 2025-11-25).
    ToolUse(ToolUseContent),
    /// The result of a tool use (from 2025-11-25).
    ToolResult(ToolResultContent),
    /// A block of unknown type.
    Unknown(UnknownContent),
}

impl From<TextContent> for SamplingMessageContentBlock {
    fn from(content: TextContent) -> Self {
        Self::Text(content)
    }
}

impl From<ImageContent> for SamplingMessageContentBlock {
    fn from(content: ImageContent) -> Self {
        Self::Image(content)
    }
}

impl From<AudioContent> for SamplingMessageContentBlock {
    fn from(content: AudioContent) -> Self {
        Self::Audio(content)
    }
}

impl From<ToolUseContent> for SamplingMessageContentBlock {
    fn from(content: ToolUseContent) -> Self {
        Self::ToolUse(content)
    }
}

impl From<ToolResultContent> for SamplingMessageContentBlock {
    fn from(content: ToolResultContent) -> Self {
        Self::ToolResult(content)
    }
}

impl Serialize for SamplingMessageContentBlock {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(content) => content.serialize(serializer),
            Self::Image(content) => content.serialize(serializer),
            Self::Audio(content) => content.serialize(serializer),
            Self::ToolUse(content) => content.serialize(serializer),
            Self::ToolResult(content) => content.serialize(serializer),
            Self::Unknown(content) => content.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for SamplingMessageContentBlock {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        union::read(deserializer)
    }
}

impl TaggedUnion for SamplingMessageContentBlock {
    const TAG: &'static str = "type";
    const EXPECTED: &'static str = "a content block";

    fn read<'de, A: MapAccess<'de>>(tag: &str, rest: A) -> Result<Self, A::Error> {
        Ok(match tag {
            "text" => Self::Text(union::variant(rest)?),
            "image" => Self::Image(union::variant(rest)?),
            "audio" => Self::Audio(union::variant(rest)?),
            "tool_use" => Self::ToolUse(union::variant(rest)?),
            "tool_result" => Self::ToolResult(union::variant(rest)?),
            _ => Self::Unknown(UnknownContent::read(tag, rest)?),
        })
    }
}

/// The use of a tool by the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "tool_use")]
#[non_exhaustive]
pub struct ToolUseContent {
    /// The id that the tool result refers to.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The arguments: an object.
    pub input: Json,
    /// The `_meta` of the block.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl ToolUseContent {
    /// Creates a tool use.
    #[must_use]
    pub fn new(id: impl Into<String>, name: impl Into<String>, input: impl Into<Json>) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            input: input.into(),
            meta: None,
        }
    }
}

/// The result of a tool use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "tool_result", rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolResultContent {
    /// The `id` of the tool use.
    pub tool_use_id: String,
    /// The output for the model.
    pub content: Vec<ContentBlock>,
    /// The structured output; `Some(null)` differs from `None`.
    #[serde(
        default,
        deserialize_with = "deserialize_present",
        skip_serializing_if = "Option::is_none"
    )]
    pub structured_content: Option<Json>,
    /// The tool failed, and the content describes the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_error: Option<bool>,
    /// The `_meta` of the block.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl ToolResultContent {
    /// Creates a tool result.
    #[must_use]
    pub fn new(tool_use_id: impl Into<String>, content: Vec<ContentBlock>) -> Self {
        Self {
            tool_use_id: tool_use_id.into(),
            content,
            structured_content: None,
            is_error: None,
            meta: None,
        }
    }
}

/// Why a model stopped. The set is open: providers define further reasons.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StopReason(Cow<'static, str>);

impl StopReason {
    /// The model ended its turn.
    pub const END_TURN: Self = Self(Cow::Borrowed("endTurn"));
    /// The model generated a stop sequence.
    pub const STOP_SEQUENCE: Self = Self(Cow::Borrowed("stopSequence"));
    /// The token limit was reached.
    pub const MAX_TOKENS: Self = Self(Cow::Borrowed("maxTokens"));
    /// The model uses a tool (from 2025-11-25).
    pub const TOOL_USE: Self = Self(Cow::Borrowed("toolUse"));

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

open_string_enum!(
    StopReason,
    "a stop reason",
    [END_TURN, STOP_SEQUENCE, MAX_TOKENS, TOOL_USE]
);

/// The model preferences of a server; the client makes the choice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ModelPreferences {
    /// Hints for the model, best first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hints: Option<Vec<ModelHint>>,
    /// The importance of low cost, from 0 to 1.
    #[serde(
        default,
        with = "crate::number::optional_measure",
        skip_serializing_if = "Option::is_none"
    )]
    pub cost_priority: Option<f64>,
    /// The importance of speed, from 0 to 1.
    #[serde(
        default,
        with = "crate::number::optional_measure",
        skip_serializing_if = "Option::is_none"
    )]
    pub speed_priority: Option<f64>,
    /// The importance of intelligence, from 0 to 1.
    #[serde(
        default,
        with = "crate::number::optional_measure",
        skip_serializing_if = "Option::is_none"
    )]
    pub intelligence_priority: Option<f64>,
}

/// A hint for the choice of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelHint {
    /// The name of a model or a part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl ModelHint {
    /// Creates a hint for models whose name contains `name`.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: Some(name.into()),
        }
    }
}

/// The context that a client should include in a sampling request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum IncludeContext {
    /// No context.
    None,
    /// Context from the requesting server.
    ThisServer,
    /// Context from all servers.
    AllServers,
}

/// Whether a model must use a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolChoice {
    /// The mode. Absent means [`ToolChoiceMode::Auto`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ToolChoiceMode>,
}

impl ToolChoice {
    /// Creates a choice.
    #[must_use]
    pub fn new(mode: ToolChoiceMode) -> Self {
        Self { mode: Some(mode) }
    }
}

/// Whether a model must use a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ToolChoiceMode {
    /// The model decides.
    Auto,
    /// The model must use a tool.
    Required,
    /// The model must not use a tool.
    None,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_block_and_a_list_of_one_are_distinguished() {
        for text in [
            r#"{"role":"user","content":{"type":"text","text":"hi"}}"#,
            r#"{"role":"user","content":[{"type":"text","text":"hi"}]}"#,
            r#"{"role":"user","content":[]}"#,
        ] {
            let message: SamplingMessage = serde_json::from_str(text).unwrap();

            assert_eq!(serde_json::to_string(&message).unwrap(), text);
        }
    }

    #[test]
    fn the_input_of_a_tool_keeps_its_text() {
        let text = r#"{"type":"tool_use","id":"1","name":"a","input":{"z": 1.0, "a": null}}"#;

        let block: SamplingMessageContentBlock = serde_json::from_str(text).unwrap();

        assert_eq!(serde_json::to_string(&block).unwrap(), text);
    }

    #[test]
    fn a_stop_reason_of_a_provider_survives() {
        let reason: StopReason = serde_json::from_str("\"contentFilter\"").unwrap();

        assert_eq!(serde_json::to_string(&reason).unwrap(), "\"contentFilter\"");
        assert_ne!(reason, StopReason::END_TURN);
    }
}
