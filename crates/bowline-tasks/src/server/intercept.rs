//! What happens to a tool call of a caller that declared the extension: it runs as usual, or becomes a task.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bowline::Context;
use bowline::exchange::{BoxFuture, InputSource, NotificationSink, Outcome, Request};
use bowline::server::ToolCall;
use bowline_types::{ErrorCode, ProgressToken, RpcError};
use tokio::time::Instant;

use super::convert::run_as_call;
use super::run::{Stop, TaskRun};
use super::run_task::{RunningTask, TaskToRun, delete};
use super::runner::Job;
use super::runs::RegisteredRun;
use super::saved_call::CallDetails;
use super::settings::TaskStart;
use super::store_errors::to_rpc_error;
use super::task_input::TaskInput;
use super::task_sink::TaskSink;
use super::{Env, TaskSettings};
use crate::TaskId;
use crate::encode::create_result;
use crate::store::{JournalEntry, StoreError, TaskRecord};

/// Runs a tool call, or makes it a task.
pub(super) fn call_tool(env: Arc<Env>, call: ToolCall, cx: Context) -> BoxFuture<'static, Outcome> {
    let start = match call.tool().settings::<TaskSettings>() {
        Some(settings) => settings.start(call.arguments()),
        None => env
            .options
            .task_after
            .map_or(TaskStart::Never, TaskStart::After),
    };
    match start {
        // Three futures, because their sizes differ much, and that of a short task is paid for by each call.
        TaskStart::Never => Box::pin(call.run(cx)),
        TaskStart::AtOnce => {
            let details = CallDetails::new(&call, &cx);
            Box::pin(start_task(env, call, cx, details, create_result))
        }
        TaskStart::After(duration) => {
            Box::pin(async move { run_as_call(&env, call, cx, duration).await })
        }
    }
}

/// Makes a call a task before its handler runs. `read` returns what is needed of the new record.
#[allow(
    clippy::manual_async_fn,
    reason = "the future of an `async fn` has room for its arguments twice"
)]
pub(super) fn start_task<T>(
    env: Arc<Env>,
    call: ToolCall,
    cx: Context,
    details: CallDetails,
    read: impl FnOnce(&TaskRecord) -> T,
) -> impl Future<Output = Result<T, RpcError>> {
    async move {
        let created = create(&env, details, Vec::new(), &cx).await;
        let run = created.map_err(|error| to_rpc_error(&error))?;
        // Before the handler runs: the first state that a client sees is `working`, however short the task is.
        let (created, deadline) = run.with_record(|record| (read(record), deadline(&env, record)));
        let sink = Arc::new(TaskSink::of_task(Arc::clone(&run)));
        let input = Arc::new(TaskInput::new(Arc::clone(&run), Vec::new()));
        let of_task = task_context(&cx, call.request(), sink, input);
        let task = TaskToRun {
            tool: call.run(of_task),
            run,
            deadline,
        };
        if let Some(task) = begin(&env, task).await {
            Box::pin(spawn(&env, task)).await?;
        }
        Ok(created)
    }
}

/// Polls the handler of a new task once. Returns the task unless it has ended, as a short one does: with a background
/// task it would cost much more.
async fn begin(env: &Env, mut task: TaskToRun) -> Option<RunningTask> {
    // A server that shuts down leaves its tasks to other processes, and one that has lost a task must not run it.
    let may_run = !env.runs.is_draining() && !task.run.has_stopped();
    if !may_run {
        return Some(task.start());
    }
    let polled = poll_fn(|cx| Poll::Ready(Pin::new(&mut task.tool).poll(cx))).await;
    let Poll::Ready(outcome) = polled else {
        return Some(task.start());
    };
    let mut task = task.end(outcome);
    // A store that waits for a disk does it in the background.
    let stored = poll_fn(|cx| Poll::Ready(Pin::new(&mut task).poll(cx))).await;
    stored.is_pending().then_some(task)
}

/// Passes a task to the runner.
///
/// # Errors
///
/// If the server has shut down. The task is deleted then.
pub(super) async fn spawn(env: &Env, task: RunningTask) -> Result<(), RpcError> {
    let id = task.id;
    if let Err(refused) = env.send(Job::Start(task)) {
        drop(refused);
        delete(&*env.store, id).await;
        let message = "the server is shutting down";
        return Err(RpcError::new(ErrorCode::INTERNAL_ERROR, message));
    }
    Ok(())
}

/// Stores a task, which this process runs. It is deleted if the answer of the request is not sent.
pub(super) async fn create(
    env: &Env,
    details: CallDetails,
    journal: Vec<JournalEntry>,
    cx: &Context,
) -> Result<RegisteredRun, StoreError> {
    let id = TaskId::random()?;
    let jobs = env.jobs.clone();
    // Before the record exists: this future may be dropped while it is stored.
    cx.on_discarded(move || drop(jobs.send(Job::Discard(id))));
    let started = Instant::now();
    let created = env.store.create(details.into_task(id, env, journal)).await;
    let record = created.inspect_err(|error| {
        // It may be stored all the same. The caller is told that it is not, or goes on as a call: it must not run too.
        if matches!(error, StoreError::Unavailable { .. }) {
            drop(env.send(Job::Discard(id)));
        }
    })?;
    let run = Arc::new(TaskRun::new(env.store.clone(), record));
    if started.elapsed() >= env.options.lease {
        // The lease may have ended before it was known here, and another run may have begun. Then this one must not.
        match env.store.read(id).await {
            Ok(Some(current)) => run.deliver(current),
            Ok(None) | Err(_) => run.stop(Stop::Lost),
        }
    }
    // Before the caller learns the id, so that no change of the record is missed.
    Ok(RegisteredRun::new(env.runs.clone(), run))
}

/// Returns the context of a task's handler, which does not depend on the request and its connection.
pub(super) fn task_context(
    cx: &Context,
    request: &Request,
    sink: Arc<dyn NotificationSink>,
    input: Arc<dyn InputSource>,
) -> Context {
    let request = with_progress_token(request.clone());
    let mut of_task = Context::new(cx.request_id().clone(), &request, sink)
        .with_principal(cx.principal().clone())
        .with_input_source(input);
    of_task.extensions_mut().extend(cx.extensions());
    of_task
}

/// Adds a progress token: without one a context drops progress messages, which are the status of a task.
pub(super) fn with_progress_token(mut request: Request) -> Request {
    let token = || ProgressToken::from("task".to_owned());
    request.progress_token.get_or_insert_with(token);
    request
}

/// Returns when the time to live of a task ends that was created or claimed just now.
pub(super) fn deadline(env: &Env, record: &TaskRecord) -> Option<Instant> {
    let expires_at = record.expires_at?.as_millis();
    // By the clock of the store: at this time the lease began.
    let lease = env.options.lease;
    let leased_until = record.leased_until?.as_millis();
    let now = leased_until.saturating_sub(u64::try_from(lease.as_millis()).unwrap_or(u64::MAX));
    let left = std::time::Duration::from_millis(expires_at.saturating_sub(now));
    // `None` if it is too far away to be represented.
    Instant::now().checked_add(left)
}
