//! The forms of tasks in both eras, as text: members that the bridge does not know are kept.

use std::time::Duration;

use bowline::exchange::dialect::Tasks;
use bowline::exchange::{Dialect, Params};
use bowline::types::legacy_tasks::{TaskStatus, TaskSupport};
use bowline::types::meta_key;
use bowline::{Json, RpcError};
use bowline_core::json::{Object, pick};
use serde_json::json;

use super::EXTENSION;
use crate::config::ParkedCallForm;

/// Replaces the form of tasks that a server offers in the result of `server/discover` by that of the client. If parked
/// calls are tasks, the bridge has tasks for a modern client of any legacy server.
pub(crate) fn convert_offer(
    discovered: &mut Object<'_>,
    server: &Dialect,
    client: &Dialect,
    parked_calls: ParkedCallForm,
) {
    if server.tasks == client.tasks {
        return;
    }
    let Some(offered) = discovered.member("capabilities").cloned() else {
        return;
    };
    let may_park = client.is_modern() && !server.is_modern();
    let is_task = may_park && parked_calls == ParkedCallForm::Task;
    let Ok(mut capabilities) = Object::read(&offered) else {
        return;
    };
    let is_offered = offers_tasks(&offered, server);
    capabilities.remove("tasks");
    let extensions = capabilities.remove("extensions");
    let extensions = extensions.unwrap_or_else(Json::empty_object);
    let mut extensions = Object::read(&extensions).unwrap_or_default();
    extensions.remove(EXTENSION);
    match client.tasks {
        Tasks::Extension if is_offered || is_task => {
            extensions.set(EXTENSION, Json::empty_object())
        }
        // No `list`: the extension cannot list tasks.
        Tasks::Core if is_offered => {
            let tasks = json!({"cancel": {}, "requests": {"tools": {"call": {}}}});
            capabilities.set("tasks", tasks.into());
        }
        _ => {}
    }
    if !extensions.is_empty() {
        capabilities.set("extensions", extensions.to_json());
    }
    let converted = capabilities.to_json();
    discovered.set("capabilities", converted);
}

/// Returns whether the capabilities of a server say that a tool can be called as a task.
pub(super) fn offers_tasks(capabilities: &Json, server: &Dialect) -> bool {
    let path: &[&str] = match server.tasks {
        Tasks::Core => &["tasks", "requests", "tools", "call"],
        Tasks::Extension => &["extensions", EXTENSION],
        _ => return false,
    };
    let mut at = Some(capabilities.clone());
    for name in path {
        at = at.and_then(|json| member(&json, name));
    }
    at.is_some_and(|json| json.is_object())
}

/// Returns the id of the task that a request has created, by its result in the form of either era.
pub(super) fn created_id(result: &Json) -> Option<String> {
    if !result.as_str().contains("taskId") {
        return None;
    }
    let [kind, id, task, content] =
        pick(result, ["resultType", "taskId", "task", "content"]).ok()?;
    let id = match kind.is_some_and(|kind| is(&kind, "task")) {
        true => id?,
        false if content.is_none() => member(&task?, "taskId")?,
        false => return None,
    };
    id.decode().ok()
}

/// Returns the id in the params of a request about a task.
pub(super) fn task_id(params: &Params) -> Result<String, RpcError> {
    let id = params.member("taskId").ok().flatten();
    let id = id.and_then(|id| id.decode().ok());
    id.ok_or_else(|| RpcError::invalid_params("expected the text `taskId`"))
}

pub(super) fn id_params(id: &str) -> Json {
    json!({"taskId": id}).into()
}

/// Returns whether the params ask for a task.
pub(super) fn has_task(params: &Params) -> bool {
    let task = params.member("task").ok().flatten();
    task.is_some_and(|task| !task.is_null())
}

/// Sets or removes the member `task` of the params.
pub(super) fn with_task(params: &Params, task: Option<Json>) -> Json {
    let json: &Json = params;
    let Ok(mut object) = Object::read(json) else {
        return json.clone();
    };
    match task {
        Some(task) => object.set("task", task),
        None => drop(object.remove("task")),
    }
    object.to_json()
}

/// Returns the status of a task.
pub(super) fn status(task: &Json) -> Result<TaskStatus, RpcError> {
    let status = member(task, "status").and_then(|status| status.decode().ok());
    status.ok_or_else(|| RpcError::internal("the server returned a task without a known status"))
}

/// Returns how long the server keeps a task of either form; `None` if it does not say so, or without a limit.
pub(super) fn time_to_live(task: &Json) -> Option<Duration> {
    let ttl = member(task, "ttl").or_else(|| member(task, "ttlMs"))?;
    ttl.decode().ok().map(Duration::from_millis)
}

