//! The capabilities of clients and servers.
//!
//! Capabilities are open sets: unknown members are kept in `other` and serialized again. A capability that
//! is present is declared, even if it is `{}`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Json;
use crate::legacy_tasks::{ClientTasksCapability, ServerTasksCapability};

/// The capabilities of a client.
///
/// # Examples
///
/// ```
/// use bowline_types::{ClientCapabilities, ElicitationCapability, CapabilitySettings};
///
/// let mut capabilities = ClientCapabilities::default();
/// let mut elicitation = ElicitationCapability::default();
/// elicitation.url = Some(CapabilitySettings::default());
/// capabilities.elicitation = Some(elicitation);
///
/// assert_eq!(serde_json::to_string(&capabilities)?, r#"{"elicitation":{"url":{}}}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClientCapabilities {
    /// Requests input from the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elicitation: Option<ElicitationCapability>,
    /// Samples from a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<SamplingCapability>,
    /// Lists roots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roots: Option<RootsCapability>,
    /// Runs requests as tasks (2025-11-25 only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<ClientTasksCapability>,
    /// The supported extensions, by identifier (from 2026-07-28).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extensions: Option<BTreeMap<String, CapabilitySettings>>,
    /// Experimental capabilities that are not in the specification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experimental: Option<BTreeMap<String, CapabilitySettings>>,
    /// Unknown members.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// The capabilities of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ServerCapabilities {
    /// Offers tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<ToolsCapability>,
    /// Offers resources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourcesCapability>,
    /// Offers prompts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompts: Option<PromptsCapability>,
    /// Completes arguments (from 2025-03-26).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completions: Option<CapabilitySettings>,
    /// Sends log messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logging: Option<CapabilitySettings>,
    /// Runs requests as tasks (2025-11-25 only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<ServerTasksCapability>,
    /// The supported extensions, by identifier (from 2026-07-28).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extensions: Option<BTreeMap<String, CapabilitySettings>>,
    /// Experimental capabilities that are not in the specification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experimental: Option<BTreeMap<String, CapabilitySettings>>,
    /// Unknown members.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// The elicitation modes of a client. Without any mode, it supports forms.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ElicitationCapability {
    /// Supports form mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<CapabilitySettings>,
    /// Supports URL mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<CapabilitySettings>,
    /// Unknown members.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// The sampling capability of a client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SamplingCapability {
    /// Supports `includeContext`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<CapabilitySettings>,
    /// Supports tools in sampling requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<CapabilitySettings>,
    /// Unknown members.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// The roots capability of a client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RootsCapability {
    /// Notifies the server when the roots change (until 2025-11-25).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list_changed: Option<bool>,
    /// Unknown members.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// The tools capability of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolsCapability {
    /// Notifies clients when the list changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list_changed: Option<bool>,
    /// Unknown members.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// The prompts capability of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct PromptsCapability {
    /// Notifies clients when the list changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list_changed: Option<bool>,
    /// Unknown members.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// The resources capability of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ResourcesCapability {
    /// Supports subscriptions to updates of a resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subscribe: Option<bool>,
    /// Notifies clients when the list changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list_changed: Option<bool>,
    /// Unknown members.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// The settings of a capability or an extension: an open object, `{}` without settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
#[allow(
    clippy::exhaustive_structs,
    reason = "a newtype of a map of JSON values"
)]
pub struct CapabilitySettings(pub BTreeMap<String, Json>);

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
