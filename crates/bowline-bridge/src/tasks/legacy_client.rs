//! Tasks of a server of the extension for clients of 2025-11-25.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bowline::exchange::dialect::Tasks;
use bowline::exchange::{Caller, Notification, Outcome, RawInputRequest, Request};
use bowline::types::legacy_tasks::TaskStatus;
use bowline::{Context, ErrorCode, Json, RpcError};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::open_tasks::{OpenTask, random_text};
use super::{
    CALL, CANCEL, EXTENSION, GET, LIST_TOOLS, RESULT, TaskRequest, TaskScope, UPDATE, connection,
    forms, has_tasks, iso_time,
};
use crate::forward;
use crate::questions::ask_in;
use crate::upstream::{ConnectionLease, Upstream, UpstreamConnection};

/// Answers a request of a legacy client, or returns it to be forwarded.
pub(super) async fn respond(
    upstream: &Arc<Upstream>,
    request: Request,
    cx: &Context,
) -> Result<ControlFlow<Outcome, Request>, RpcError> {
    if matches!(&*request.method, GET | RESULT | CANCEL) {
        return respond_about_task(upstream, request, cx).await;
    }
    let lease = Arc::new(upstream.lease(&request, cx).await?);
    if !has_extension(connection(&lease)?, &request).await {
        return Ok(ControlFlow::Continue(request));
    }
    let outcome = match &*request.method {
        CALL => call(upstream, &lease, &request, cx).await,
        LIST_TOOLS => {
            let listed = forward::forward(upstream, request, cx).await;
            listed.map(|page| forms::with_task_support(&page))
        }
        method => Err(method_not_found(method)),
    };
    Ok(ControlFlow::Break(outcome))
}

/// Answers a request about one task, or returns it to be forwarded.
async fn respond_about_task(
    upstream: &Arc<Upstream>,
    request: Request,
    cx: &Context,
) -> Result<ControlFlow<Outcome, Request>, RpcError> {
    let scope = TaskScope::of(upstream, cx);
    let id = forms::task_id(&request.params)?.into();
    if let Some(OpenTask::Answered { task, result }) = scope.find(&id).as_deref() {
        return Ok(ControlFlow::Break(answered(&request, &id, task, result)));
    }
    let mut task = TaskRequest::new(upstream, &request, cx).await?;
    if !has_extension(task.connection()?, &request).await {
        return Ok(ControlFlow::Continue(request));
    }
    task.caller = declaring(&task.caller);
    let outcome = match &*request.method {
        GET => get(&task).await.map(|found| forms::to_legacy(&found)),
        RESULT => wait(&task, cx).await,
        _ => cancel(&task).await,
    };
    Ok(ControlFlow::Break(outcome))
}

/// Calls a tool of a server that may make the call a task.
async fn call(
    upstream: &Upstream,
    lease: &Arc<ConnectionLease>,
    request: &Request,
    cx: &Context,
) -> Outcome {
    let connection = connection(lease)?;
    let mut sent = request.clone();
    sent.params = forms::with_task(&request.params, None).into();
    sent.caller = declaring(&connection.caller(&request.caller));
    let result = forward::answer_rounds(upstream, lease, sent, cx).await?;
    let scope = TaskScope::of(upstream, cx);
    let Some((id, created)) = forms::created_to_legacy(&result) else {
        return keep_answered(&scope, request, &result);
    };
    scope.add(&id.into(), &result, lease, request.caller.dialect);
    Ok(created)
}

/// Returns the result of a call that the server has answered at once as that of a task that has finished: the client
/// has asked for a task.
fn keep_answered(scope: &TaskScope, request: &Request, result: &Json) -> Outcome {
    let id: Arc<str> = random_text()?.into();
    let requested = request.params.member("task").ok().flatten();
    let requested = requested.and_then(|task| forms::member(&task, "ttl"));
    let requested = requested.and_then(|ttl| ttl.decode::<u64>().ok());
    let keep = requested.map_or(KEEP_ANSWERED, Duration::from_millis);
    let keep = keep.clamp(MIN_KEEP_ANSWERED, MAX_KEEP_ANSWERED);
    let now = iso_time::now();
    let task = json!({
        "taskId": &*id, "status": "completed", "createdAt": now, "lastUpdatedAt": now, "result": {},
        "ttlMs": u64::try_from(keep.as_millis()).unwrap_or(u64::MAX),
    });
    let task = with_result(&task.into(), result);
    let task = forms::to_legacy(&task);
    scope.add_answered(&id, task.clone(), result, keep);
    Ok(forms::created(&task, None))
}