/// Returns the result of a call that became a task in 2025-11-25, in the form of the extension; `None` if it is not one.
pub(super) fn created_to_modern(result: &Json) -> Option<(String, Json)> {
    let task = member(result, "task").filter(Json::is_object)?;
    let id: String = member(&task, "taskId")?.decode().ok()?;
    let mut task = to_modern(&task);
    // In 2025-11-25 a tool that returned `isError` has failed too; `tasks/get` tells which.
    if task
        .member("status")
        .is_some_and(|status| is(status, "failed"))
    {
        task.set("status", json!("working").into());
    }
    task.set("resultType", json!("task").into());
    if let Some(meta) = member(result, "_meta") {
        task.set("_meta", meta);
    }
    Some((id, task.to_json()))
}

/// Returns the result of a call that became a task of the extension, in the form of 2025-11-25; `None` if it is not one.
pub(super) fn created_to_legacy(result: &Json) -> Option<(String, Json)> {
    let [kind, id, meta] = pick(result, ["resultType", "taskId", "_meta"]).ok()?;
    if !is(&kind?, "task") {
        return None;
    }
    let id: String = id?.decode().ok()?;
    let task = to_legacy(result);
    let mut task = Object::read(&task).ok()?;
    task.remove("_meta");
    Some((id, created(&task.to_json(), meta.as_ref())))
}

/// Returns the result of a call that became a task in 2025-11-25.
pub(super) fn created(task: &Json, meta: Option<&Json>) -> Json {
    let meta = meta.map(|meta| ("_meta", meta));
    Json::object([("task", task)].into_iter().chain(meta))
}

/// Returns a task without a result in the form of the extension.
pub(super) fn to_modern(task: &Json) -> Object<'static> {
    renamed(
        task,
        &[("ttl", "ttlMs"), ("pollInterval", "pollIntervalMs")],
    )
}

/// Returns a task that has finished in the form of the extension, with the answer to `tasks/result`.
pub(super) fn finished_to_modern(task: &Json, answer: Result<Json, RpcError>) -> Json {
    let mut task = to_modern(task);
    match answer {
        // Also if the tool returned `isError`.
        Ok(result) => {
            task.set("status", json!("completed").into());
            task.set("result", without_related_task(&result));
        }
        Err(error) => {
            task.set("status", json!("failed").into());
            let error = Json::encode(&error).unwrap_or_else(|_| Json::empty_object());
            task.set("error", error);
        }
    }
    task.to_json()
}

/// Returns a task that waits for the answers to these questions, in the form of the extension.
pub(super) fn asking_to_modern(task: &Json, questions: &[(String, Json)]) -> Json {
    let mut task = to_modern(task);
    if questions.is_empty() {
        // There is nothing that the client could answer.
        task.set("status", json!("working").into());
    } else {
        let questions = questions.iter().map(|(key, json)| (key.as_str(), json));
        task.set("inputRequests", Json::object(questions));
    }
    task.to_json()
}

/// Returns a task of the extension in the form of 2025-11-25, where a tool that returned `isError` has failed.
pub(super) fn to_legacy(task: &Json) -> Json {
    let mut legacy = renamed(
        task,
        &[("ttlMs", "ttl"), ("pollIntervalMs", "pollInterval")],
    );
    legacy.remove("resultType");
    legacy.remove("inputRequests");
    legacy.remove("error");
    let result = legacy.remove("result");
    let has_failed = result.and_then(|result| member(&result, "isError"));
    if has_failed.is_some_and(|has_failed| has_failed.as_str() == "true") {
        legacy.set("status", json!("failed").into());
    }
    legacy.to_json()
}

/// Returns the open questions of a task of the extension: by key, a method and its params.
pub(super) fn questions(task: &Json) -> Vec<(String, Json)> {
    let Some(questions) = member(task, "inputRequests") else {
        return Vec::new();
    };
    let object = Object::read_at_most(&questions, MAX_QUESTIONS);
    let questions = object.iter().flat_map(Object::iter);
    questions
        .map(|(key, question)| (key.to_owned(), question.clone()))
        .collect()
}

/// Returns the params that answer a question of a task of the extension.
pub(super) fn answer_params(id: &str, key: &str, answer: &Json) -> Json {
    let id: Json = json!(id).into();
    let answers = Json::object([(key, answer)]);
    Json::object([("taskId", &id), ("inputResponses", &answers)])
}

