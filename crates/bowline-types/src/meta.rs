//! The `_meta` object: an open map, its reserved keys, and the grammar of keys.
//!
//! Unknown keys survive a round trip, whatever their value is.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{
    ClientCapabilities, Implementation, Json, LoggingLevel, ProgressToken, ProtocolVersion,
    RequestId,
};

/// What accompanies a request, a result, a notification or a thing, without being part of it.
///
/// # Examples
///
/// ```
/// use bowline_types::{Json, Meta, meta_key};
///
/// let mut meta = Meta::default();
/// meta.set_progress_token(&"upload".into());
/// meta.insert("com.example/attempt", Json::from(serde_json::json!(2)));
///
/// assert_eq!(meta.progress_token()?, Some("upload".into()));
/// assert_eq!(meta.get(meta_key::PROGRESS_TOKEN).unwrap().as_str(), "\"upload\"");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Meta(BTreeMap<String, Json>);

impl Meta {
    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Json> {
        self.0.get(key)
    }

    /// Sets the value of a key, and returns the one it replaces.
    pub fn insert(&mut self, key: impl Into<String>, value: impl Into<Json>) -> Option<Json> {
        self.0.insert(key.into(), value.into())
    }

    /// Removes a key, and returns the value it had.
    pub fn remove(&mut self, key: &str) -> Option<Json> {
        self.0.remove(key)
    }

    /// Whether there is no key at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many keys there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The entries, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Json)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Decodes the value of a key.
    ///
    /// # Errors
    ///
    /// If the key is there and its value does not have the shape of `T`.
    pub fn decode<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, serde_json::Error> {
        self.get(key).map(Json::decode).transpose()
    }

    /// The protocol version of a request.
    ///
    /// # Errors
    ///
    /// If the value has another shape; likewise for the other typed keys.
    pub fn protocol_version(&self) -> Result<Option<ProtocolVersion>, serde_json::Error> {
        self.decode(meta_key::PROTOCOL_VERSION)
    }

    /// Sets the protocol version of a request.
    pub fn set_protocol_version(&mut self, version: &ProtocolVersion) {
        self.encode(meta_key::PROTOCOL_VERSION, version);
    }

    /// What the client that sends a request is.
    ///
    /// # Errors
    ///
    /// If the value has another shape.
    pub fn client_info(&self) -> Result<Option<Implementation>, serde_json::Error> {
        self.decode(meta_key::CLIENT_INFO)
    }

    /// Sets what the client that sends a request is.
    pub fn set_client_info(&mut self, client: &Implementation) {
        self.encode(meta_key::CLIENT_INFO, client);
    }

    /// What the client that sends a request can do.
    ///
    /// # Errors
    ///
    /// If the value has another shape.
    pub fn client_capabilities(&self) -> Result<Option<ClientCapabilities>, serde_json::Error> {
        self.decode(meta_key::CLIENT_CAPABILITIES)
    }

    /// Sets what the client that sends a request can do.
    pub fn set_client_capabilities(&mut self, capabilities: &ClientCapabilities) {
        self.encode(meta_key::CLIENT_CAPABILITIES, capabilities);
    }

    /// The least severe log message that the sender of a request wants.
    ///
    /// # Errors
    ///
    /// If the value has another shape.
    pub fn log_level(&self) -> Result<Option<LoggingLevel>, serde_json::Error> {
        self.decode(meta_key::LOG_LEVEL)
    }

    /// Sets the least severe log message that the sender of a request wants.
    pub fn set_log_level(&mut self, level: LoggingLevel) {
        self.encode(meta_key::LOG_LEVEL, &level);
    }

    /// What progress notifications of a request are to be marked with.
    ///
    /// # Errors
    ///
    /// If the value has another shape.
    pub fn progress_token(&self) -> Result<Option<ProgressToken>, serde_json::Error> {
        self.decode(meta_key::PROGRESS_TOKEN)
    }

    /// Sets what progress notifications of a request are to be marked with.
    pub fn set_progress_token(&mut self, token: &ProgressToken) {
        self.encode(meta_key::PROGRESS_TOKEN, token);
    }

    /// What the server that sends a result is.
    ///
    /// # Errors
    ///
    /// If the value has another shape.
    pub fn server_info(&self) -> Result<Option<Implementation>, serde_json::Error> {
        self.decode(meta_key::SERVER_INFO)
    }

    /// Sets what the server that sends a result is.
    pub fn set_server_info(&mut self, server: &Implementation) {
        self.encode(meta_key::SERVER_INFO, server);
    }

    /// The `subscriptions/listen` request that a notification or result belongs to.
    ///
    /// # Errors
    ///
    /// If the value has another shape.
    pub fn subscription_id(&self) -> Result<Option<RequestId>, serde_json::Error> {
        self.decode(meta_key::SUBSCRIPTION_ID)
    }

    /// Sets the `subscriptions/listen` request that a notification or result belongs to.
    pub fn set_subscription_id(&mut self, id: &RequestId) {
        self.encode(meta_key::SUBSCRIPTION_ID, id);
    }

    fn encode<T: Serialize>(&mut self, key: &str, value: &T) {
        let value = Json::encode(value).expect("the types of reserved keys have a JSON form");
        self.insert(key, value);
    }
}

impl FromIterator<(String, Json)> for Meta {
    fn from_iter<I: IntoIterator<Item = (String, Json)>>(entries: I) -> Self {
        Self(entries.into_iter().collect())
    }
}