/// Sets the result of a task, which decides its status in 2025-11-25.
fn with_result(task: &Json, result: &Json) -> Json {
    let mut object = bowline_core::json::Object::read(task).unwrap_or_default();
    object.set("result", result.clone());
    object.to_json()
}

/// Answers a request about a call that the server has answered at once.
fn answered(request: &Request, id: &str, task: &Json, result: &Json) -> Outcome {
    match &*request.method {
        RESULT => Ok(forms::result_to_legacy(result, id)),
        CANCEL => Err(has_finished()),
        _ => Ok(task.clone()),
    }
}

async fn get(task: &TaskRequest<'_>) -> Outcome {
    let found = task.ask(GET).await;
    match &found {
        Ok(found) if is_terminal(forms::status(found)?) => task.scope.finished(&task.id),
        Err(error) if error.code == ErrorCode::INVALID_PARAMS => task.scope.remove(&task.id),
        _ => {}
    }
    found
}

/// Waits for the result of a task. The client is asked what the server asks meanwhile.
async fn wait(task: &TaskRequest<'_>, cx: &Context) -> Outcome {
    let mut answered = BTreeSet::new();
    let mut shown = None;
    loop {
        let found = get(task).await?;
        let status = forms::status(&found)?;
        let now = (status, forms::member(&found, "statusMessage"));
        let is_new = shown.as_ref().is_some_and(|shown| *shown != now);
        if is_new && !is_terminal(status) {
            let params = Some(forms::to_legacy(&found));
            cx.send(Notification::new(STATUS_NOTIFICATION, params));
        }
        shown = Some(now);
        match status {
            TaskStatus::Completed => {
                let result = forms::member(&found, "result");
                let result = result.unwrap_or_else(Json::empty_object);
                return Ok(forms::result_to_legacy(&result, &task.id));
            }
            TaskStatus::Failed => {
                let error = forms::member(&found, "error");
                let error = error.and_then(|error| error.decode().ok());
                return Err(error.unwrap_or_else(|| RpcError::internal("the task has failed")));
            }
            TaskStatus::Cancelled => {
                let why = "the task was cancelled";
                return Err(RpcError::new(ErrorCode::REQUEST_CANCELLED, why));
            }
            TaskStatus::InputRequired => {
                let questions = forms::questions(&found).into_iter();
                // One after the other: most clients show one dialog at a time.
                let mut open = questions.filter(|(key, _)| !answered.contains(key));
                if let Some((key, question)) = open.next() {
                    ask(task, cx, &key, &question).await?;
                    answered.insert(key);
                    continue;
                }
            }
            TaskStatus::Working => {}
        }
        sleep(poll_interval(&found)).await;
    }
}

/// Asks the client, and passes its answer to the server. The question is withdrawn if the server does not ask any more.
async fn ask(
    task: &TaskRequest<'_>,
    cx: &Context,
    key: &str,
    question: &Json,
) -> Result<(), RpcError> {
    let method = forms::member(question, "method").and_then(|it| it.decode::<String>().ok());
    let params = forms::member(question, "params").unwrap_or_else(Json::empty_object);
    let params = forms::with_related_task(&params, &task.id);
    let question = RawInputRequest::from_request(&method.unwrap_or_default(), Some(params));
    let question = question
        .ok_or_else(|| RpcError::internal("the task asks a question of an unknown method"))?;
    tokio::select! {
        biased; // the answer first: it is sent even if the question is withdrawn at this moment
        // An error is that of the client, which cannot be passed on. The question stays open.
        answer = ask_in(cx, question) => {
            let params = forms::answer_params(&task.id, key, &answer?);
            task.send(UPDATE, params).await.map(drop)
        }
        () = withdrawn(task, key) => Ok(()),
    }
}

