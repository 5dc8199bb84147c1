//! Roots: the directories and files that a client exposes to servers.

use serde::{Deserialize, Serialize};

use crate::Meta;

/// A directory or file that a server may access.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Root {
    /// The `file:` URI.
    pub uri: String,
    /// The display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The `_meta` of the root (from 2025-06-18).
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl Root {
    /// Creates a root.
    #[must_use]
    pub fn new(uri: impl Into<String>) -> Self {
        Self {
            uri: uri.into(),
            name: None,
            meta: None,
        }
    }

    /// Returns whether the URI is a `file://` URI, as the specification requires.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline_types::Root;
    ///
    /// assert!(Root::new("file:///project").is_file());
    /// assert!(!Root::new("https://example.com/project").is_file());
    /// ```
    #[must_use]
    pub fn is_file(&self) -> bool {
        let (scheme, path) = self.uri.split_at_checked(7).unwrap_or_default();
        scheme.eq_ignore_ascii_case("file://") && !path.is_empty()
    }
}

/// The result of `roots/list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ListRootsResult {
    /// The roots.
    pub roots: Vec<Root>,
    /// The `_meta` of the result.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl ListRootsResult {
    /// Creates a result.
    #[must_use]
    pub fn new(roots: Vec<Root>) -> Self {
        Self { roots, meta: None }
    }
}
