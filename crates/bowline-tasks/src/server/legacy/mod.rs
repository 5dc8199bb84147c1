//! The tasks of protocol version 2025-11-25, on the same records as those of the extension.
//!
//! ```text
//! tools/call with `task` ─▶ call_tool ─▶ the same record and runner ─▶ {"task": …}
//! tasks/get, list, cancel ─▶ record
//! tasks/result ─▶ wait until the record is finished ──▶ the result of the call
//!                   └─ open questions ─▶ server-to-client requests ─▶ answers in the record
//! ```
//!
//! There the client decides which calls become tasks, and gets their questions as requests while it waits for a result.

mod list;
mod questions;
mod refused_input;
mod result;
mod task;
pub(super) use refused_input::read_answer;

use std::sync::Arc;
use std::time::Duration;

use bowline::Context;
use bowline::exchange::dialect::Tasks as TaskDefinition;
use bowline::exchange::{Dialect, Outcome, Request};
use bowline::server::{ExtensionMethod, ToolCall};
use bowline_types::legacy_tasks::{
    CreateTaskResult, ServerTaskRequests, ServerTasksCapability, TaskMetadata,
};
use bowline_types::{
    CallToolRequest, CapabilitySettings, ErrorCode, Json, Meta, Method as _, RpcError,
    ServerCapabilities, meta_key,
};
use serde::Serialize;
use serde_json::json;

use super::intercept::start_task;
use super::saved_call::CallDetails;
use super::store_errors::to_rpc_error;
use super::{Env, TaskSettings, access, methods};
use crate::protocol::{CANCEL_METHOD, EXTENSION_ID, GET_METHOD, TaskParams};
use crate::store::{TaskChange, TaskStore, Updated};

/// Returns whether a version defines tasks in this way.
pub(super) fn is_defined_in(dialect: &Dialect) -> bool {
    dialect.tasks == TaskDefinition::Core
}

/// Returns the methods that the extension does not have.
pub(super) fn methods() -> [ExtensionMethod; 2] {
    [RESULT_METHOD, LIST_METHOD].map(|name| ExtensionMethod::new(name).legacy_only())
}

/// Returns whether a request uses tasks.
pub(super) fn is_used_by(request: &Request) -> bool {
    match &*request.method {
        CallToolRequest::NAME => task_member(request).is_some(),
        GET_METHOD | RESULT_METHOD | LIST_METHOD | CANCEL_METHOD => true,
        _ => false,
    }
}

/// Replaces the extension in the capabilities by those that the version defines.
pub(super) fn adjust_capabilities(cx: &Context, capabilities: &mut ServerCapabilities) {
    let extensions = &mut capabilities.extensions;
    if let Some(extensions) = extensions {
        extensions.remove(EXTENSION_ID);
    }
    extensions.take_if(|extensions| extensions.is_empty());
    let settings = CapabilitySettings::default;
    let mut requests = ServerTaskRequests::default();
    let call = ("call".to_owned(), Json::empty_object());
    requests.tools = Some(CapabilitySettings([call].into()));
    let mut tasks = ServerTasksCapability::default();
    // A server should not advertise a list to callers that it cannot identify.
    tasks.list = cx.principal().name().map(|_| settings());
    tasks.cancel = Some(settings());
    tasks.requests = Some(requests);
    capabilities.tasks = Some(tasks);
}

/// Returns the error of a call without `task` of a tool that is required to be a task.
pub(super) fn task_required() -> RpcError {
    let why = "the tool can only be called as a task; expected the member `task` in `params`";
    RpcError::new(ErrorCode::METHOD_NOT_FOUND, why)
}

