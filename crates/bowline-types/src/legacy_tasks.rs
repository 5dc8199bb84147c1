//! Tasks as revision 2025-11-25 tried them out, and only that one.
//!
//! A request that may take long is answered with a [`Task`], and its result is fetched later. The tasks
//! extension of later revisions is another thing with the same name, so these types have a module of
//! their own.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::number::optional_count;
use crate::{Cursor, Json, Meta, Settings};

/// A request that goes on after it was answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Task {
    /// Its id.
    pub task_id: String,
    /// How it stands.
    pub status: TaskStatus,
    /// How it stands, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_message: Option<String>,
    /// When it was made, in ISO 8601.
    pub created_at: String,
    /// When its status last changed, in ISO 8601.
    pub last_updated_at: String,
    /// For how many milliseconds since its making it is kept; `null`, which is written, is for ever.
    #[serde(deserialize_with = "optional_count")]
    pub ttl: Option<u64>,
    /// How many milliseconds to wait between two looks.
    #[serde(
        default,
        deserialize_with = "optional_count",
        skip_serializing_if = "Option::is_none"
    )]
    pub poll_interval: Option<u64>,
}

impl Task {
    /// A task that is being worked on, made at a time given in ISO 8601 and kept for ever.
    #[must_use]
    pub fn new(task_id: impl Into<String>, created_at: impl Into<String>) -> Self {
        let created_at = created_at.into();
        Self {
            task_id: task_id.into(),
            status: TaskStatus::Working,
            status_message: None,
            last_updated_at: created_at.clone(),
            created_at,
            ttl: None,
            poll_interval: None,
        }
    }
}

/// How a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(
    clippy::exhaustive_enums,
    reason = "the one revision that has it is closed"
)]
pub enum TaskStatus {
    /// It is being worked on.
    Working,
    /// It waits for the other side.
    InputRequired,
    /// It has its result.
    Completed,
    /// It has failed.
    Failed,
    /// Nobody wants it any more.
    Cancelled,
}

/// Asks for a request to run as a task: the member `task` of its params.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TaskMetadata {
    /// For how many milliseconds the task should be kept.
    #[serde(
        default,
        deserialize_with = "optional_count",
        skip_serializing_if = "Option::is_none"
    )]
    pub ttl: Option<u64>,
}

/// The params that every request has which can run as a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TaskAugmentedRequestParams {
    /// Asks for the request to run as a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskMetadata>,
    /// What accompanies the request.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

/// The task that a message belongs to: the value of
/// [`RELATED_TASK`](crate::meta_key::RELATED_TASK) in its `_meta`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RelatedTaskMetadata {
    /// The id of the task.
    pub task_id: String,
}

impl RelatedTaskMetadata {
    /// The task with this id.
    #[must_use]
    pub fn new(task_id: impl Into<String>) -> Self {
        Self {
            task_id: task_id.into(),
        }
    }
}

/// The result of a request that now runs as a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CreateTaskResult {
    /// The task.
    pub task: Task,
    /// What accompanies the result.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl CreateTaskResult {
    /// The request runs as this task.
    #[must_use]
    pub fn new(task: Task) -> Self {
        Self { task, meta: None }
    }
}

/// The params of `tasks/get`, `tasks/result` and `tasks/cancel`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct TaskRequestParams {
    /// The id of the task.
    pub task_id: String,
    /// What accompanies the request.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl TaskRequestParams {
    /// A request about the task with this id.
    #[must_use]
    pub fn new(task_id: impl Into<String>) -> Self {
        Self {
            task_id: task_id.into(),
            meta: None,
        }
    }
}

/// The result of `tasks/get`: how the task stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GetTaskResult {
    /// The task, whose members are those of the result.
    #[serde(flatten)]
    pub task: Task,
    /// What accompanies the result.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl GetTaskResult {
    /// How this task stands.
    #[must_use]
    pub fn new(task: Task) -> Self {
        Self { task, meta: None }
    }
}

/// The result of `tasks/cancel`: how the task stands now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CancelTaskResult {
    /// The task, whose members are those of the result.
    #[serde(flatten)]
    pub task: Task,
    /// What accompanies the result.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl CancelTaskResult {
    /// How this task stands now.
    #[must_use]
    pub fn new(task: Task) -> Self {
        Self { task, meta: None }
    }
}

/// The result of `tasks/result`: the result of the request that became the task, whatever that is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
#[allow(
    clippy::exhaustive_structs,
    reason = "only who made the request knows its type"
)]
pub struct GetTaskPayloadResult(pub Json);

/// The result of `tasks/list`: one page of tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ListTasksResult {
    /// The tasks.
    pub tasks: Vec<Task>,
    /// Where the next page starts, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<Cursor>,
    /// What accompanies the result.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl ListTasksResult {
    /// A page of tasks.
    #[must_use]
    pub fn new(tasks: Vec<Task>) -> Self {
        Self {
            tasks,
            ..Self::default()
        }
    }
}

/// The params of `notifications/tasks/status`: how a task stands now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TaskStatusNotificationParams {
    /// The task, whose members are those of the params.
    #[serde(flatten)]
    pub task: Task,
    /// What accompanies the notification.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl TaskStatusNotificationParams {
    /// How this task stands now.
    #[must_use]
    pub fn new(task: Task) -> Self {
        Self { task, meta: None }
    }
}

/// Whether a tool runs as a task: the member `execution` of a [`Tool`](crate::Tool).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolExecution {
    /// Whether it does. Absent means [`TaskSupport::Forbidden`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_support: Option<TaskSupport>,
}

/// Whether a tool runs as a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(
    clippy::exhaustive_enums,
    reason = "the one revision that has it is closed"
)]
pub enum TaskSupport {
    /// It does not.
    Forbidden,
    /// It does if it is asked to.
    Optional,
    /// It always does.
    Required,
}

/// What a client can run as a task. An open set, like all capabilities.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClientTasksCapability {
    /// It lists its tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list: Option<Settings>,
    /// It cancels tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<Settings>,
    /// The requests that it runs as tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<ClientTaskRequests>,
    /// Members that are not known here.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// The requests that a client runs as tasks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClientTaskRequests {
    /// `elicitation/create`, under the name `create`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elicitation: Option<Settings>,
    /// `sampling/createMessage`, under the name `createMessage`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<Settings>,
    /// Members that are not known here.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// What a server can run as a task. An open set, like all capabilities.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ServerTasksCapability {
    /// It lists its tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list: Option<Settings>,
    /// It cancels tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<Settings>,
    /// The requests that it runs as tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<ServerTaskRequests>,
    /// Members that are not known here.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// The requests that a server runs as tasks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ServerTaskRequests {
    /// `tools/call`, under the name `call`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Settings>,
    /// Members that are not known here.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}
