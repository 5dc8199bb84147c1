//! Elicitation: a server requests input from the user, in form mode or URL mode.

use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize, Serializer};

use crate::legacy_tasks::TaskMetadata;
use crate::{ElicitSchema, Json, Meta};

/// The params of `elicitation/create`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ElicitRequestParams {
    /// Form mode.
    Form(ElicitRequestFormParams),
    /// URL mode (from 2025-11-25).
    Url(ElicitRequestUrlParams),
}

impl ElicitRequestParams {
    /// Returns the message for the user.
    #[must_use]
    pub fn message(&self) -> &str {
        match self {
            Self::Form(params) => &params.message,
            Self::Url(params) => &params.message,
        }
    }
}

impl From<ElicitRequestFormParams> for ElicitRequestParams {
    fn from(params: ElicitRequestFormParams) -> Self {
        Self::Form(params)
    }
}

impl From<ElicitRequestUrlParams> for ElicitRequestParams {
    fn from(params: ElicitRequestUrlParams) -> Self {
        Self::Url(params)
    }
}

impl Serialize for ElicitRequestParams {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Form(params) => params.serialize(serializer),
            Self::Url(params) => params.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ElicitRequestParams {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct ModeMember {
            mode: Option<ElicitMode>,
        }

        let params = Json::deserialize(deserializer)?;
        match params
            .decode::<ModeMember>()
            .map_err(D::Error::custom)?
            .mode
        {
            None | Some(ElicitMode::Form) => params.decode().map(Self::Form),
            Some(ElicitMode::Url) => params.decode().map(Self::Url),
        }
        .map_err(D::Error::custom)
    }
}

/// The mode of an elicitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ElicitMode {
    /// The client shows a form.
    Form,
    /// The user visits a URL.
    Url,
}

/// The params of `elicitation/create` in form mode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ElicitRequestFormParams {
    /// [`ElicitMode::Form`], or `None`, which means the same and is the only value that older clients accept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ElicitMode>,
    /// The message for the user.
    pub message: String,
    /// The schema of the form.
    pub requested_schema: ElicitSchema,
    /// Requests execution as a task (2025-11-25 only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskMetadata>,
    /// The `_meta` of the request (up to and including 2025-11-25).
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl ElicitRequestFormParams {
    /// Creates params with a message and a form.
    #[must_use]
    pub fn new(message: impl Into<String>, requested_schema: ElicitSchema) -> Self {
        Self {
            mode: None,
            message: message.into(),
            requested_schema,
            task: None,
            meta: None,
        }
    }
}

/// The params of `elicitation/create` in URL mode (`ElicitRequestURLParams`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", rename = "url", rename_all = "camelCase")]
#[non_exhaustive]
pub struct ElicitRequestUrlParams {
    /// The message for the user.
    pub message: String,
    /// The URL to visit.
    pub url: String,
    /// The id that `notifications/elicitation/complete` refers to (2025-11-25 only, and there required).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elicitation_id: Option<String>,
    /// Requests execution as a task (2025-11-25 only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskMetadata>,
    /// The `_meta` of the request (up to and including 2025-11-25).
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl ElicitRequestUrlParams {
    /// Creates params with a message and a URL.
    #[must_use]
    pub fn new(message: impl Into<String>, url: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            url: url.into(),
            elicitation_id: None,
            task: None,
            meta: None,
        }
    }
}

/// The result of `elicitation/create`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ElicitResult {
    /// The action of the user.
    pub action: ElicitAction,
    /// The submitted form: an object with a member for each field. Only in form mode, with `accept`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Json>,
    /// The `_meta` of the result (up to and including 2025-11-25).
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl ElicitResult {
    /// Creates a result without content.
    #[must_use]
    pub fn new(action: ElicitAction) -> Self {
        Self {
            action,
            content: None,
            meta: None,
        }
    }

    /// Creates an `accept` result with the submitted form.
    #[must_use]
    pub fn accept(content: impl Into<Json>) -> Self {
        Self {
            content: Some(content.into()),
            ..Self::new(ElicitAction::Accept)
        }
    }
}

/// The action of the user on an elicitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(
    clippy::exhaustive_enums,
    reason = "every revision has exactly these three"
)]
pub enum ElicitAction {
    /// The user submitted the form or consented to visit the URL.
    Accept,
    /// The user declined.
    Decline,
    /// The user dismissed the request without a choice, such as by closing the window.
    Cancel,
}

/// The params of `notifications/elicitation/complete` (2025-11-25 only).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ElicitationCompleteNotificationParams {
    /// The elicitation id of the request.
    pub elicitation_id: String,
    /// The `_meta` of the notification.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl ElicitationCompleteNotificationParams {
    /// Creates params with an elicitation id.
    #[must_use]
    pub fn new(elicitation_id: impl Into<String>) -> Self {
        Self {
            elicitation_id: elicitation_id.into(),
            meta: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_without_a_mode_is_a_form_and_stays_without() {
        let text = r#"{"message":"?","requestedSchema":{"type":"object","properties":{}}}"#;

        let params: ElicitRequestParams = serde_json::from_str(text).unwrap();

        assert!(matches!(&params, ElicitRequestParams::Form(form) if form.mode.is_none()));
        assert_eq!(serde_json::to_string(&params).unwrap(), text);
    }

    #[test]
    fn a_mode_that_is_not_known_is_refused() {
        let text = r#"{"mode":"telepathy","message":"?"}"#;

        let error = serde_json::from_str::<ElicitRequestParams>(text).unwrap_err();

        assert!(error.to_string().contains("telepathy"), "{error}");
    }
}
