//! The requests of clients about calls that the bridge itself has made tasks of: see `parked/task.rs`.

use std::collections::BTreeMap;
use std::time::Duration;

use bowline::exchange::{Outcome, Request};
use bowline::{Json, RpcError};
use bowline_core::json::Object;
use serde_json::json;

use super::{CALL, CANCEL, GET, UPDATE, declares_extension, extension_required, forms, iso_time};
use crate::parked::{CreatedTask, ParkedTask, TaskState, TaskTimes, TaskView};

/// Returns whether a call can be a task.
pub(crate) fn can_be_task(request: &Request) -> bool {
    request.method == CALL && declares_extension(&request.caller)
}

/// Returns the result of a call that has become a task.
pub(crate) fn created(task: &CreatedTask) -> Json {
    let id = format!("{PREFIX}{}", task.id);
    let mut object = record(&id, &task.times, "input_required");
    object.set("resultType", json!("task").into());
    object.to_json()
}

/// Returns the sealed id in a request about a task that the bridge may have created.
pub(crate) fn requested_id(request: &Request) -> Option<String> {
    let is_about_task = matches!(&*request.method, GET | UPDATE | CANCEL);
    if !is_about_task || !request.caller.dialect.is_modern() {
        return None;
    }
    let id = forms::task_id(&request.params).ok()?;
    Some(id.strip_prefix(PREFIX)?.to_owned())
}

/// Returns whether the id of a task may be one of the bridge.
pub(super) fn is_parked(id: &str) -> bool {
    id.starts_with(PREFIX)
}

/// Answers a request about a task.
pub(crate) fn answer<U>(request: &Request, task: &ParkedTask<U>) -> Outcome {
    if !declares_extension(&request.caller) {
        return Err(extension_required());
    }
    match &*request.method {
        GET => {
            let id = forms::task_id(&request.params)?;
            return Ok(describe(&id, task.view()?));
        }
        UPDATE => task.answer(&responses(request)?)?,
        _ => task.cancel(),
    }
    Ok(Json::empty_object())
}

/// Returns the answers in the params of `tasks/update`.
pub(super) fn responses(request: &Request) -> Result<BTreeMap<String, Json>, RpcError> {
    let answers = request.params.member("inputResponses").ok().flatten();
    let answers = answers.filter(Json::is_object);
    let answers = answers.and_then(|it| it.decode::<BTreeMap<String, Json>>().ok());
    answers.ok_or_else(|| RpcError::invalid_params("expected `inputResponses` to be an object"))
}

/// Returns the result of `tasks/get`.
fn describe(id: &str, task: TaskView) -> Json {
    let (status, member) = match task.state {
        TaskState::Working => ("working", None),
        TaskState::Cancelled => ("cancelled", None),
        TaskState::InputRequired(questions) => {
            let questions = questions.iter().map(|(key, json)| (key.as_str(), json));
            let questions = Json::object(questions);
            ("input_required", Some(("inputRequests", questions)))
        }
        TaskState::Ended(outcome) => match outcome.and_then(completed) {
            Ok(result) => ("completed", Some(("result", result))),
            Err(error) => {
                let error = Json::encode(&error).unwrap_or_else(|_| Json::empty_object());
                ("failed", Some(("error", error)))
            }
        },
    };
    let mut object = record(id, &task.times, status);
    if let Some((name, value)) = member {
        object.set(name, value);
    }
    object.to_json()
}

/// Returns the result of a call that has become a task. It is final: a task cannot ask for the call to be made again.
fn completed(result: Json) -> Outcome {
    let Ok(mut object) = Object::read(&result) else {
        return Ok(result);
    };
    let kind = object.remove("resultType");
    let is_complete = kind.is_none_or(|kind| kind.text().is_ok_and(|kind| kind == "complete"));
    match is_complete {
        true => Ok(object.to_json()),
        false => Err(RpcError::internal(
            "the server requires input before it can run the call; make the call without the tasks extension",
        )),
    }
}

fn record(id: &str, times: &TaskTimes, status: &'static str) -> Object<'static> {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let mut object = Object::default();
    object.set("taskId", json!(id).into());
    object.set("status", json!(status).into());
    object.set("createdAt", json!(iso_time::of(times.created)).into());
    object.set("lastUpdatedAt", json!(iso_time::of(times.updated)).into());
    object.set("ttlMs", json!(millis(times.ttl)).into());
    object.set("pollIntervalMs", json!(millis(POLL_INTERVAL)).into());
    object
}

/// What the ids of such tasks begin with. The ids of servers may begin so too: they do not open.
const PREFIX: &str = "parked-";
/// A person who answers a question takes longer.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
