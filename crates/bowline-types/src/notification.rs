//! Notifications that belong to requests, and the bare params of those that say nothing more.

use serde::{Deserialize, Serialize};

use crate::{Meta, ProgressToken, RequestId};

/// The params of a notification that needs none, such as `notifications/tools/list_changed`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NotificationParams {
    /// What accompanies the notification.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

/// The params of `notifications/progress`: how far a request has got.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ProgressNotificationParams {
    /// The token that came with the request.
    pub progress_token: ProgressToken,
    /// How much is done. It only grows, even if the total is not known.
    #[serde(with = "crate::number::measure")]
    pub progress: f64,
    /// How much there is to do.
    #[serde(
        default,
        with = "crate::number::optional_measure",
        skip_serializing_if = "Option::is_none"
    )]
    pub total: Option<f64>,
    /// What is going on, for people (from 2025-03-26).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What accompanies the notification.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl ProgressNotificationParams {
    /// So much of the request with this token is done.
    #[must_use]
    pub fn new(progress_token: impl Into<ProgressToken>, progress: f64) -> Self {
        Self {
            progress_token: progress_token.into(),
            progress,
            total: None,
            message: None,
            meta: None,
        }
    }
}

/// The params of `notifications/cancelled`: the sender no longer wants a request to be worked on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CancelledNotificationParams {
    /// The request. It may be absent in 2025-11-25 only, where it then concerns a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What accompanies the notification.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl CancelledNotificationParams {
    /// The request with this id is no longer wanted.
    #[must_use]
    pub fn new(request_id: impl Into<RequestId>) -> Self {
        Self {
            request_id: Some(request_id.into()),
            ..Self::default()
        }
    }

    /// Says why.
    #[must_use]
    pub fn with_reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }
}
