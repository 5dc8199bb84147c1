//! A server that needs something first: `input_required` and the answers (from 2026-07-28).

use std::collections::BTreeMap;

use serde::de::{Deserializer, Error as _};
use serde::ser::{SerializeStruct, Serializer};
use serde::{Deserialize, Serialize};

use crate::{
    CreateMessageRequest, CreateMessageRequestParams, ElicitRequest, ElicitRequestParams, Json,
    ListRootsRequest, Meta, Method, RequestParams, ResultType,
};

/// A result that is not one yet: the client is to answer some questions and send the request again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct InputRequiredResult {
    /// How to read the result: always [`ResultType::INPUT_REQUIRED`].
    pub result_type: ResultType,
    /// The questions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_requests: Option<InputRequests>,
    /// What the client is to send back, unread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_state: Option<String>,
    /// What accompanies the result.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl InputRequiredResult {
    /// A result that asks these questions.
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

/// Questions, each under a key that its answer will have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
#[allow(clippy::exhaustive_structs, reason = "it is a map and nothing else")]
pub struct InputRequests(pub BTreeMap<String, InputRequest>);

/// Answers, each under the key of its question. Only who asked knows their types.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
#[allow(clippy::exhaustive_structs, reason = "it is a map and nothing else")]
pub struct InputResponses(pub BTreeMap<String, Json>);

/// One question: a request without an id, since its answer travels in the retried request.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum InputRequest {
    /// Asks the user.
    Elicit(Box<ElicitRequestParams>),
    /// Has a model write something.
    CreateMessage(Box<CreateMessageRequestParams>),
    /// Asks which folders the client works on.
    ListRoots(Option<RequestParams>),
    /// A question that is not known here.
    Unknown(UnknownInputRequest),
}

impl InputRequest {
    /// The method that the question uses.
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

/// A question that is not known here, kept as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownInputRequest {
    /// Its method.
    pub method: String,
    /// Its params.
    pub params: Option<Json>,
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
        struct Unread {
            method: String,
            params: Option<Json>,
        }

        let Unread { method, params } = Unread::deserialize(deserializer)?;
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
    fn a_question_that_is_not_known_survives_beside_one_that_is() {
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
    fn a_question_without_its_params_is_refused() {
        let request: Result<InputRequest, _> =
            serde_json::from_value::<InputRequest>(json!({"method": "elicitation/create"}));

        assert!(request.is_err());
    }

    #[test]
    fn answers_are_not_looked_into() {
        let text = r#"{"a":{"action":"accept","content":{"n": 1.0}},"b":7}"#;

        let responses: InputResponses = serde_json::from_str(text).unwrap();

        assert_eq!(responses.0["b"].decode::<Value>().unwrap(), json!(7));
        assert_eq!(serde_json::to_string(&responses).unwrap(), text);
    }
}
