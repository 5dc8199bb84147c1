//! What a client and a server can do.
//!
//! Capabilities are open sets: a member that is not known here is kept in `other` and written back. A
//! capability that is present says yes, even if it is `{}`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Json;
use crate::legacy_tasks::{ClientTasksCapability, ServerTasksCapability};

/// What a client can do for a server.
///
/// # Examples
///
/// ```
/// use bowline_types::{ClientCapabilities, ElicitationCapability, Settings};
///
/// let mut capabilities = ClientCapabilities::default();
/// let mut elicitation = ElicitationCapability::default();
/// elicitation.url = Some(Settings::default());
/// capabilities.elicitation = Some(elicitation);
///
/// assert_eq!(serde_json::to_string(&capabilities)?, r#"{"elicitation":{"url":{}}}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClientCapabilities {
    /// It can ask the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elicitation: Option<ElicitationCapability>,
    /// It can have a model write something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<SamplingCapability>,
    /// It can tell which folders it works on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roots: Option<RootsCapability>,
    /// It can run requests as tasks (2025-11-25 only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<ClientTasksCapability>,
    /// The extensions it knows, by identifier (from 2026-07-28).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extensions: Option<BTreeMap<String, Settings>>,
    /// What it tries out beyond the specification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experimental: Option<BTreeMap<String, Settings>>,
    /// Members that are not known here.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// What a server can do for a client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ServerCapabilities {
    /// It has tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<ToolsCapability>,
    /// It has resources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourcesCapability>,
    /// It has prompts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompts: Option<PromptsCapability>,
    /// It completes arguments (from 2025-03-26).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completions: Option<Settings>,
    /// It sends log messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logging: Option<Settings>,
    /// It can run requests as tasks (2025-11-25 only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<ServerTasksCapability>,
    /// The extensions it knows, by identifier (from 2026-07-28).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extensions: Option<BTreeMap<String, Settings>>,
    /// What it tries out beyond the specification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experimental: Option<BTreeMap<String, Settings>>,
    /// Members that are not known here.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// How a client can ask the user. With neither mode named, it shows forms.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ElicitationCapability {
    /// It shows forms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<Settings>,
    /// It sends the user to a URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<Settings>,
    /// Members that are not known here.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// What a client can do when it samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SamplingCapability {
    /// It can include context from servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Settings>,
    /// Its model may use tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Settings>,
    /// Members that are not known here.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// What a client can do about its roots.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RootsCapability {
    /// It tells when they change (until 2025-11-25).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list_changed: Option<bool>,
    /// Members that are not known here.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// What a server can do about its tools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolsCapability {
    /// It tells when the list changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list_changed: Option<bool>,
    /// Members that are not known here.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// What a server can do about its prompts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct PromptsCapability {
    /// It tells when the list changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list_changed: Option<bool>,
    /// Members that are not known here.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// What a server can do about its resources.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ResourcesCapability {
    /// It tells when a resource that the client asked about changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subscribe: Option<bool>,
    /// It tells when the list changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list_changed: Option<bool>,
    /// Members that are not known here.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// The settings of a capability or an extension: an open object, `{}` if there is nothing to set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
#[allow(
    clippy::exhaustive_structs,
    reason = "it is an object and nothing else"
)]
pub struct Settings(pub BTreeMap<String, Json>);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unknown_members_survive_at_every_level() {
        let value = json!({
            "tools": {"listChanged": true, "streaming": {"since": 2027}},
            "logging": {"structured": [1, null]},
            "extensions": {"com.example/x": {"depth": 1.5}},
            "telepathy": {"range": "short"},
        });

        let capabilities: ServerCapabilities = serde_json::from_value(value.clone()).unwrap();

        assert_eq!(capabilities.other["telepathy"], json!({"range": "short"}));
        assert_eq!(serde_json::to_value(&capabilities).unwrap(), value);
    }

    #[test]
    fn a_capability_that_is_an_empty_object_is_present() {
        let capabilities: ClientCapabilities =
            serde_json::from_str(r#"{"elicitation":{}}"#).unwrap();

        assert_eq!(
            capabilities.elicitation,
            Some(ElicitationCapability::default())
        );
        assert_eq!(capabilities.sampling, None);
    }
}
