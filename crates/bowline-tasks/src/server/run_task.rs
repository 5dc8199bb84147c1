//! [`RunningTask`], the future of one run of a task: its handler, its status messages, and the write of its outcome.

use std::pin::Pin;
use std::task::{self, Poll};
use std::time::Duration;

use bowline::CancelMode;
use bowline::exchange::{BoxFuture, Outcome};
use bowline::server::RunningTool;
use bowline_types::{CallToolResult, ContentBlock, ErrorCode, Json, RpcError};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::retry::Backoff;
use super::run::{Outbox, Stop, TaskRun, Written, is_passing, shown};
use super::runs::RegisteredRun;
use super::store_errors::{chain, to_rpc_error};
use crate::TaskId;
use crate::store::{StoreError, TaskChange, TaskOutcome, TaskRecord, TaskStore};

/// A task whose handler is to run.
pub(super) struct TaskToRun {
    pub(super) run: RegisteredRun,
    pub(super) tool: RunningTool,
    /// When the time to live ends.
    pub(super) deadline: Option<Instant>,
}

impl TaskToRun {
    /// Runs the handler, and stores its outcome.
    pub(super) fn start(self) -> RunningTask {
        let id = self.run.id;
        // Boxed twice: the future of an `async fn` has room for its arguments twice.
        RunningTask::new(id, run_task(Box::new(self)))
    }

    /// Stores the outcome of the handler, which has ended.
    pub(super) fn end(self, outcome: Outcome) -> RunningTask {
        let Self { run, tool, .. } = self;
        drop(tool);
        RunningTask::new(run.id, async move { handler_ended(&run, outcome).await })
    }
}

/// A run of a task, as a future that is ready when its outcome is stored, or another process has taken it over.
///
/// # Cancel safety
///
/// Dropping it drops the handler. The lease expires, and another process claims the task.
pub(super) struct RunningTask {
    pub(super) id: TaskId,
    /// Boxed: the runtime moves a future several times before and after it runs.
    future: BoxFuture<'static, ()>,
}

impl RunningTask {
    fn new(id: TaskId, future: impl Future<Output = ()> + Send + 'static) -> Self {
        let future = Box::pin(future);
        Self { id, future }
    }
}

impl Future for RunningTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<()> {
        self.future.as_mut().poll(cx)
    }
}

async fn run_task(mut task: Box<TaskToRun>) {
    let TaskToRun {
        run,
        tool,
        deadline,
    } = &mut *task;
    let ended = tokio::select! {
        // A run that has lost its lease must not begin another effect.
        biased;
        stop = run.stopped() => Err(stop),
        outcome = run_handler(run, tool) => Ok(outcome),
        () = expire(*deadline) => Err(Stop::Fail(expired())),
        () = write_outbox(run) => Err(Stop::Lost),
    };
    let TaskToRun { run, tool, .. } = *task;
    match ended {
        Ok(outcome) => handler_ended(&run, outcome).await,
        Err(stop) => {
            let unheard = signal_or_drop(tool);
            run.set_unheard();
            Box::pin(end(&run, stop)).await;
            if let Some(unheard) = unheard {
                // It wants to end by itself. Its outcome is not stored.
                drop(unheard.await);
            }
        }
    }
}

async fn handler_ended(run: &TaskRun, outcome: Outcome) {
    run.set_unheard();
    finish(run, task_outcome(run, outcome)).await;
}

/// Runs the handler, and signals it when the caller cancels the task.
async fn run_handler(run: &TaskRun, tool: &mut RunningTool) -> Outcome {
    let control = tool.control().clone();
    let mut is_signalled = false;
    loop {
        tokio::select! {
            biased;
            outcome = &mut *tool => return outcome,
            () = run.cancel_requested(), if !is_signalled => {
                control.cancel();
                is_signalled = true;
            }
        }
    }
}

/// Stops a handler; returns it if it is only signalled.
pub(super) fn signal_or_drop(tool: RunningTool) -> Option<RunningTool> {
    tool.control().cancel();
    let is_signalled = tool.control().cancel_mode() == CancelMode::Signal;
    is_signalled.then_some(tool)
}