/// Waits until a question is not open any more.
async fn withdrawn(task: &TaskRequest<'_>, key: &str) {
    let mut interval = DEFAULT_POLL_INTERVAL;
    loop {
        sleep(interval).await;
        match get(task).await {
            Ok(found) => {
                let questions = forms::questions(&found);
                if questions.iter().all(|(open, _)| open != key) {
                    return;
                }
                interval = poll_interval(&found);
            }
            Err(_) => return, // the next request tells it to the client
        }
    }
}

/// Cancels a task and returns it. A server of the extension may cancel it later, so this waits for a while.
async fn cancel(task: &TaskRequest<'_>) -> Outcome {
    if is_terminal(forms::status(&get(task).await?)?) {
        return Err(has_finished());
    }
    task.ask(CANCEL).await?;
    let until = Instant::now() + CANCEL_TIME;
    loop {
        let found = get(task).await?;
        if is_terminal(forms::status(&found)?) || Instant::now() >= until {
            return Ok(forms::to_legacy(&found));
        }
        sleep(poll_interval(&found).min(CANCEL_POLL_INTERVAL)).await;
    }
}

/// Converts the error of a modern server for a legacy client that has called a tool without asking for a task.
pub(crate) fn task_required(request: &Request, outcome: Outcome) -> Outcome {
    outcome.map_err(|error| {
        let is_missing = error.code == ErrorCode::MISSING_CLIENT_CAPABILITY;
        let data = error.data.as_ref().map_or("", Json::as_str);
        if request.method == CALL && is_missing && data.contains(EXTENSION) {
            let why = "the tool can only be called as a task";
            return RpcError::new(ErrorCode::METHOD_NOT_FOUND, why);
        }
        error
    })
}

/// Returns a caller that declares the extension.
fn declaring(caller: &Arc<Caller>) -> Arc<Caller> {
    let mut caller = Caller::clone(caller);
    let extensions = caller.capabilities.extensions.get_or_insert_default();
    extensions.entry(EXTENSION.to_owned()).or_default();
    Arc::new(caller)
}

/// Returns whether a server has the extension.
async fn has_extension(connection: &UpstreamConnection, request: &Request) -> bool {
    connection.dialect().tasks == Tasks::Extension
        && has_tasks(connection, &connection.caller(&request.caller)).await
}

fn is_terminal(status: TaskStatus) -> bool {
    match status {
        TaskStatus::Working | TaskStatus::InputRequired => false,
        TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Cancelled => true,
    }
}

fn poll_interval(task: &Json) -> Duration {
    let millis = forms::member(task, "pollIntervalMs");
    let millis = millis.and_then(|millis| millis.decode::<f64>().ok());
    let interval = millis.and_then(|millis| Duration::try_from_secs_f64(millis / 1000.0).ok());
    let interval = interval.unwrap_or(DEFAULT_POLL_INTERVAL);
    interval.clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL)
}

fn has_finished() -> RpcError {
    RpcError::invalid_params("failed to cancel the task: it has finished")
}

fn method_not_found(method: &str) -> RpcError {
    let why = format!("method not found: `{method}`");
    RpcError::new(ErrorCode::METHOD_NOT_FOUND, why)
}

const STATUS_NOTIFICATION: &str = "notifications/tasks/status";
const DEFAULT_POLL_INTERVAL: Duration = Duration::from_secs(1);
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(50);
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(10);
/// How long a task may take to end after it was cancelled.
const CANCEL_TIME: Duration = Duration::from_secs(5);
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How long the result of a call that was answered at once is kept, if the client does not say it.
const KEEP_ANSWERED: Duration = Duration::from_secs(10 * 60);
const MIN_KEEP_ANSWERED: Duration = Duration::from_secs(60);
const MAX_KEEP_ANSWERED: Duration = Duration::from_secs(60 * 60);
