//! The `_meta` object: an open map, its reserved keys, and the grammar of keys.
//!
//! Unknown keys survive a round trip, with any value.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{
    ClientCapabilities, Implementation, Json, LoggingLevel, ProgressToken, ProtocolVersion,
    RequestId,
};

/// The `_meta` object: metadata of a request, a result, a notification or an object such as a tool.
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
    /// Returns the value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Json> {
        self.0.get(key)
    }

    /// Sets the value of a key, and returns the previous one.
    pub fn insert(&mut self, key: impl Into<String>, value: impl Into<Json>) -> Option<Json> {
        self.0.insert(key.into(), value.into())
    }

    /// Removes a key, and returns its value.
    pub fn remove(&mut self, key: &str) -> Option<Json> {
        self.0.remove(key)
    }

    /// Returns whether there are no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the entries, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Json)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Decodes the value of a key.
    ///
    /// # Errors
    ///
    /// If the key is present and its value is not a valid `T`.
    pub fn decode<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, serde_json::Error> {
        self.get(key).map(Json::decode).transpose()
    }

    /// Returns the protocol version of a request.
    ///
    /// # Errors
    ///
    /// If the value is invalid; likewise for the other typed keys.
    pub fn protocol_version(&self) -> Result<Option<ProtocolVersion>, serde_json::Error> {
        self.decode(meta_key::PROTOCOL_VERSION)
    }

    /// Sets the protocol version of a request.
    pub fn set_protocol_version(&mut self, version: &ProtocolVersion) {
        self.encode(meta_key::PROTOCOL_VERSION, version);
    }

    /// Returns the implementation of the client that sends a request.
    ///
    /// # Errors
    ///
    /// If the value is invalid.
    pub fn client_info(&self) -> Result<Option<Implementation>, serde_json::Error> {
        self.decode(meta_key::CLIENT_INFO)
    }

    /// Sets the implementation of the client that sends a request.
    pub fn set_client_info(&mut self, client: &Implementation) {
        self.encode(meta_key::CLIENT_INFO, client);
    }

    /// Returns the capabilities of the client that sends a request.
    ///
    /// # Errors
    ///
    /// If the value is invalid.
    pub fn client_capabilities(&self) -> Result<Option<ClientCapabilities>, serde_json::Error> {
        self.decode(meta_key::CLIENT_CAPABILITIES)
    }

    /// Sets the capabilities of the client that sends a request.
    pub fn set_client_capabilities(&mut self, capabilities: &ClientCapabilities) {
        self.encode(meta_key::CLIENT_CAPABILITIES, capabilities);
    }

    /// Returns the minimum level of the log messages for a request.
    ///
    /// # Errors
    ///
    /// If the value is invalid.
    pub fn log_level(&self) -> Result<Option<LoggingLevel>, serde_json::Error> {
        self.decode(meta_key::LOG_LEVEL)
    }

    /// Sets the minimum level of the log messages for a request.
    pub fn set_log_level(&mut self, level: LoggingLevel) {
        self.encode(meta_key::LOG_LEVEL, &level);
    }

    /// Returns the token for progress notifications of a request.
    ///
    /// # Errors
    ///
    /// If the value is invalid.
    pub fn progress_token(&self) -> Result<Option<ProgressToken>, serde_json::Error> {
        self.decode(meta_key::PROGRESS_TOKEN)
    }

    /// Sets the token for progress notifications of a request.
    pub fn set_progress_token(&mut self, token: &ProgressToken) {
        self.encode(meta_key::PROGRESS_TOKEN, token);
    }

    /// Returns the implementation of the server that sends a result.
    ///
    /// # Errors
    ///
    /// If the value is invalid.
    pub fn server_info(&self) -> Result<Option<Implementation>, serde_json::Error> {
        self.decode(meta_key::SERVER_INFO)
    }

    /// Sets the implementation of the server that sends a result.
    pub fn set_server_info(&mut self, server: &Implementation) {
        self.encode(meta_key::SERVER_INFO, server);
    }

    /// Returns the id of the `subscriptions/listen` request that a notification or result belongs to.
    ///
    /// # Errors
    ///
    /// If the value is invalid.
    pub fn subscription_id(&self) -> Result<Option<RequestId>, serde_json::Error> {
        self.decode(meta_key::SUBSCRIPTION_ID)
    }

    /// Sets the id of the `subscriptions/listen` request that a notification or result belongs to.
    pub fn set_subscription_id(&mut self, id: &RequestId) {
        self.encode(meta_key::SUBSCRIPTION_ID, id);
    }

    /// Returns the W3C `traceparent` of a message.
    ///
    /// # Errors
    ///
    /// If the value is invalid.
    pub fn traceparent(&self) -> Result<Option<String>, serde_json::Error> {
        self.decode(meta_key::TRACEPARENT)
    }

    /// Sets the W3C `traceparent` of a message.
    pub fn set_traceparent(&mut self, traceparent: &str) {
        self.encode(meta_key::TRACEPARENT, traceparent);
    }

    /// Returns the W3C `tracestate` of a message.
    ///
    /// # Errors
    ///
    /// If the value is invalid.
    pub fn tracestate(&self) -> Result<Option<String>, serde_json::Error> {
        self.decode(meta_key::TRACESTATE)
    }

    /// Sets the W3C `tracestate` of a message.
    pub fn set_tracestate(&mut self, tracestate: &str) {
        self.encode(meta_key::TRACESTATE, tracestate);
    }

    /// Returns the W3C baggage of a message.
    ///
    /// # Errors
    ///
    /// If the value is invalid.
    pub fn baggage(&self) -> Result<Option<String>, serde_json::Error> {
        self.decode(meta_key::BAGGAGE)
    }

    /// Sets the W3C baggage of a message.
    pub fn set_baggage(&mut self, baggage: &str) {
        self.encode(meta_key::BAGGAGE, baggage);
    }

    fn encode<T: Serialize + ?Sized>(&mut self, key: &str, value: &T) {
        let value = Json::encode(value).expect("values of reserved keys serialize to JSON");
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

/// The keys of `_meta` that the specification defines.
pub mod meta_key {
    /// Of a request: its protocol version.
    pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    /// Of a request: the implementation of the client.
    pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
    /// Of a request: the capabilities of the client.
    pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    /// Of a request: the minimum level of its log messages.
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    /// Of a request: the token of its progress notifications.
    pub const PROGRESS_TOKEN: &str = "progressToken";
    /// Of a result: the implementation of the server.
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
    /// Of a notification or a result: the `subscriptions/listen` request it belongs to.
    pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
    /// Of any message (2025-11-25 only): the task it belongs to.
    pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
    /// Of the result that creates a task (2025-11-25 only): a preliminary response for the model.
    pub const MODEL_IMMEDIATE_RESPONSE: &str = "io.modelcontextprotocol/model-immediate-response";
    /// Of any message: the W3C `traceparent`.
    pub const TRACEPARENT: &str = "traceparent";
    /// Of any message: the W3C `tracestate`.
    pub const TRACESTATE: &str = "tracestate";
    /// Of any message: the W3C baggage.
    pub const BAGGAGE: &str = "baggage";
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
}
