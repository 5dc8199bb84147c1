//! Elicitation: a server asks the user, with a form or by sending them to a URL.

use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize, Serializer};

use crate::legacy_tasks::TaskMetadata;
use crate::{ElicitSchema, Json, Meta};

/// The params of `elicitation/create`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ElicitRequestParams {
    /// Shows a form.
    Form(ElicitRequestFormParams),
    /// Sends the user to a URL (from 2025-11-25).
    Url(ElicitRequestUrlParams),
}

impl ElicitRequestParams {
    /// What the user is told.
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
        struct Mode {
            mode: Option<ElicitMode>,
        }

        let params = Json::deserialize(deserializer)?;
        match params.decode::<Mode>().map_err(D::Error::custom)?.mode {
            None | Some(ElicitMode::Form) => params.decode().map(Self::Form),
            Some(ElicitMode::Url) => params.decode().map(Self::Url),
        }
        .map_err(D::Error::custom)
    }
}

/// How the user is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ElicitMode {
    /// With a form.
    Form,
    /// At a URL.
    Url,
}

/// The params of `elicitation/create` that show a form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ElicitRequestFormParams {
    /// [`ElicitMode::Form`], or nothing, which means the same and is all that older clients know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ElicitMode>,
    /// What the user is told.
    pub message: String,
    /// The fields of the form.
    pub requested_schema: ElicitSchema,
    /// Asks for the request to run as a task (2025-11-25 only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskMetadata>,
    /// What accompanies the request (until 2025-11-25).
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl ElicitRequestFormParams {
    /// A form.
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

/// The params of `elicitation/create` that send the user to a URL (`ElicitRequestURLParams`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", rename = "url", rename_all = "camelCase")]
#[non_exhaustive]
pub struct ElicitRequestUrlParams {
    /// What the user is told.
    pub message: String,
    /// Where to go.
    pub url: String,
    /// What `notifications/elicitation/complete` will refer to (2025-11-25 only, and there required).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elicitation_id: Option<String>,
    /// Asks for the request to run as a task (2025-11-25 only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskMetadata>,
    /// What accompanies the request (until 2025-11-25).
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl ElicitRequestUrlParams {
    /// A way to a URL.
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

/// The result of `elicitation/create`: what the user did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ElicitResult {
    /// What the user did.
    pub action: ElicitAction,
    /// What the user filled in: an object with a member for each field. Only for an accepted form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Json>,
    /// What accompanies the result (until 2025-11-25).
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl ElicitResult {
    /// The user did this and filled in nothing.
    #[must_use]
    pub fn new(action: ElicitAction) -> Self {
        Self {
            action,
            content: None,
            meta: None,
        }
    }

    /// The user filled in a form.
    #[must_use]
    pub fn accept(content: impl Into<Json>) -> Self {
        Self {
            content: Some(content.into()),
            ..Self::new(ElicitAction::Accept)
        }
    }
}

/// What a user did when asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(
    clippy::exhaustive_enums,
    reason = "every revision has these three and no other"
)]
pub enum ElicitAction {
    /// Agreed.
    Accept,
    /// Refused.
    Decline,
    /// Did neither, such as closing the window.
    Cancel,
}

/// The params of `notifications/elicitation/complete`: what was asked at a URL is done (2025-11-25 only).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ElicitationCompleteNotificationParams {
    /// The id that came with the request.
    pub elicitation_id: String,
    /// What accompanies the notification.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl ElicitationCompleteNotificationParams {
    /// What the request with this elicitation id asked for is done.
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
