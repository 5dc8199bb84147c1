//! Tasks of a server of 2025-11-25 for clients of the extension.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bowline::exchange::{Outcome, Request};
use bowline::types::legacy_tasks::{TaskStatus, TaskSupport};
use bowline::{Context, Error, ErrorCode, Json, RpcError};

use super::open_tasks::OpenTask;
use super::{
    CALL, CANCEL, GET, RESULT, TaskRequest, TaskScope, UPDATE, connection, declares_extension,
    extension_required, forms, has_tasks, parked_tasks,
};
use crate::upstream::{ConnectionLease, Upstream, UpstreamConnection};

/// Answers a request of a modern client, or returns it to be forwarded.
pub(super) async fn respond(
    upstream: &Arc<Upstream>,
    request: Request,
    cx: &Context,
) -> Result<ControlFlow<Outcome, Request>, RpcError> {
    if request.method == CALL {
        let request = prepare_call(upstream, request, cx).await?;
        return Ok(ControlFlow::Continue(request));
    }
    if !matches!(&*request.method, GET | UPDATE | CANCEL) {
        return Ok(ControlFlow::Continue(request));
    }
    let task = TaskRequest::new(upstream, &request, cx).await?;
    if !has_legacy_tasks(task.connection()?, &request).await {
        return Ok(ControlFlow::Continue(request));
    }
    if !declares_extension(&request.caller) {
        return Err(extension_required());
    }
    let outcome = match &*request.method {
        GET => get(&task, &request).await,
        UPDATE => update(&task, &request).await,
        _ => cancel(&task).await,
    };
    Ok(ControlFlow::Break(outcome))
}

/// Asks for a task where the tool allows it.
async fn prepare_call(
    upstream: &Arc<Upstream>,
    mut request: Request,
    cx: &Context,
) -> Result<Request, RpcError> {
    let lease = upstream.lease(&request, cx).await?;
    let connection = connection(&lease)?;
    if connection.dialect().is_modern() {
        return Ok(request);
    }
    // In this era the member has no meaning, and the server would take it for a request.
    if forms::has_task(&request.params) {
        request.params = forms::with_task(&request.params, None).into();
    }
    if !declares_extension(&request.caller) || !has_legacy_tasks(connection, &request).await {
        return Ok(request);
    }
    if tool_support(connection, &request).await != TaskSupport::Forbidden {
        request.params = forms::with_task(&request.params, Some(Json::empty_object())).into();
    }
    Ok(request)
}

/// Converts the answer of a legacy server to a call that [`respond`](super::respond) has returned: it may be a task.
pub(crate) fn convert_answer(
    scope: &TaskScope,
    lease: &Arc<ConnectionLease>,
    request: &Request,
    outcome: Outcome,
) -> Outcome {
    let result = outcome?;
    if request.method != CALL || !forms::has_task(&request.params) {
        return Ok(result);
    }
    let Some((id, created)) = forms::created_to_modern(&result) else {
        // The server has answered at once.
        return Ok(result);
    };
    scope.add(&id.into(), &created, lease, request.caller.dialect);
    Ok(created)
}

/// Converts the error of a legacy server that refuses a call because it is no task, or because it is one.
pub(crate) async fn explain_refusal(
    lease: &ConnectionLease,
    request: &Request,
    outcome: Outcome,
) -> Outcome {
    let error = match outcome {
        Err(error) if request.method == CALL && error.code == ErrorCode::METHOD_NOT_FOUND => error,
        outcome => return outcome,
    };
    let Some(connection) = lease.get() else {
        return Err(error);
    };
    if !has_legacy_tasks(connection, request).await {
        return Err(error);
    }
    if forms::has_task(&request.params) {
        // The tools have changed.
        connection.tool_support().forget().await;
        return Err(error);
    }
    match tool_support(connection, request).await {
        TaskSupport::Required if !declares_extension(&request.caller) => Err(extension_required()),
        _ => Err(error),
    }
}

async fn tool_support(connection: &UpstreamConnection, request: &Request) -> TaskSupport {
    let tool = request.params.member("name").ok().flatten();
    let Some(tool) = tool.and_then(|tool| tool.decode::<String>().ok()) else {
        return TaskSupport::Forbidden;
    };
    let caller = connection.caller(&request.caller);
    let support = connection.tool_support();
    support.of(&tool, connection.channel(), &caller).await
}

/// Returns whether a server is a legacy one, and has tasks.
async fn has_legacy_tasks(connection: &UpstreamConnection, request: &Request) -> bool {
    !connection.dialect().is_modern()
        && has_tasks(connection, &connection.caller(&request.caller)).await
}

async fn get(task: &TaskRequest<'_>, request: &Request) -> Outcome {
    let found = read(task).await?;
    let status = forms::status(&found)?;
    let open = (task.scope).add(&task.id, &found, &task.lease, request.caller.dialect);
    match status {
        TaskStatus::Working => Ok(forms::to_modern(&found).to_json()),
        TaskStatus::Cancelled => {
            task.scope.finished(&task.id);
            Ok(forms::to_modern(&found).to_json())
        }
        TaskStatus::Completed | TaskStatus::Failed => {
            task.scope.finished(&task.id);
            let answer = task.exchange(RESULT, forms::id_params(&task.id)).await?;
            let answer = match answer {
                Ok(result) => Ok(result),
                Err(Error::Rpc(error)) => Err(error),
                Err(error) => return Err(task.failed(&error)),
            };
            Ok(forms::finished_to_modern(&found, answer))
        }
        TaskStatus::InputRequired => {
            let OpenTask::OfServer(open) = &*open else {
                return Ok(forms::asking_to_modern(&found, &[]));
            };
            open.wait_in_background(&task.id, &task.caller);
            let questions = open.questions.wait(QUESTION_TIME).await;
            Ok(forms::asking_to_modern(&found, &questions))
        }
    }
}

async fn update(task: &TaskRequest<'_>, request: &Request) -> Outcome {
    let answers = parked_tasks::responses(request)?;
    match task.scope.find(&task.id).as_deref() {
        Some(OpenTask::OfServer(open)) => open.questions.answer(answers)?,
        // It has no question that the bridge knows. It may not exist.
        _ => drop(read(task).await?),
    }
    Ok(Json::empty_object())
}

/// Cancels a task. Unlike in 2025-11-25 that is no error if it has finished.
async fn cancel(task: &TaskRequest<'_>) -> Outcome {
    let Err(error) = task.ask(CANCEL).await else {
        task.scope.finished(&task.id);
        return Ok(Json::empty_object());
    };
    if error.code != ErrorCode::INVALID_PARAMS {
        return Err(error);
    }
    match forms::status(&read(task).await?)? {
        TaskStatus::Working | TaskStatus::InputRequired => Err(error),
        TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Cancelled => {
            Ok(Json::empty_object())
        }
    }
}

/// Returns a task as its server knows it.
async fn read(task: &TaskRequest<'_>) -> Outcome {
    let found = task.ask(GET).await;
    if let Err(error) = &found
        && error.code == ErrorCode::INVALID_PARAMS
    {
        task.scope.remove(&task.id);
    }
    found
}

/// How long a server may take to ask, after it has said that it waits for input.
const QUESTION_TIME: Duration = Duration::from_secs(2);
