//! The form of a task in 2025-11-25.

use bowline_types::legacy_tasks::{RelatedTaskMetadata, Task, TaskStatus as LegacyStatus};
use bowline_types::{Json, meta_key};

use std::collections::BTreeMap;
use std::time::Duration;

use crate::TaskId;
use crate::server::run_task::tool_failure;
use crate::store::{TaskOutcome, TaskRecord, TaskStatus, TaskSummary};

/// Returns the task of a record. One whose tool failed (`isError`) has failed in this version.
pub(super) fn of_record(record: &TaskRecord) -> Task {
    let mut task = of_summary(&record.summary());
    if let Some(TaskOutcome::Completed(result)) = &record.outcome
        && let Some(why) = tool_failure(result)
    {
        task.status = LegacyStatus::Failed;
        if !why.is_empty() {
            task.status_message = Some(why);
        }
    }
    task
}

/// Returns the task of a summary, which does not tell whether its tool failed.
pub(super) fn of_summary(summary: &TaskSummary) -> Task {
    let mut task = Task::new(summary.id.to_string(), summary.created_at.to_string());
    task.status = match summary.status {
        TaskStatus::Working => LegacyStatus::Working,
        TaskStatus::InputRequired => LegacyStatus::InputRequired,
        TaskStatus::Completed => LegacyStatus::Completed,
        TaskStatus::Failed => LegacyStatus::Failed,
        TaskStatus::Cancelled => LegacyStatus::Cancelled,
    };
    task.status_message.clone_from(&summary.status_message);
    task.last_updated_at = summary.updated_at.to_string();
    task.ttl = summary.ttl.map(whole_millis);
    task.poll_interval = summary.poll_interval.map(whole_millis);
    task
}

/// Adds the id of the task to the `_meta` of a message that belongs to it.
pub(super) fn with_related_task(message: &Json, id: TaskId) -> Result<Json, serde_json::Error> {
    let mut members: BTreeMap<String, Json> = message.decode()?;
    let meta = members.get("_meta").map(Json::decode).transpose()?;
    let mut meta: BTreeMap<String, Json> = Option::flatten(meta).unwrap_or_default();
    let related = Json::encode(&RelatedTaskMetadata::new(id.to_string()))?;
    meta.insert(meta_key::RELATED_TASK.to_owned(), related);
    members.insert("_meta".to_owned(), to_object(&meta));
    Ok(to_object(&members))
}

pub(super) fn to_object(members: &BTreeMap<String, Json>) -> Json {
    Json::object(members.iter().map(|(name, value)| (&**name, value)))
}

fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
