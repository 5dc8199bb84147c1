//! What requests and results have in common: bare params, pages, result types and cache hints.
//!
//! A result type names the members of its revisions; members beyond those are not kept, since whoever
//! needs them has the result as [`Json`](crate::Json). Only [`EmptyResult`], which the specification
//! defines as open, keeps everything.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Meta;
use crate::text::open_text;

/// The params of a request that needs none: `server/discover`, `ping`, `roots/list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RequestParams {
    /// What accompanies the request.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

/// The params of a request for one page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PaginatedRequestParams {
    /// Where the page starts: the `next_cursor` of the page before, or nothing for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Cursor>,
    /// What accompanies the request.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

/// A place in a list, in a form that only the server understands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
#[allow(clippy::exhaustive_structs, reason = "it is a text and nothing else")]
pub struct Cursor(pub String);

impl From<&str> for Cursor {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<String> for Cursor {
    fn from(text: String) -> Self {
        Self(text)
    }
}

/// A result without content, or with content that only an extension knows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct EmptyResult {
    /// How to read the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_type: Option<ResultType>,
    /// What accompanies the result.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
    /// Members that are not known here.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// How to read a result (from 2026-07-28). The set is open; absent means [`COMPLETE`](Self::COMPLETE).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResultType(Cow<'static, str>);

impl ResultType {
    /// The request is answered: the result is the one that the method names.
    pub const COMPLETE: Self = Self(Cow::Borrowed("complete"));
    /// The server needs something first: the result is an [`InputRequiredResult`](crate::InputRequiredResult).
    pub const INPUT_REQUIRED: Self = Self(Cow::Borrowed("input_required"));
    /// The request goes on as a task of the tasks extension.
    pub const TASK: Self = Self(Cow::Borrowed("task"));

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

open_text!(
    ResultType,
    "a result type",
    [COMPLETE, INPUT_REQUIRED, TASK]
);

/// Who may share a cached result (from 2026-07-28). What is not [`PUBLIC`](Self::PUBLIC) is private.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CacheScope(Cow<'static, str>);

impl CacheScope {
    /// Anybody gets the same result.
    pub const PUBLIC: Self = Self(Cow::Borrowed("public"));
    /// The result is for whoever asked.
    pub const PRIVATE: Self = Self(Cow::Borrowed("private"));

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

open_text!(CacheScope, "a cache scope", [PUBLIC, PRIVATE]);