/// Writes what follows from a stop.
async fn end(run: &TaskRun, stop: Stop) {
    match stop {
        Stop::Lost => {
            tracing::debug!(task = %shown(run.id), "stopped a task that is finished or held elsewhere");
        }
        // The runner deletes the record.
        Stop::Discard => {}
        Stop::Fail(error) => finish(run, TaskOutcome::Failed(error)).await,
        Stop::Release => {
            // If it fails, the lease expires by itself.
            if let Err(error) = run.write(&TaskChange::new().release()).await {
                tracing::warn!(task = %shown(run.id), error = %chain(&error), "failed to release a task");
            }
        }
    }
}

/// Writes the outcome of the task, and tries again until it is stored or the task is lost. The lease is renewed
/// meanwhile.
async fn finish(run: &TaskRun, outcome: TaskOutcome) {
    let unstored = UnstoredOutcome(run.id);
    // The last message must not be lost to the limit of one write a second.
    let last_message = run.take_outbox(true).status_message;
    let change = finishing(outcome, last_message);
    let mut written = run.write_with_retries(&change).await;
    if let Err(error) = &written {
        // Refused, such as a result that is too large. Boxed: every run would have room for it.
        written = Box::pin(finish_refused(run, to_rpc_error(error))).await;
    }
    unstored.resolved();
    match written {
        Ok(Written::Done) => {}
        Ok(Written::Lost) => log_lost(run),
        Err(error) => {
            let error = chain(&error);
            tracing::error!(task = %shown(run.id), %error, "failed to store the outcome of a task");
        }
    }
}

/// Fails a task whose outcome the store refuses.
async fn finish_refused(run: &TaskRun, mut refused: RpcError) -> Result<Written, StoreError> {
    refused.message = format!(
        "failed to store the outcome of the task: {}",
        refused.message
    );
    let change = finishing(TaskOutcome::Failed(refused), None);
    run.write_with_retries(&change).await
}

fn log_lost(run: &TaskRun) {
    let task = shown(run.id);
    match run.with_record(TaskRecord::is_finished) {
        true => tracing::debug!(%task, "dropped the outcome of a task that was cancelled before"),
        false => tracing::warn!(
            %task,
            "dropped the outcome of a task whose lease was lost; another process resumes or fails it"
        ),
    }
}

/// Returns the change that finishes a task. The status of a failed one is the message of its error.
pub(super) fn finishing(outcome: TaskOutcome, last_message: Option<String>) -> TaskChange {
    let message = match &outcome {
        TaskOutcome::Failed(error) => Some(error.message.clone()),
        TaskOutcome::Completed(_) | TaskOutcome::Cancelled => last_message,
    };
    let change = TaskChange::new().finish(outcome);
    match message {
        Some(message) => change.status_message(message),
        None => change,
    }
}

/// Returns the outcome of a task whose handler has ended.
fn task_outcome(run: &TaskRun, outcome: Outcome) -> TaskOutcome {
    let is_cancelled = run.with_record(|record| record.is_cancel_requested);
    let failure = outcome.as_ref().ok().and_then(tool_failure);
    match outcome {
        // A handler that was told to stop and then fails has stopped; one that succeeds was faster.
        _ if is_cancelled && (outcome.is_err() || failure.is_some()) => TaskOutcome::Cancelled,
        Ok(result) => match failure.and_then(|text| run.take_rejected(&text)) {
            Some(error) => TaskOutcome::Failed(error),
            None => TaskOutcome::Completed(complete_result(&result)),
        },
        Err(error) => TaskOutcome::Failed(error),
    }
}

