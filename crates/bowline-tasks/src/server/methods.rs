//! The methods of the extension: `tasks/get`, `tasks/update`, `tasks/cancel`.

use bowline::exchange::{Context, Outcome, Request};
use bowline_types::{ErrorCode, Json, RpcError};

use super::access;
use super::saved_call::SavedCall;
use super::store_errors::to_rpc_error;
use crate::encode::detailed_task;
use crate::protocol::{CANCEL_METHOD, GET_METHOD, TaskParams, UPDATE_METHOD, UpdateTaskParams};
use crate::store::{TaskChange, TaskRecord, TaskStore, Updated};

/// Answers a request for one of the methods.
pub(super) async fn respond(store: &dyn TaskStore, request: &Request, cx: &Context) -> Outcome {
    let params = &request.params;
    match &*request.method {
        GET_METHOD => {
            // Not decoded: the params have an index with this member, and `_meta` is long.
            let member = params.member("taskId").map_err(|error| invalid(&error))?;
            let member = member.unwrap_or_else(Json::null);
            let task_id = member.text().map_err(|error| invalid(&error))?;
            let record = access::find(store, &task_id, cx.principal()).await?;
            encode(&record)
        }
        // Boxed: most requests are for the status, and each would have room for these.
        UPDATE_METHOD => Box::pin(update(store, params, cx)).await,
        CANCEL_METHOD => Box::pin(cancel(store, params, cx)).await,
        method => {
            let why = format!("method not found: `{method}`");
            Err(RpcError::new(ErrorCode::METHOD_NOT_FOUND, why))
        }
    }
}

async fn update(store: &dyn TaskStore, params: &Json, cx: &Context) -> Outcome {
    let params: UpdateTaskParams = decode(params)?;
    let record = access::find(store, &params.task_id, cx.principal()).await?;
    change(store, record, |record| answers(record, &params)).await
}

async fn cancel(store: &dyn TaskStore, params: &Json, cx: &Context) -> Outcome {
    let params: TaskParams = decode(params)?;
    let record = access::find(store, &params.task_id, cx.principal()).await?;
    change(store, record, |record| Some(cancellation(record))).await
}

/// Returns the record in the form of `tasks/get`.
pub(super) fn encode(record: &TaskRecord) -> Outcome {
    detailed_task(record).map_err(|error| {
        tracing::error!(%error, "failed to serialize a task");
        RpcError::new(ErrorCode::INTERNAL_ERROR, "failed to serialize the task")
    })
}

/// Changes a record, whatever other processes change meanwhile, and acknowledges it. A finished task stays as it is.
async fn change(
    store: &dyn TaskStore,
    mut record: TaskRecord,
    make_change: impl Fn(&TaskRecord) -> Option<TaskChange>,
) -> Outcome {
    while !record.is_finished() {
        let Some(change) = make_change(&record) else {
            break;
        };
        let updated = store.update(record.id, record.version, change).await;
        match updated.map_err(|error| to_rpc_error(&error))? {
            Updated::Done(_) => break,
            Updated::Conflict(current) => record = *current,
            Updated::NotFound => return Err(access::unknown_task()),
            // Only the change of an owner can lose a lease.
            Updated::LeaseLost => break,
        }
    }
    Ok(Json::empty_object())
}

/// Returns the answers to open questions; others are ignored, as the specification recommends.
fn answers(record: &TaskRecord, params: &UpdateTaskParams) -> Option<TaskChange> {
    let responses = params.input_responses.iter();
    let open = responses.filter(|(key, _)| record.questions.contains_key(*key));
    open.fold(None, |change: Option<TaskChange>, (key, answer)| {
        let change = change.unwrap_or_default();
        Some(change.answer(key, answer.clone()))
    })
}

/// Returns the change that cancels a task: at once, unless its handler only wants to be told.
fn cancellation(record: &TaskRecord) -> TaskChange {
    match SavedCall::read(record).is_signalled() {
        true => TaskChange::new().request_cancel(),
        false => TaskChange::new().cancel(),
    }
}

pub(super) fn decode<'a, T: serde::Deserialize<'a>>(params: &'a Json) -> Result<T, RpcError> {
    params.decode().map_err(|error| invalid(&error))
}

fn invalid(error: &dyn std::error::Error) -> RpcError {
    let why = format!("invalid params: {error}");
    RpcError::new(ErrorCode::INVALID_PARAMS, why)
}
