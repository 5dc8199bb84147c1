//! The messages of the extension `io.modelcontextprotocol/tasks`: tasks, the params of its methods, and its names.

use std::collections::BTreeMap;
use std::time::Duration;

use bowline_types::{Json, RpcError};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::store::{TaskOutcome, TaskRecord, TaskStatus, Timestamp};

/// The identifier of the extension.
pub const EXTENSION_ID: &str = "io.modelcontextprotocol/tasks";
/// The method that returns a task.
pub const GET_METHOD: &str = "tasks/get";
/// The method that answers the questions of a task.
pub const UPDATE_METHOD: &str = "tasks/update";
/// The method that cancels a task.
pub const CANCEL_METHOD: &str = "tasks/cancel";
/// The notification that contains a changed task.
pub const NOTIFICATION_METHOD: &str = "notifications/tasks";
/// The member of a subscription filter with the ids of tasks.
pub const FILTER_MEMBER: &str = "taskIds";
/// The `resultType` of a result that is a [`Task`].
pub const RESULT_TYPE: &str = "task";

/// A task, as a server reports it: its id, status and times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Task {
    /// The id.
    pub task_id: String,
    /// The status.
    pub status: TaskStatus,
    /// The status, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_message: Option<String>,
    /// When the task was created, in ISO 8601.
    #[serde(default)]
    pub created_at: String,
    /// When it was last changed, in ISO 8601.
    #[serde(default)]
    pub last_updated_at: String,
    /// The time to live from the creation; `None` if it is unlimited.
    #[serde(default, deserialize_with = "millis")]
    pub ttl_ms: Option<u64>,
    /// How often clients should poll.
    #[serde(
        default,
        deserialize_with = "millis",
        skip_serializing_if = "Option::is_none"
    )]
    pub poll_interval_ms: Option<u64>,
}

impl Task {
    /// Returns the time to live, or `None` if it is unlimited.
    #[must_use]
    pub fn ttl(&self) -> Option<Duration> {
        self.ttl_ms.map(Duration::from_millis)
    }

    /// Returns how often the server wants clients to poll.
    #[must_use]
    pub fn poll_interval(&self) -> Option<Duration> {
        self.poll_interval_ms.map(Duration::from_millis)
    }
}

impl From<&TaskRecord> for Task {
    fn from(record: &TaskRecord) -> Self {
        Self {
            task_id: record.id.to_string(),
            status: record.status(),
            status_message: record.status_message.clone(),
            created_at: record.created_at.to_string(),
            last_updated_at: record.updated_at.to_string(),
            ttl_ms: record.ttl.map(whole_millis),
            poll_interval_ms: record.poll_interval.map(whole_millis),
        }
    }
}

/// A task with what its status adds: its questions, its result, or its error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DetailedTask {
    /// The task.
    pub task: Task,
    /// Open input requests by their key, if the status is [`TaskStatus::InputRequired`].
    pub input_requests: BTreeMap<String, Json>,
    /// The result of the call, if the status is [`TaskStatus::Completed`].
    pub result: Option<Json>,
    /// The error of the call, if the status is [`TaskStatus::Failed`].
    pub error: Option<RpcError>,
}

/// The members of a [`DetailedTask`] that a [`Task`] does not have.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaskDetails {
    #[serde(default)]
    input_requests: Option<BTreeMap<String, Json>>,
    #[serde(default)]
    result: Option<Json>,
    #[serde(default)]
    error: Option<RpcError>,
}

impl DetailedTask {
    /// Decodes the result of `tasks/get`, or the params of `notifications/tasks`.
    ///
    /// # Errors
    ///
    /// If it is not a task.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline_tasks::protocol::DetailedTask;
    /// use bowline_tasks::store::TaskStatus;
    /// use bowline_types::Json;
    ///
    /// let json = Json::from_static(r#"{"taskId":"7","status":"completed","ttlMs":null,"result":{"content":[]}}"#);
    /// let task = DetailedTask::decode(&json)?;
    /// assert_eq!(task.task.status, TaskStatus::Completed);
    /// assert_eq!(task.result.unwrap().as_str(), r#"{"content":[]}"#);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn decode(json: &Json) -> Result<Self, serde_json::Error> {
        // In two steps: `serde(flatten)` cannot contain undecoded JSON.
        let task = json.decode()?;
        let details: TaskDetails = json.decode()?;
        Ok(Self {
            task,
            input_requests: details.input_requests.unwrap_or_default(),
            result: details.result,
            error: details.error,
        })
    }
}

impl From<&TaskRecord> for DetailedTask {
    fn from(record: &TaskRecord) -> Self {
        let (result, error) = match &record.outcome {
            Some(TaskOutcome::Completed(result)) => (Some(result.clone()), None),
            Some(TaskOutcome::Failed(error)) => (None, Some(error.clone())),
            Some(TaskOutcome::Cancelled) | None => (None, None),
        };
        Self {
            task: Task::from(record),
            input_requests: record.questions.clone(),
            result,
            error,
        }
    }
}

/// The params of `tasks/get` and `tasks/cancel`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct TaskParams {
    /// The id of the task.
    pub task_id: String,
}

impl TaskParams {
    /// Creates the params for a task.
    #[must_use]
    pub fn new(task_id: impl Into<String>) -> Self {
        Self {
            task_id: task_id.into(),
        }
    }
}

/// The params of `tasks/update`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct UpdateTaskParams {
    /// The id of the task.
    pub task_id: String,
    /// Answers by the key of their input request.
    pub input_responses: BTreeMap<String, Json>,
}

impl UpdateTaskParams {
    /// Creates the params for a task and its answers.
    #[must_use]
    pub fn new(task_id: impl Into<String>, input_responses: BTreeMap<String, Json>) -> Self {
        Self {
            task_id: task_id.into(),
            input_responses,
        }
    }
}

impl Serialize for TaskStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for TaskStatus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::from_name(&name).ok_or_else(|| {
            let name: String = name.chars().take(64).collect();
            D::Error::custom(format!("unknown task status `{name}`"))
        })
    }
}

/// Reads milliseconds of any number: peers in languages with one type of numbers may send `1000.0`, and the schema
/// allows negative ones.
fn millis<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let number = Option::<serde_json::Number>::deserialize(deserializer)?;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the cast saturates"
    )]
    let to_millis = |number: serde_json::Number| {
        let rounded = number.as_f64().map(|float| float as u64);
        number.as_u64().or(rounded).unwrap_or_default()
    };
    Ok(number.map(to_millis))
}

fn whole_millis(duration: Duration) -> u64 {
    Timestamp::default().after(duration).as_millis()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_of_another_implementation_is_decoded_leniently() {
        let json = Json::from_static(
            r#"{"resultType":"complete","taskId":"7","status":"input_required","createdAt":"x",
                "ttlMs":1000.0,"pollIntervalMs":-5,"inputRequests":{"k":{"method":"roots/list"}},"other":1}"#,
        );

        let task = DetailedTask::decode(&json).unwrap();

        assert_eq!(task.task.ttl(), Some(Duration::from_secs(1)));
        assert_eq!(task.task.poll_interval(), Some(Duration::ZERO));
        assert_eq!(
            task.input_requests["k"].as_str(),
            r#"{"method":"roots/list"}"#
        );
    }

    #[test]
    fn an_unknown_status_is_an_error() {
        let json = Json::from_static(r#"{"taskId":"7","status":"paused","ttlMs":null}"#);

        let error = DetailedTask::decode(&json).unwrap_err();

        assert!(error.to_string().contains("unknown task status `paused`"));
    }
}
