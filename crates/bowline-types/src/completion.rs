//! Completion of arguments: `completion/complete`.

use std::collections::BTreeMap;

use serde::de::{Deserializer, Error as _, MapAccess};
use serde::{Deserialize, Serialize, Serializer};

use crate::number::optional_count;
use crate::union::{self, TaggedUnion};
use crate::{Meta, ResultType};

/// The params of `completion/complete`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CompleteRequestParams {
    /// The prompt or resource template that has the argument.
    #[serde(rename = "ref")]
    pub reference: CompleteReference,
    /// The argument to complete.
    pub argument: CompleteArgument,
    /// The context of the completion (from 2025-06-18).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<CompleteContext>,
    /// The `_meta` of the request.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl CompleteRequestParams {
    /// Creates params for one argument.
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

/// A reference to the prompt or resource template whose argument is completed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompleteReference {
    /// A prompt.
    Prompt(PromptReference),
    /// A resource template, or a resource.
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

impl TaggedUnion for CompleteReference {
    const TAG: &'static str = "type";
    const EXPECTED: &'static str = "a reference to a prompt or a resource template";

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

/// A reference to a prompt by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "ref/prompt")]
#[non_exhaustive]
pub struct PromptReference {
    /// The programmatic name.
    pub name: String,
    /// The display name (from 2025-06-18).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

impl PromptReference {
    /// Creates a reference.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            title: None,
        }
    }
}

/// A reference to a resource template or a resource by URI. Up to 2025-03-26 the specification calls it
/// `ResourceReference`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "ref/resource")]
#[non_exhaustive]
pub struct ResourceTemplateReference {
    /// The URI template, or the URI of a resource.
    pub uri: String,
}

impl ResourceTemplateReference {
    /// Creates a reference.
    #[must_use]
    pub fn new(uri: impl Into<String>) -> Self {
        Self { uri: uri.into() }
    }
}

/// The argument to complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CompleteArgument {
    /// The name of the argument.
    pub name: String,
    /// The value typed so far.
    pub value: String,
}

impl CompleteArgument {
    /// Creates an argument.
    #[must_use]
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            value: value.into(),
        }
    }
}

/// The context of a completion: values of the other arguments, on which the completion may depend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CompleteContext {
    /// The arguments that already have a value, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<BTreeMap<String, String>>,
}

/// The result of `completion/complete`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CompleteResult {
    /// The type of the result (from 2026-07-28).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_type: Option<ResultType>,
    /// The completion values.
    pub completion: Completion,
    /// The `_meta` of the result.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl CompleteResult {
    /// Creates a result.
    #[must_use]
    pub fn new(completion: Completion) -> Self {
        Self {
            completion,
            ..Self::default()
        }
    }
}

/// Completion values for an argument.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Completion {
    /// The values, best first; at most [`MAX_VALUES`](Self::MAX_VALUES): the server truncates longer lists.
    pub values: Vec<String>,
    /// The total number of values, which may exceed those in `values`.
    #[serde(
        default,
        deserialize_with = "optional_count",
        skip_serializing_if = "Option::is_none"
    )]
    pub total: Option<u64>,
    /// Whether there are more values than those in `values`, even if `total` is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has_more: Option<bool>,
}

impl Completion {
    /// The maximum number of values in a result.
    pub const MAX_VALUES: usize = 100;

    /// Creates a list of values.
    #[must_use]
    pub fn new(values: Vec<String>) -> Self {
        Self {
            values,
            ..Self::default()
        }
    }
}