/// Makes a call a task, as the client has requested.
pub(super) async fn call_tool(env: Arc<Env>, call: ToolCall, cx: Context) -> Outcome {
    let Some(settings) = call.tool().settings::<TaskSettings>() else {
        let why = format!("tool `{}` cannot be called as a task", call.name());
        return Err(RpcError::new(ErrorCode::METHOD_NOT_FOUND, why));
    };
    let immediate_response = settings.own_immediate_response().map(str::to_owned);
    let mut details = CallDetails::new(&call, &cx);
    if let Some(ttl) = requested_ttl(call.request())? {
        details.ttl = Some(ttl);
    }
    let task = start_task(env, call, cx, details, task::of_record).await?;
    let mut created = CreateTaskResult::new(task);
    if let Some(text) = immediate_response {
        let mut meta = Meta::default();
        meta.insert(meta_key::MODEL_IMMEDIATE_RESPONSE, json!(text));
        created.meta = Some(meta);
    }
    encode(&created)
}

/// Answers a request for one of the methods.
pub(super) async fn respond(env: &Env, request: &Request, cx: &Context) -> Outcome {
    if request.method == LIST_METHOD {
        return list::list(&*env.store, request, cx).await;
    }
    let params = Json::from(request.params.clone());
    let TaskParams { task_id } = methods::decode(&params)?;
    match &*request.method {
        GET_METHOD => {
            let record = access::find(&*env.store, &task_id, cx.principal()).await?;
            encode(&task::of_record(&record))
        }
        RESULT_METHOD => result::wait(env, &task_id, cx).await,
        CANCEL_METHOD => cancel(&*env.store, &task_id, cx).await,
        method => Err(method_not_found(method)),
    }
}

/// Cancels a task and returns it.
///
/// Unlike in the extension, it is cancelled when the request is answered, even if its handler only wants to be told and
/// runs on: its outcome is not stored.
async fn cancel(store: &dyn TaskStore, task_id: &str, cx: &Context) -> Outcome {
    let mut record = access::find(store, task_id, cx.principal()).await?;
    while !record.is_finished() {
        let change = TaskChange::new().cancel();
        let updated = store.update(record.id, record.version, change).await;
        match updated.map_err(|error| to_rpc_error(&error))? {
            Updated::Done(_) => {
                let cancelled = access::find(store, task_id, cx.principal()).await?;
                return encode(&task::of_record(&cancelled));
            }
            Updated::Conflict(current) => record = *current,
            // Only the change of an owner can lose a lease.
            Updated::NotFound | Updated::LeaseLost => return Err(access::unknown_task()),
        }
    }
    let status = task::of_record(&record).status;
    let why = format!("failed to cancel the task: it has finished with the status {status:?}");
    Err(RpcError::new(ErrorCode::INVALID_PARAMS, why))
}

/// Returns the time to live that the client requests. One of zero would end the task before it starts, and is ignored.
fn requested_ttl(request: &Request) -> Result<Option<Duration>, RpcError> {
    let Some(member) = task_member(request).filter(Json::is_object) else {
        let why = "`task` must be an object";
        return Err(RpcError::new(ErrorCode::INVALID_PARAMS, why));
    };
    let task: TaskMetadata = methods::decode(&member)?;
    Ok(task.ttl.filter(|ttl| *ttl > 0).map(Duration::from_millis))
}

/// Returns the member `task` of the params, unless it is null.
fn task_member(request: &Request) -> Option<Json> {
    let member = request.params.member("task").ok().flatten();
    member.filter(|task| !task.is_null())
}

fn encode(result: &impl Serialize) -> Outcome {
    Json::encode(result).map_err(|error| {
        tracing::error!(%error, "failed to serialize a task");
        RpcError::new(ErrorCode::INTERNAL_ERROR, "failed to serialize the task")
    })
}

fn method_not_found(method: &str) -> RpcError {
    let why = format!("method not found: `{method}`");
    RpcError::new(ErrorCode::METHOD_NOT_FOUND, why)
}

/// The method that waits for the result of a task.
const RESULT_METHOD: &str = "tasks/result";
/// The method that lists the tasks of a principal.
const LIST_METHOD: &str = "tasks/list";
