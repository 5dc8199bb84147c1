//! Multi round-trip requests: `input_required` results and the responses to them (from 2026-07-28).

use std::collections::BTreeMap;

use serde::de::{Deserializer, Error as _};
use serde::ser::{SerializeStruct, Serializer};
use serde::{Deserialize, Serialize};

use crate::{
    CreateMessageRequest, CreateMessageRequestParams, ElicitRequest, ElicitRequestParams, Json,
    ListRootsRequest, Meta, Method, RequestParams, ResultType,
};

/// An `input_required` result: the client answers the input requests and sends the request again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct InputRequiredResult {
    /// The type of the result: always [`ResultType::INPUT_REQUIRED`].
    pub result_type: ResultType,
    /// The input requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_requests: Option<InputRequests>,
    /// Opaque state that the client sends back unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_state: Option<String>,
    /// The `_meta` of the result.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl InputRequiredResult {
    /// Creates a result with these input requests.
    #[must_use]
    pub fn new(input_requests: InputRequests) -> Self {
        Self {
            result_type: ResultType::INPUT_REQUIRED,
            input_requests: Some(input_requests),
            request_state: None,
            meta: None,
        }
    }
}

/// Input requests by key; the response has the same key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
#[allow(clippy::exhaustive_structs, reason = "a newtype of a map")]
pub struct InputRequests(pub BTreeMap<String, InputRequest>);

/// Responses by the key of the input request, which determines their type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
#[allow(clippy::exhaustive_structs, reason = "a newtype of a map")]
pub struct InputResponses(pub BTreeMap<String, Json>);

/// An input request: it has no id, since the response is sent in the retried request.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum InputRequest {
    /// `elicitation/create`.
    Elicit(Box<ElicitRequestParams>),
    /// `sampling/createMessage`.
    CreateMessage(Box<CreateMessageRequestParams>),
    /// `roots/list`.
    ListRoots(Option<RequestParams>),
    /// An input request with an unknown method.
    Unknown(UnknownInputRequest),
}

impl InputRequest {
    /// Returns the method.
    #[must_use]
    pub fn method(&self) -> &str {
        match self {
            Self::Elicit(_) => ElicitRequest::NAME,
            Self::CreateMessage(_) => CreateMessageRequest::NAME,
            Self::ListRoots(_) => ListRootsRequest::NAME,
            Self::Unknown(request) => &request.method,
        }
    }
}

/// An input request with an unknown method, kept as received.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownInputRequest {
    /// The method.
    pub method: String,
    /// The params.
    pub params: Option<Json>,
}

impl UnknownInputRequest {
    /// Creates an input request with a custom method.
    #[must_use]
    pub fn new(method: impl Into<String>, params: Option<Json>) -> Self {
        Self {
            method: method.into(),
            params,
        }
    }
}

impl Serialize for InputRequest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut request = serializer.serialize_struct("InputRequest", 2)?;
        request.serialize_field("method", self.method())?;
        match self {
            Self::Elicit(params) => request.serialize_field("params", params)?,
            Self::CreateMessage(params) => request.serialize_field("params", params)?,
            Self::ListRoots(Some(params)) => request.serialize_field("params", params)?,
            Self::Unknown(UnknownInputRequest {
                params: Some(params),
                ..
            }) => request.serialize_field("params", params)?,
            Self::ListRoots(None) | Self::Unknown(_) => request.skip_field("params")?,
        }
        request.end()
    }
}

impl<'de> Deserialize<'de> for InputRequest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct MethodAndParams {
            method: String,
            params: Option<Json>,
        }

        let MethodAndParams { method, params } = MethodAndParams::deserialize(deserializer)?;
        let required = || {
            params
                .as_ref()
                .ok_or_else(|| D::Error::missing_field("params"))
        };
        match method.as_str() {
            ElicitRequest::NAME => required()?.decode().map(Self::Elicit),
            CreateMessageRequest::NAME => required()?.decode().map(Self::CreateMessage),
            ListRootsRequest::NAME => params
                .as_ref()
                .map(Json::decode)
                .transpose()
                .map(Self::ListRoots),
            _ => Ok(Self::Unknown(UnknownInputRequest { method, params })),
        }
        .map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn an_unknown_input_request_survives_beside_a_known_one() {
        let value = json!({
            "a": {"method": "dream/interpret", "params": {"dream": [1.5]}},
            "b": {"method": "roots/list"},
            "c": {"method": "dream/list"},
        });

        let requests: InputRequests = serde_json::from_value(value.clone()).unwrap();

        assert_eq!(requests.0["a"].method(), "dream/interpret");
        assert_eq!(requests.0["b"], InputRequest::ListRoots(None));
        assert_eq!(serde_json::to_value(&requests).unwrap(), value);
    }

    #[test]
    fn an_input_request_without_params_is_rejected() {
        let request: Result<InputRequest, _> =
            serde_json::from_value::<InputRequest>(json!({"method": "elicitation/create"}));

        assert!(request.is_err());
    }

    #[test]
    fn input_responses_are_not_decoded() {
        let text = r#"{"a":{"action":"accept","content":{"n": 1.0}},"b":7}"#;

        let responses: InputResponses = serde_json::from_str(text).unwrap();

        assert_eq!(responses.0["b"].decode::<Value>().unwrap(), json!(7));
        assert_eq!(serde_json::to_string(&responses).unwrap(), text);
    }
}
