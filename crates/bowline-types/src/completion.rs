//! Completion of arguments: `completion/complete`.

use std::collections::BTreeMap;

use serde::de::{Deserializer, Error as _, MapAccess};
use serde::{Deserialize, Serialize, Serializer};

use crate::number::optional_count;
use crate::union::{self, Union};
use crate::{Meta, ResultType};

/// The params of `completion/complete`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CompleteRequestParams {
    /// Whose argument it is.
    #[serde(rename = "ref")]
    pub reference: CompleteReference,
    /// The argument, as far as it is typed.
    pub argument: CompleteArgument,
    /// What is already decided (from 2025-06-18).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<CompleteContext>,
    /// What accompanies the request.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl CompleteRequestParams {
    /// A request to complete one argument.
    #[must_use]
    pub fn new(reference: impl Into<CompleteReference>, argument: CompleteArgument) -> Self {
        Self {
            reference: reference.into(),
            argument,
            context: None,
            meta: None,
        }
    }
}

/// Whose argument is to be completed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompleteReference {
    /// A prompt's.
    Prompt(PromptReference),
    /// A resource template's.
    Resource(ResourceTemplateReference),
}

impl From<PromptReference> for CompleteReference {
    fn from(reference: PromptReference) -> Self {
        Self::Prompt(reference)
    }
}

impl From<ResourceTemplateReference> for CompleteReference {
    fn from(reference: ResourceTemplateReference) -> Self {
        Self::Resource(reference)
    }
}

impl Serialize for CompleteReference {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Prompt(reference) => reference.serialize(serializer),
            Self::Resource(reference) => reference.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for CompleteReference {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        union::read(deserializer)
    }
}

impl Union for CompleteReference {
    const TAG: &'static str = "type";
    const WHAT: &'static str = "a reference to a prompt or a resource template";

    fn read<'de, A: MapAccess<'de>>(tag: &str, rest: A) -> Result<Self, A::Error> {
        match tag {
            "ref/prompt" => union::variant(rest).map(Self::Prompt),
            "ref/resource" => union::variant(rest).map(Self::Resource),
            _ => Err(A::Error::unknown_variant(
                tag,
                &["ref/prompt", "ref/resource"],
            )),
        }
    }
}

/// A prompt, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "ref/prompt")]
#[non_exhaustive]
pub struct PromptReference {
    /// The name of the prompt, for programs.
    pub name: String,
    /// Its name, for people (from 2025-06-18).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

impl PromptReference {
    /// The prompt with this name.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            title: None,
        }
    }
}

/// A resource or a resource template, by URI. Until 2025-03-26 it was called `ResourceReference`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "ref/resource")]
#[non_exhaustive]
pub struct ResourceTemplateReference {
    /// The URI or the URI template.
    pub uri: String,
}

impl ResourceTemplateReference {
    /// The template with this URI template.
    #[must_use]
    pub fn new(uri: impl Into<String>) -> Self {
        Self { uri: uri.into() }
    }
}

/// An argument, as far as it is typed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CompleteArgument {
    /// Its name.
    pub name: String,
    /// What is typed so far.
    pub value: String,
}

impl CompleteArgument {
    /// An argument, as far as it is typed.
    #[must_use]
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            value: value.into(),
        }
    }
}

/// What is already decided.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CompleteContext {
    /// The other arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<BTreeMap<String, String>>,
}

/// The result of `completion/complete`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CompleteResult {
    /// How to read the result (from 2026-07-28).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_type: Option<ResultType>,
    /// The proposals.
    pub completion: Completion,
    /// What accompanies the result.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl CompleteResult {
    /// A result with these proposals.
    #[must_use]
    pub fn new(completion: Completion) -> Self {
        Self {
            completion,
            ..Self::default()
        }
    }
}

/// Proposals for an argument.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Completion {
    /// The proposals, best first; at most [`MOST`](Self::MOST).
    pub values: Vec<String>,
    /// How many there are in all.
    #[serde(
        default,
        deserialize_with = "optional_count",
        skip_serializing_if = "Option::is_none"
    )]
    pub total: Option<u64>,
    /// Whether there are more than these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has_more: Option<bool>,
}

impl Completion {
    /// How many proposals a result may hold.
    pub const MOST: usize = 100;

    /// These proposals and no others.
    #[must_use]
    pub fn new(values: Vec<String>) -> Self {
        Self {
            values,
            ..Self::default()
        }
    }
}
