//! Tasks: one that completes, and one that is cancelled by its id.

use serde_json::json;

use super::{Ends, expect};
use crate::front::FrontClient;
use crate::upstream::{SeenEvent, UpstreamServer};

pub(super) async fn run<F: FrontClient, U: UpstreamServer>(
    ends: &mut Ends<'_, F, U>,
) -> Result<(), String> {
    ends.expect_offer(match ends.front_endpoint.revision.is_modern() {
        true => "/extensions/io.modelcontextprotocol~1tasks",
        false => "/tasks/requests/tools/call",
    })?;
    let task = ends.front.start_task("job").await?;
    expect(
        "the status",
        ends.front.task_status(&task).await?.as_str(),
        "working",
    )?;
    ends.upstream.complete_tasks();
    expect(
        "the status",
        ends.front.task_status(&task).await?.as_str(),
        "completed",
    )?;
    let result = ends.front.task_result(&task).await?;
    expect(
        "the text",
        &result["content"][0]["text"],
        &json!("the job is done"),
    )?;

    let cancelled = ends.front.start_task("job").await?;
    ends.front.cancel_task(&cancelled).await?;
    expect(
        "the status",
        ends.front.task_status(&cancelled).await?.as_str(),
        "cancelled",
    )?;

    check_upstream(ends)
}

/// Checks that the upstream ran two tasks, and that the second one was cancelled by its own id.
fn check_upstream<F: FrontClient, U: UpstreamServer>(ends: &Ends<'_, F, U>) -> Result<(), String> {
    expect("calls at the upstream", &ends.calls("job").len(), &2)?;
    let cancels = ends.seen("tasks/cancel");
    let cancels: Vec<_> = cancels.iter().map(|one| &one.params["taskId"]).collect();
    expect(
        "cancelled tasks",
        &cancels,
        &vec![&json!("upstream-task-2")],
    )?;
    let mut entries = ends.upstream.record().entries().into_iter();
    let is_cancel = |event: &SeenEvent| matches!(event, SeenEvent::Notification { method, .. } if method == "notifications/cancelled");
    match entries.any(|seen| is_cancel(&seen.event)) {
        true => Err("a task was cancelled by notification".to_owned()),
        false => Ok(()),
    }
}