/// Returns the result of a task for `tasks/result`.
pub(super) fn result_to_legacy(result: &Json, id: &str) -> Json {
    let Ok(mut object) = Object::read(result) else {
        return result.clone();
    };
    object.remove("resultType");
    let structured = object.member("structuredContent");
    if structured.is_some_and(|content| !content.is_object())
        && let Some(lost) = object.remove("structuredContent")
    {
        let content = object.member("content");
        if content.is_none_or(|content| content.decode::<[(); 0]>().is_ok()) {
            let text = json!([{"type": "text", "text": lost.as_str()}]);
            object.set("content", text.into());
        }
    }
    with_related_task(&object.to_json(), id)
}

/// Adds the id of a task to the `_meta` of a message that belongs to it.
pub(super) fn with_related_task(message: &Json, id: &str) -> Json {
    let Ok(mut object) = Object::read(message) else {
        return message.clone();
    };
    let meta = object.remove("_meta").filter(Json::is_object);
    let meta = meta.unwrap_or_else(Json::empty_object);
    let mut meta = Object::read(&meta).unwrap_or_default();
    meta.set(meta_key::RELATED_TASK, id_params(id));
    object.set("_meta", meta.to_json());
    object.to_json()
}

/// Returns the id of the task that a message belongs to.
pub(crate) fn related_task(message: &Json) -> Option<String> {
    let related = member(&member(message, "_meta")?, meta_key::RELATED_TASK)?;
    member(&related, "taskId")?.decode().ok()
}

/// Removes the id of a task from the `_meta` of a message: the extension does not have it.
pub(super) fn without_related_task(message: &Json) -> Json {
    let Some(meta) = member(message, "_meta").filter(Json::is_object) else {
        return message.clone();
    };
    let (Ok(mut object), Ok(mut meta)) = (Object::read(message), Object::read(&meta)) else {
        return message.clone();
    };
    meta.remove(meta_key::RELATED_TASK);
    match meta.is_empty() {
        true => drop(object.remove("_meta")),
        false => object.set("_meta", meta.to_json()),
    }
    object.to_json()
}

/// Returns a page of tools with the support of tasks: a server of the extension does not declare it for each tool.
pub(super) fn with_task_support(page: &Json) -> Json {
    let Ok(mut object) = Object::read(page) else {
        return page.clone();
    };
    let Some(tools) = object.member("tools").map(tools) else {
        return page.clone();
    };
    let tools: Vec<Json> = tools.iter().map(with_optional_task).collect();
    if let Ok(tools) = Json::encode(&tools) {
        object.set("tools", tools);
    }
    object.to_json()
}

fn with_optional_task(tool: &Json) -> Json {
    let Ok(mut object) = Object::read(tool) else {
        return tool.clone();
    };
    if object.member("execution").is_none() {
        object.set("execution", json!({"taskSupport": "optional"}).into());
    }
    object.to_json()
}

/// Returns the tools of a page that can be called as a task.
pub(super) fn task_support(page: &Json) -> Vec<(String, TaskSupport)> {
    let tools = member(page, "tools").map(|list| tools(&list));
    let tools = tools.unwrap_or_default();
    let support = tools.iter().filter_map(|tool| {
        let [name, execution] = pick(tool, ["name", "execution"]).ok()?;
        let support: TaskSupport = member(&execution?, "taskSupport")?.decode().ok()?;
        (support != TaskSupport::Forbidden).then_some((name?.decode().ok()?, support))
    });
    support.collect()
}

fn tools(list: &Json) -> Vec<Json> {
    let tools: Vec<&serde_json::value::RawValue> = list.decode().unwrap_or_default();
    tools.into_iter().map(|tool| list.part(tool)).collect()
}

/// Returns the members of a task under other names. The time to live is required in both forms.
fn renamed(task: &Json, names: &[(&'static str, &'static str)]) -> Object<'static> {
    let mut renamed = Object::default();
    let object = Object::read_at_most(task, MAX_MEMBERS).unwrap_or_default();
    for (name, value) in object.iter() {
        let other = names.iter().find(|(from, _)| *from == name);
        match other {
            Some((_, to)) => renamed.set(*to, value.clone()),
            None => renamed.set(name.to_owned(), value.clone()),
        }
    }
    let (_, ttl) = names[0];
    if renamed.member(ttl).is_none() {
        renamed.set(ttl, Json::null());
    }
    renamed
}

pub(super) fn member(json: &Json, name: &str) -> Option<Json> {
    let [member] = pick(json, [name]).ok()?;
    member
}

fn is(json: &Json, text: &str) -> bool {
    json.text().is_ok_and(|own| own == text)
}

/// A task has about ten members.
const MAX_MEMBERS: usize = 100;
/// How many questions of one task are read.
const MAX_QUESTIONS: usize = 100;

#[cfg(test)]
mod tests;
