//! The experimental tasks of revision 2025-11-25.
//!
//! A request that may take long is answered with a [`Task`], and its result is fetched later. The tasks
//! extension of later revisions is incompatible, so these types have their own module.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::number::optional_count;
use crate::{CapabilitySettings, Cursor, Json, Meta};

/// A request that continues after it was answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Task {
    /// The task id.
    pub task_id: String,
    /// The status.
    pub status: TaskStatus,
    /// The status, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_message: Option<String>,
    /// The time of creation in ISO 8601.
    pub created_at: String,
    /// The time of the last status change in ISO 8601.
    pub last_updated_at: String,
    /// How long it is retained from its creation, in milliseconds; `None` (serialized as `null`) means forever.
    #[serde(deserialize_with = "optional_count")]
    pub ttl: Option<u64>,
    /// The recommended polling interval in milliseconds.
    #[serde(
        default,
        deserialize_with = "optional_count",
        skip_serializing_if = "Option::is_none"
    )]
    pub poll_interval: Option<u64>,
}

impl Task {
    /// Creates a working task with a time of creation in ISO 8601, retained forever.
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

/// The status of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(
    clippy::exhaustive_enums,
    reason = "the only revision with tasks is final"
)]
pub enum TaskStatus {
    /// The task is running.
    Working,
    /// The task waits for input from the requestor.
    InputRequired,
    /// The task has a result.
    Completed,
    /// The task failed.
    Failed,
    /// The task was cancelled.
    Cancelled,
}

/// Requests execution as a task: the member `task` of the params.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TaskMetadata {
    /// How long the task should be retained, in milliseconds.
    #[serde(
        default,
        deserialize_with = "optional_count",
        skip_serializing_if = "Option::is_none"
    )]
    pub ttl: Option<u64>,
}

/// The common params of requests that can run as a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TaskAugmentedRequestParams {
    /// Requests execution as a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskMetadata>,
    /// The `_meta` of the request.
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
    /// Creates metadata with a task id.
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
    /// The `_meta` of the result.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl CreateTaskResult {
    /// Creates a result with this task.
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
    /// The `_meta` of the request.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl TaskRequestParams {
    /// Creates params with a task id.
    #[must_use]
    pub fn new(task_id: impl Into<String>) -> Self {
        Self {
            task_id: task_id.into(),
            meta: None,
        }
    }
}

/// The result of `tasks/get`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GetTaskResult {
    /// The task, whose members are members of the result.
    #[serde(flatten)]
    pub task: Task,
    /// The `_meta` of the result.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl GetTaskResult {
    /// Creates a result with this task.
    #[must_use]
    pub fn new(task: Task) -> Self {
        Self { task, meta: None }
    }
}

/// The result of `tasks/cancel`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CancelTaskResult {
    /// The task, whose members are members of the result.
    #[serde(flatten)]
    pub task: Task,
    /// The `_meta` of the result.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl CancelTaskResult {
    /// Creates a result with this task.
    #[must_use]
    pub fn new(task: Task) -> Self {
        Self { task, meta: None }
    }
}

/// The result of `tasks/result`: the result of the original request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
#[allow(
    clippy::exhaustive_structs,
    reason = "a newtype of the result of any request"
)]
pub struct GetTaskPayloadResult(pub Json);

/// The result of `tasks/list`: one page of tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ListTasksResult {
    /// The tasks.
    pub tasks: Vec<Task>,
    /// The cursor of the next page; `None` on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<Cursor>,
    /// The `_meta` of the result.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl ListTasksResult {
    /// Creates a page of tasks.
    #[must_use]
    pub fn new(tasks: Vec<Task>) -> Self {
        Self {
            tasks,
            ..Self::default()
        }
    }
}

/// The params of `notifications/tasks/status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TaskStatusNotificationParams {
    /// The task, whose members are members of the params.
    #[serde(flatten)]
    pub task: Task,
    /// The `_meta` of the notification.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl TaskStatusNotificationParams {
    /// Creates params with this task.
    #[must_use]
    pub fn new(task: Task) -> Self {
        Self { task, meta: None }
    }
}

/// Whether a tool can run as a task: the member `execution` of a [`Tool`](crate::Tool).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolExecution {
    /// The task support. Absent means [`TaskSupport::Forbidden`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_support: Option<TaskSupport>,
}

/// Whether a tool can run as a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(
    clippy::exhaustive_enums,
    reason = "the only revision with tasks is final"
)]
pub enum TaskSupport {
    /// Never runs as a task.
    Forbidden,
    /// Runs as a task if requested.
    Optional,
    /// Always runs as a task.
    Required,
}

/// The tasks capability of a client. An open set, like all capabilities.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClientTasksCapability {
    /// Supports `tasks/list`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list: Option<CapabilitySettings>,
    /// Supports `tasks/cancel`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<CapabilitySettings>,
    /// The requests that can run as tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<ClientTaskRequests>,
    /// Unknown members.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// The requests that a client can run as tasks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClientTaskRequests {
    /// `elicitation/create`, as the member `create`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elicitation: Option<CapabilitySettings>,
    /// `sampling/createMessage`, as the member `createMessage`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<CapabilitySettings>,
    /// Unknown members.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// The tasks capability of a server. An open set, like all capabilities.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ServerTasksCapability {
    /// Supports `tasks/list`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list: Option<CapabilitySettings>,
    /// Supports `tasks/cancel`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<CapabilitySettings>,
    /// The requests that can run as tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<ServerTaskRequests>,
    /// Unknown members.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// The requests that a server can run as tasks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ServerTaskRequests {
    /// `tools/call`, as the member `call`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<CapabilitySettings>,
    /// Unknown members.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}
