//! Sampling: a server has the client's model write something, with tools if it likes.
//!
//! Message content is one block or a list of them; which of the two was written survives. A kind of
//! block that is not known here is kept.

use std::borrow::Cow;
use std::fmt;
use std::slice;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use crate::json::present;
use crate::legacy_tasks::TaskMetadata;
use crate::number::count;
use crate::text::open_text;
use crate::union::{self, Union};
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
    /// Which model the server would like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_preferences: Option<ModelPreferences>,
    /// What the model is told before the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// What the client should add to the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include_context: Option<IncludeContext>,
    /// How freely the model writes.
    #[serde(
        default,
        with = "crate::number::optional_measure",
        skip_serializing_if = "Option::is_none"
    )]
    pub temperature: Option<f64>,
    /// How many tokens the model may write at most.
    #[serde(deserialize_with = "count")]
    pub max_tokens: u64,
    /// What the model stops at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_sequences: Option<Vec<String>>,
    /// What is passed to the model's provider: an object in the provider's own form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
    /// The tools that the model may ask for (from 2025-11-25).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<Tool>>,
    /// Whether the model must ask for a tool (from 2025-11-25).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// Asks for the request to run as a task (2025-11-25 only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskMetadata>,
    /// What accompanies the request (until 2025-11-25).
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl CreateMessageRequestParams {
    /// A request to continue a conversation by at most so many tokens.
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

/// The result of `sampling/createMessage`: what the model wrote.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CreateMessageResult {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub content: SamplingContent,
    /// The model that wrote it.
    pub model: String,
    /// Why it stopped, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    /// What accompanies the result.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl CreateMessageResult {
    /// What this model wrote, as the assistant.
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
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub content: SamplingContent,
    /// What accompanies the message (from 2025-11-25).
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl SamplingMessage {
    /// A message.
    #[must_use]
    pub fn new(role: Role, content: impl Into<SamplingContent>) -> Self {
        Self {
            role,
            content: content.into(),
            meta: None,
        }
    }
}

/// What is said: one block, or from 2025-11-25 a list of them.
#[derive(Clone, Debug, PartialEq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "the specification allows these two and no other"
)]
pub enum SamplingContent {
    /// One block.
    One(SamplingMessageContentBlock),
    /// A list of blocks.
    Many(Vec<SamplingMessageContentBlock>),
}

impl SamplingContent {
    /// The blocks, however they were written.
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
        struct OneOrMany;

        impl<'de> Visitor<'de> for OneOrMany {
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

        deserializer.deserialize_any(OneOrMany)
    }
}

/// One block of a message.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SamplingMessageContentBlock {
    /// Text.
    Text(TextContent),
    /// A picture.
    Image(ImageContent),
    /// A sound (from 2025-03-26).
    Audio(AudioContent),
    /// The model asks for a tool (from 2025-11-25).
    ToolUse(ToolUseContent),
    /// What the tool said (from 2025-11-25).
    ToolResult(ToolResultContent),
    /// A kind of block that is not known here.
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

impl Union for SamplingMessageContentBlock {
    const TAG: &'static str = "type";
    const WHAT: &'static str = "a content block";

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

/// The model asks for a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "tool_use")]
#[non_exhaustive]
pub struct ToolUseContent {
    /// What the tool's result will refer to.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// Its arguments: an object.
    pub input: Json,
    /// What accompanies the block.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl ToolUseContent {
    /// A use of a tool.
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

/// What a tool said that the model asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "tool_result", rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolResultContent {
    /// The `id` of the use of the tool.
    pub tool_use_id: String,
    /// What the tool says, for the model.
    pub content: Vec<ContentBlock>,
    /// What the tool says, for a program. `null` is a value.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub structured_content: Option<Json>,
    /// The tool failed, and the content says why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_error: Option<bool>,
    /// What accompanies the block.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl ToolResultContent {
    /// What the tool said.
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

/// Why a model stopped. The set is open: providers have reasons of their own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StopReason(Cow<'static, str>);

impl StopReason {
    /// It has said what it had to say.
    pub const END_TURN: Self = Self(Cow::Borrowed("endTurn"));
    /// It came to one of the stop sequences.
    pub const STOP_SEQUENCE: Self = Self(Cow::Borrowed("stopSequence"));
    /// It was not allowed any more tokens.
    pub const MAX_TOKENS: Self = Self(Cow::Borrowed("maxTokens"));
    /// It asks for a tool (from 2025-11-25).
    pub const TOOL_USE: Self = Self(Cow::Borrowed("toolUse"));

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

open_text!(
    StopReason,
    "a stop reason",
    [END_TURN, STOP_SEQUENCE, MAX_TOKENS, TOOL_USE]
);

/// Which model a server would like. The client decides.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ModelPreferences {
    /// Models that would suit, best first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hints: Option<Vec<ModelHint>>,
    /// How much the price matters, from 0 to 1.
    #[serde(
        default,
        with = "crate::number::optional_measure",
        skip_serializing_if = "Option::is_none"
    )]
    pub cost_priority: Option<f64>,
    /// How much speed matters, from 0 to 1.
    #[serde(
        default,
        with = "crate::number::optional_measure",
        skip_serializing_if = "Option::is_none"
    )]
    pub speed_priority: Option<f64>,
    /// How much ability matters, from 0 to 1.
    #[serde(
        default,
        with = "crate::number::optional_measure",
        skip_serializing_if = "Option::is_none"
    )]
    pub intelligence_priority: Option<f64>,
}

/// A model that would suit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelHint {
    /// Its name or a part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl ModelHint {
    /// A model whose name contains this.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: Some(name.into()),
        }
    }
}

/// What a client should add to a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum IncludeContext {
    /// Nothing.
    None,
    /// What it knows from the server that asks.
    ThisServer,
    /// What it knows from all servers.
    AllServers,
}

/// Whether a model must ask for a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolChoice {
    /// Whether it must. Absent means [`ToolChoiceMode::Auto`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ToolChoiceMode>,
}

impl ToolChoice {
    /// A choice.
    #[must_use]
    pub fn new(mode: ToolChoiceMode) -> Self {
        Self { mode: Some(mode) }
    }
}

/// Whether a model must ask for a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ToolChoiceMode {
    /// It may.
    Auto,
    /// It must.
    Required,
    /// It must not.
    None,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_block_and_a_list_of_one_are_told_apart() {
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