/// Returns the result with the `resultType` that it would have as the answer of the request.
fn complete_result(result: &Json) -> Json {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Typed {
        result_type: Option<serde::de::IgnoredAny>,
    }
    // Avoids decoding the results of tools, which have none unless an inner extension added it.
    let may_have_type = result.as_str().contains("\"resultType\"");
    let has_type = may_have_type
        && result
            .decode::<Typed>()
            .is_ok_and(|typed| typed.result_type.is_some());
    // Copied: the record must not keep a larger buffer alive.
    let writer = (!has_type).then(|| result.to_unshared().into_writer());
    match writer.flatten() {
        Some(mut writer) => {
            writer.add("resultType", &Json::from_static(r#""complete""#));
            writer.close()
        }
        None => result.to_unshared(),
    }
}

/// Returns the first text of a tool result with `isError`; empty if it has none.
pub(super) fn tool_failure(result: &Json) -> Option<String> {
    // Avoids decoding the results without `isError`, which most are.
    let may_be_error = result.as_str().contains("\"isError\"");
    let result: CallToolResult = may_be_error.then(|| result.decode().ok()).flatten()?;
    let is_error = result.is_error == Some(true);
    is_error.then(|| match result.content.into_iter().next() {
        Some(ContentBlock::Text(text)) => text.text,
        _ => String::new(),
    })
}

/// Writes status messages, at most one a second, and withdrawn questions. Never returns.
async fn write_outbox(run: &TaskRun) {
    let mut next_status = Instant::now();
    loop {
        let is_due = Instant::now() >= next_status;
        let outbox = run.take_outbox(is_due);
        if outbox.status_message.is_none() && outbox.withdrawn.is_empty() {
            match is_due {
                true => run.outbox_filled().await,
                // Returns with an error if it is time for the next status message.
                false => drop(Box::pin(timeout_at(next_status, run.outbox_filled())).await),
            }
            continue;
        }
        if outbox.status_message.is_some() {
            next_status = Instant::now() + STATUS_INTERVAL;
        }
        // Boxed: every run would have room for it, and most have nothing to write.
        Box::pin(write_taken(run, outbox)).await;
    }
}

/// Writes what was taken from the outbox. Never returns if the run is lost, because it stops.
async fn write_taken(run: &TaskRun, outbox: Outbox) {
    let mut change = TaskChange::new();
    if let Some(message) = outbox.status_message {
        change = change.status_message(message);
    }
    for key in outbox.withdrawn {
        change = change.withdraw(key);
    }
    match run.write_with_retries(&change).await {
        Ok(Written::Done) => {}
        Ok(Written::Lost) => std::future::pending().await,
        Err(error) => {
            tracing::warn!(task = %shown(run.id), error = %chain(&error), "failed to write the status of a task");
        }
    }
}

async fn expire(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// The error of a task whose time to live has passed.
pub(super) fn expired() -> RpcError {
    let message = "the time to live of the task has ended";
    RpcError::new(ErrorCode::INTERNAL_ERROR, message)
}

/// Deletes a task whose id the caller never got, and tries again while the store fails in a way that may pass: a task
/// that is left would be claimed and run.
pub(super) async fn delete(store: &dyn TaskStore, id: TaskId) {
    let mut backoff = Backoff::new(MAX_DELETE_DELAY);
    let mut is_logged = false;
    while let Err(error) = store.delete(id).await {
        if !is_logged {
            let error = chain(&error);
            tracing::warn!(task = %shown(id), %error, "failed to delete a task");
            is_logged = true;
        }
        if !is_passing(&error) {
            return; // it stays until its time to live ends
        }
        backoff.wait().await;
    }
}

/// Logs an outcome that is dropped before it is stored, at the end of a shutdown.
struct UnstoredOutcome(TaskId);

impl UnstoredOutcome {
    fn resolved(self) {
        std::mem::forget(self);
    }
}

impl Drop for UnstoredOutcome {
    fn drop(&mut self) {
        tracing::error!(
            task = %shown(self.0),
            "dropped the outcome of a task that could not be stored; its lease expires and another process resumes \
             or fails it"
        );
    }
}

const STATUS_INTERVAL: Duration = Duration::from_secs(1);
const MAX_DELETE_DELAY: Duration = Duration::from_secs(1);
