//! Common parts of requests and results: params without members, pages, result types and cache hints.
//!
//! Result structs drop unknown members, which remain available in the undecoded [`Json`](crate::Json). Only
//! [`EmptyResult`], which the specification defines as open, keeps them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Meta;
use crate::open_string_enum::open_string_enum;

/// The params of a request without members: `server/discover`, `ping`, `roots/list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RequestParams {
    /// The `_meta` of the request.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

/// The params of a request for one page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PaginatedRequestParams {
    /// The `next_cursor` of the previous page; `None` for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Cursor>,
    /// The `_meta` of the request.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

/// An opaque pagination cursor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
#[allow(clippy::exhaustive_structs, reason = "a newtype of a text")]
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

/// A result without members, or with members of an extension.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct EmptyResult {
    /// The type of the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_type: Option<ResultType>,
    /// The `_meta` of the result.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
    /// Unknown members.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// The type of a result (from 2026-07-28). The set is open; absent means [`COMPLETE`](Self::COMPLETE).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResultType(Cow<'static, str>);

impl ResultType {
    /// The result is complete: it has the result type of the method.
    pub const COMPLETE: Self = Self(Cow::Borrowed("complete"));
    /// The server requires input: the result is an [`InputRequiredResult`](crate::InputRequiredResult).
    pub const INPUT_REQUIRED: Self = Self(Cow::Borrowed("input_required"));
    /// The request continues as a task of the tasks extension.
    pub const TASK: Self = Self(Cow::Borrowed("task"));

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

open_string_enum!(
    ResultType,
    "a result type",
    [COMPLETE, INPUT_REQUIRED, TASK]
);

/// Whether caches may share a result between users (from 2026-07-28). Unknown values mean [`PRIVATE`](Self::PRIVATE).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CacheScope(Cow<'static, str>);

impl CacheScope {
    /// The result is the same for all users.
    pub const PUBLIC: Self = Self(Cow::Borrowed("public"));
    /// The result is specific to the user.
    pub const PRIVATE: Self = Self(Cow::Borrowed("private"));

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

open_string_enum!(CacheScope, "a cache scope", [PUBLIC, PRIVATE]);
