//! Log messages that a server sends to its client.

use serde::{Deserialize, Serialize};

use crate::{Json, Meta};

/// The severity of a log message, least severe first (RFC 5424).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(
    clippy::exhaustive_enums,
    reason = "the severities of RFC 5424 are these eight"
)]
pub enum LoggingLevel {
    /// Debugging information.
    Debug,
    /// General information.
    Info,
    /// A normal but significant event.
    Notice,
    /// A warning condition.
    Warning,
    /// An error condition.
    Error,
    /// A critical condition, such as a failed component.
    Critical,
    /// Immediate action is required.
    Alert,
    /// The system is unusable.
    Emergency,
}

/// The params of `logging/setLevel` (up to and including 2025-11-25).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SetLevelRequestParams {
    /// The minimum level of the messages to send.
    pub level: LoggingLevel,
    /// The `_meta` of the request.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl SetLevelRequestParams {
    /// Creates params with a minimum level.
    #[must_use]
    pub fn new(level: LoggingLevel) -> Self {
        Self { level, meta: None }
    }
}

/// The params of `notifications/message`: a log message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LoggingMessageNotificationParams {
    /// The severity.
    pub level: LoggingLevel,
    /// The name of the logger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logger: Option<String>,
    /// The logged data: any JSON value.
    pub data: Json,
    /// The `_meta` of the notification.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl LoggingMessageNotificationParams {
    /// Creates a log message.
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
