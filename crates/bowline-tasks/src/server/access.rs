//! Who may access a task. Every method and subscription finds its tasks with [`find`].

use bowline::exchange::Principal;
use bowline_types::{ErrorCode, RpcError};

use super::store_errors::to_rpc_error;
use crate::TaskId;
use crate::store::{TaskRecord, TaskStore};

/// Returns a task that the principal may access.
///
/// # Errors
///
/// The same `-32602` for a task that does not exist and for one of another principal, so that ids cannot be probed.
pub(super) async fn find(
    store: &dyn TaskStore,
    task_id: &str,
    principal: &Principal,
) -> Result<TaskRecord, RpcError> {
    // An id that cannot be valid is unknown, too: clients need not know how they look.
    let Ok(id) = task_id.parse::<TaskId>() else {
        return Err(unknown_task());
    };
    let record = store.read(id).await.map_err(|error| to_rpc_error(&error))?;
    let record = record.filter(|record| may_access(record, principal));
    record.ok_or_else(unknown_task)
}

/// Returns whether the principal created the task.
///
/// Its name identifies an issuer and a subject; scopes and claims may change from one request to the next. The id of
/// an anonymous caller's task is its only credential, which a named principal does not get access with.
pub(super) fn may_access(record: &TaskRecord, principal: &Principal) -> bool {
    record.principal.as_deref() == principal.name()
}

pub(super) fn unknown_task() -> RpcError {
    RpcError::new(ErrorCode::INVALID_PARAMS, "unknown task")
}
