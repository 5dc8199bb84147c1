//! What happens to a claimed task: its handler runs again on the journal, or the task fails.

use std::sync::Arc;

use bowline::Context;
use bowline::exchange::Request;
use bowline::server::{ToolCall, WeakServer};
use bowline_types::{CallToolRequest, ErrorCode, Json, Method as _, RequestId, RpcError};
use serde::Deserialize;
use tokio::time::Instant;

use super::Env;
use super::intercept::{deadline, with_progress_token};
use super::run::{Stop, TaskRun, shown};
use super::run_task::{TaskToRun, expired, finishing};
use super::runner::Job;
use super::runs::RegisteredRun;
use super::saved_call::SavedCall;
use super::store_errors::chain;
use super::task_input::TaskInput;
use super::task_sink::TaskSink;
use crate::store::{RunMode, TaskChange, TaskOutcome, TaskRecord};

/// Whether this process can take over more tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resumed {
    Yes,
    Overloaded,
}

/// Takes over a task that was claimed.
pub(super) async fn resume(env: &Env, server: &WeakServer, record: TaskRecord) -> Resumed {
    if env.runs.is_discarded(record.id) {
        return Resumed::Yes; // it is deleted as soon as the store lets it
    }
    if let Some(earlier) = env.runs.get(record.id) {
        // This process lost the lease and claimed it itself; the earlier run can write nothing any more.
        earlier.stop(Stop::Lost);
    }
    let run = Arc::new(TaskRun::new(env.store.clone(), record.clone()));
    let deadline = deadline(env, &record);
    if let Some(outcome) = outcome_without_run(&record, deadline) {
        finish(&run, outcome).await;
        return Resumed::Yes;
    }
    let journal = match env.store.journal(record.id).await {
        Ok(journal) => journal,
        Err(error) => {
            // The lease expires, and the task is claimed again.
            tracing::warn!(task = %shown(run.id), error = %chain(&error), "failed to read the journal of a task");
            return Resumed::Overloaded;
        }
    };
    let input = Arc::new(TaskInput::new(run.clone(), journal));
    let sink = Arc::new(TaskSink::of_task(run.clone()));
    let (call, cx) = match prepare(server, &record, sink, input) {
        Ok(prepared) => prepared,
        Err(Unprepared::Overloaded) => {
            release(&run).await;
            return Resumed::Overloaded;
        }
        Err(Unprepared::Refused(error)) => {
            finish(&run, TaskOutcome::Failed(error)).await;
            return Resumed::Yes;
        }
    };
    let task = TaskToRun {
        run: RegisteredRun::new(env.runs.clone(), run),
        tool: call.run(cx),
        deadline,
    };
    // Fails only while the runner is dropped.
    drop(env.send(Job::Start(task.start())));
    Resumed::Yes
}

/// Returns the outcome of a claimed task whose handler does not run again.
fn outcome_without_run(record: &TaskRecord, deadline: Option<Instant>) -> Option<TaskOutcome> {
    if record.is_cancel_requested {
        // The handler that was told to stop has stopped with its process.
        return Some(TaskOutcome::Cancelled);
    }
    if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
        return Some(TaskOutcome::Failed(expired()));
    }
    if record.run_mode == RunMode::NotResumable {
        let message = "the process that ran the task has ended, and its tool cannot be resumed";
        let error = RpcError::new(ErrorCode::INTERNAL_ERROR, message);
        return Some(TaskOutcome::Failed(error));
    }
    None
}

/// Why the handler of a task cannot run again.
enum Unprepared {
    /// At this time, in this process.
    Overloaded,
    /// At all.
    Refused(RpcError),
}

/// Rebuilds the call and its context from the record.
fn prepare(
    server: &WeakServer,
    record: &TaskRecord,
    sink: Arc<TaskSink>,
    input: Arc<TaskInput>,
) -> Result<(ToolCall, Context), Unprepared> {
    let Some(server) = server.upgrade() else {
        return Err(Unprepared::Overloaded); // being dropped
    };
    let saved = SavedCall::read(record);
    let Some(caller) = saved.caller() else {
        let message = "the protocol version of the task's client is not supported by the server";
        let error = RpcError::new(ErrorCode::INTERNAL_ERROR, message);
        return Err(Unprepared::Refused(error));
    };
    let call = &*record.request;
    let params = call
        .meta
        .as_ref()
        .map(|meta| Json::object([("_meta", meta)]));
    let params = params.unwrap_or_else(Json::empty_object);
    let request = with_progress_token(Request::new(CallToolRequest::NAME, params, caller));
    let id = RequestId::from(format!("task {}", shown(record.id)));
    let cx = Context::new(id, &request, sink)
        .with_principal(saved.principal(record))
        .with_input_source(input);
    let prepared = server.tool_call(&call.tool, call.arguments.clone(), call.meta.clone(), &cx);
    match prepared {
        Ok(call) => Ok((call, cx)),
        Err(error) if is_limit(&error) => Err(Unprepared::Overloaded),
        Err(mut error) => {
            error.message = format!("failed to resume the task: {}", error.message);
            Err(Unprepared::Refused(error))
        }
    }
}

/// Returns whether the error says that a limit of the server is reached.
fn is_limit(error: &RpcError) -> bool {
    #[derive(Deserialize)]
    struct LimitData {
        #[serde(rename = "limit")]
        _limit: String,
        #[serde(rename = "max")]
        _max: u64,
    }
    let data = error.data.as_ref();
    data.is_some_and(|data| data.decode::<LimitData>().is_ok())
}

async fn finish(run: &TaskRun, outcome: TaskOutcome) {
    // If it fails, the lease expires and the task is claimed again.
    if let Err(error) = run.write(&finishing(outcome, None)).await {
        tracing::warn!(task = %shown(run.id), error = %chain(&error), "failed to finish a task");
    }
}

/// Gives a task back that this process has no capacity for.
async fn release(run: &TaskRun) {
    if let Err(error) = run.write(&TaskChange::new().release()).await {
        tracing::warn!(task = %shown(run.id), error = %chain(&error), "failed to release a task");
    }
}
