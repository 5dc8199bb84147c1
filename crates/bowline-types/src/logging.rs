//! Log messages that a server sends to its client.

use serde::{Deserialize, Serialize};

use crate::{Json, Meta};

/// How severe a log message is, least severe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(
    clippy::exhaustive_enums,
    reason = "the severities of RFC 5424 are these eight"
)]
pub enum LoggingLevel {
    /// For whoever is looking for a fault.
    Debug,
    /// Something happened.
    Info,
    /// Something happened that is worth knowing.
    Notice,
    /// Something may go wrong.
    Warning,
    /// Something went wrong.
    Error,
    /// A part has failed.
    Critical,
    /// Somebody must act at once.
    Alert,
    /// Nothing works.
    Emergency,
}

/// The params of `logging/setLevel` (until 2025-11-25).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SetLevelRequestParams {
    /// The least severe message that the client wants.
    pub level: LoggingLevel,
    /// What accompanies the request.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl SetLevelRequestParams {
    /// A wish for messages that are at least this severe.
    #[must_use]
    pub fn new(level: LoggingLevel) -> Self {
        Self { level, meta: None }
    }
}

/// The params of `notifications/message`: a log message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LoggingMessageNotificationParams {
    /// How severe it is.
    pub level: LoggingLevel,
    /// Who logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logger: Option<String>,
    /// What is logged: any value.
    pub data: Json,
    /// What accompanies the notification.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl LoggingMessageNotificationParams {
    /// A log message.
    #[must_use]
    pub fn new(level: LoggingLevel, data: impl Into<Json>) -> Self {
        Self {
            level,
            logger: None,
            data: data.into(),
            meta: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_ordered_by_severity() {
        assert!(LoggingLevel::Debug < LoggingLevel::Warning);
        assert!(LoggingLevel::Alert < LoggingLevel::Emergency);
    }
}