impl IntoIterator for Meta {
    type Item = (String, Json);
    type IntoIter = std::collections::btree_map::IntoIter<String, Json>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// The keys of `_meta` that the specification gives a meaning.
pub mod meta_key {
    /// Of a request: its protocol version.
    pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    /// Of a request: what its sender is.
    pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
    /// Of a request: what its sender can do.
    pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    /// Of a request: the least severe log message its sender wants.
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    /// Of a request: what its progress notifications are to be marked with.
    pub const PROGRESS_TOKEN: &str = "progressToken";
    /// Of a result: what its sender is.
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
    /// Of a notification or a result: the `subscriptions/listen` request it belongs to.
    pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
    /// Of anything, in 2025-11-25 only: the task it belongs to.
    pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
    /// Of the result that creates a task, in 2025-11-25 only: what to tell the model meanwhile.
    pub const MODEL_IMMEDIATE_RESPONSE: &str = "io.modelcontextprotocol/model-immediate-response";
    /// Of anything: the W3C trace context it belongs to.
    pub const TRACEPARENT: &str = "traceparent";
    /// Of anything: what tracing systems add to the trace context.
    pub const TRACESTATE: &str = "tracestate";
    /// Of anything: W3C baggage.
    pub const BAGGAGE: &str = "baggage";

    /// Whether `key` follows the grammar: an optional prefix of dot-separated labels and a slash, then a
    /// name.
    ///
    /// A label starts with a letter, ends with a letter or digit, and may have hyphens in between. A name
    /// is empty, or starts and ends with a letter or digit, and may have `-`, `_` and `.` in between.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline_types::meta_key;
    ///
    /// assert!(meta_key::is_valid("com.example/retry_count"));
    /// assert!(!meta_key::is_valid("9lives.example/count"));
    /// ```
    #[must_use]
    pub fn is_valid(key: &str) -> bool {
        match key.split_once('/') {
            Some((prefix, name)) => prefix.split('.').all(is_label) && is_name(name),
            None => is_name(key),
        }
    }

    /// Whether `key` belongs to the specification: its prefix has `modelcontextprotocol` or `mcp` for its
    /// second label, or it is one of the few reserved keys without a prefix.
    #[must_use]
    pub fn is_reserved(key: &str) -> bool {
        match key.split_once('/') {
            Some((prefix, _)) => {
                matches!(
                    prefix.split('.').nth(1),
                    Some("modelcontextprotocol" | "mcp")
                )
            }
            None => matches!(key, PROGRESS_TOKEN | TRACEPARENT | TRACESTATE | BAGGAGE),
        }
    }

    fn is_label(label: &str) -> bool {
        let label = label.as_bytes();
        label.first().is_some_and(u8::is_ascii_alphabetic)
            && label.last().is_some_and(u8::is_ascii_alphanumeric)
            && label
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
    }

    fn is_name(name: &str) -> bool {
        let name = name.as_bytes();
        name.first().is_none_or(u8::is_ascii_alphanumeric)
            && name.last().is_none_or(u8::is_ascii_alphanumeric)
            && name
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unknown_keys_survive_with_their_text() {
        let text = r#"{"b":null,"com.example/a":{"z": 1.0, "a":[ ]}}"#;

        let meta: Meta = serde_json::from_str(text).unwrap();

        assert_eq!(serde_json::to_string(&meta).unwrap(), text);
    }

    #[test]
    fn a_reserved_key_of_the_wrong_shape_is_an_error_not_an_absence() {
        let meta: Meta =
            serde_json::from_value(json!({"io.modelcontextprotocol/protocolVersion": 7})).unwrap();

        assert!(meta.protocol_version().is_err());
        assert_eq!(meta.client_info().unwrap(), None);
    }

    #[test]
    fn a_subscription_id_keeps_its_json_type() {
        let mut meta = Meta::default();

        meta.set_subscription_id(&RequestId::from(7));

        assert_eq!(meta.get(meta_key::SUBSCRIPTION_ID).unwrap().as_str(), "7");
        assert_eq!(meta.subscription_id().unwrap(), Some(RequestId::Number(7)));
    }

    #[test]
    fn keys_follow_the_grammar() {
        for key in [
            "a",
            "",
            "a.b-c_d9",
            "com.example/",
            "com.example/a",
            "x-y.z1/0",
            "io.modelcontextprotocol/logLevel",
        ] {
            assert!(meta_key::is_valid(key), "{key:?} was refused");
        }
        for key in [
            "-a", "a-", "a b", "/a", "1com/a", "com-/a", "com..x/a", "com/a/b", "é", "a_/b",
        ] {
            assert!(!meta_key::is_valid(key), "{key:?} was accepted");
        }
    }

    #[test]
    fn the_second_label_decides_who_owns_a_prefix() {
        for key in [
            "io.modelcontextprotocol/x",
            "dev.mcp/x",
            "com.mcp.tools/x",
            "progressToken",
            "traceparent",
        ] {
            assert!(meta_key::is_reserved(key), "{key:?} is the specification's");
        }
        for key in [
            "com.example.mcp/x",
            "mcp/x",
            "x",
            "com.example/progressToken",
        ] {
            assert!(!meta_key::is_reserved(key), "{key:?} is free");
        }
    }
}
