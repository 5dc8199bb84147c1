//! `tasks/list`: the tasks of an identified principal, by pages.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bowline::Context;
use bowline::exchange::{Outcome, Request};
use bowline_types::legacy_tasks::{ListTasksResult, Task};
use bowline_types::{Cursor, ErrorCode, RpcError};

use super::{encode, method_not_found, task};
use crate::TaskId;
use crate::server::store_errors::to_rpc_error;
use crate::store::{ListPosition, StoreError, TaskStatus, TaskStore, TaskSummary, Timestamp};

/// Answers `tasks/list`. For an anonymous caller the method does not exist: ids are the credentials of its tasks.
pub(super) async fn list(store: &dyn TaskStore, request: &Request, cx: &Context) -> Outcome {
    let Some(principal) = cx.principal().name() else {
        return Err(method_not_found(&request.method));
    };
    let after = requested_start(request)?;
    let page = store.list(principal, after, PAGE_SIZE).await;
    let page = page.map_err(|error| to_rpc_error(&error))?;
    let mut tasks = Vec::with_capacity(page.tasks.len());
    for summary in &page.tasks {
        let listed = listed(store, summary).await;
        tasks.push(listed.map_err(|error| to_rpc_error(&error))?);
    }
    let mut result = ListTasksResult::new(tasks);
    result.next_cursor = page.next.map(to_cursor);
    encode(&result)
}

/// Returns a task of the list. Whether the tool of a completed one failed is in its result only.
async fn listed(store: &dyn TaskStore, summary: &TaskSummary) -> Result<Task, StoreError> {
    if summary.status == TaskStatus::Completed
        && let Some(record) = store.read(summary.id).await?
    {
        return Ok(task::of_record(&record));
    }
    Ok(task::of_summary(summary))
}

/// Returns the position after which the requested page starts.
fn requested_start(request: &Request) -> Result<Option<ListPosition>, RpcError> {
    let invalid = || RpcError::new(ErrorCode::INVALID_PARAMS, "invalid cursor");
    let cursor = request.params.member("cursor").map_err(|_| invalid())?;
    let Some(cursor) = cursor.filter(|cursor| !cursor.is_null()) else {
        return Ok(None);
    };
    let text = cursor.text().map_err(|_| invalid())?;
    from_cursor(&text).ok_or_else(invalid).map(Some)
}

fn to_cursor(position: ListPosition) -> Cursor {
    let mut bytes = [0; CURSOR_LEN];
    bytes[..TIME_LEN].copy_from_slice(&position.created_at.as_millis().to_be_bytes());
    bytes[TIME_LEN..].copy_from_slice(position.id.as_bytes());
    BASE64_URL_SAFE_NO_PAD.encode(bytes).into()
}

fn from_cursor(text: &str) -> Option<ListPosition> {
    let mut bytes = [0; CURSOR_LEN];
    let decoded = BASE64_URL_SAFE_NO_PAD.decode_slice(text, &mut bytes);
    if decoded.ok()? != CURSOR_LEN {
        return None;
    }
    let (time, id) = bytes.split_first_chunk()?;
    Some(ListPosition {
        created_at: Timestamp::from_millis(u64::from_be_bytes(*time)),
        id: TaskId::from_bytes(*id.first_chunk()?),
    })
}

/// The number of tasks of a page.
const PAGE_SIZE: usize = 50;
/// The bytes of a cursor: a time and an id.
const CURSOR_LEN: usize = TIME_LEN + size_of::<TaskId>();
const TIME_LEN: usize = size_of::<u64>();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_a_position_and_anything_else_is_not() {
        let position = ListPosition {
            created_at: Timestamp::from_millis(1_785_240_000_123),
            id: TaskId::random().unwrap(),
        };
        let cursor = to_cursor(position);
        let text = &*cursor.0;

        assert_eq!(from_cursor(text), Some(position));
        for other in ["", "x", &text[1..], &format!("{text}AAAA"), "ä"] {
            assert_eq!(from_cursor(other), None, "{other}");
        }
    }
}
