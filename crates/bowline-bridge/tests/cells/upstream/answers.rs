//! The answers of an upstream server: its tools, resources, prompts and logs.

use std::future;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::connection::{Connection, Listening, Reply};
use super::questions::{self, Question};
use super::tasks::task;
use super::{Fault, SeenRequest, State, notification};

/// A result or an error object.
pub(super) type Outcome = Result<Value, Value>;

/// The levels that the tool `chatter` logs at, the least severe first.
pub(super) const LEVELS: [&str; 4] = ["debug", "info", "warning", "error"];

/// Answers a request.
pub(super) async fn answer(
    state: &Arc<State>,
    connection: &Connection,
    request: &SeenRequest,
    reply: &Reply,
) -> Outcome {
    let params = &request.params;
    let is_modern = state.endpoint.revision.is_modern();
    match request.method.as_str() {
        "initialize" => Ok(initialize(state, connection, params)),
        "server/discover" => Ok(cacheable(json!({
            "supportedVersions": [state.endpoint.revision.name()],
            "capabilities": capabilities(state),
        }))),
        "ping" => Ok(json!({})),
        "tools/list" => Ok(list(is_modern, json!({"tools": tools(state)}))),
        "resources/list" => Ok(list(
            is_modern,
            json!({"resources": [
                {"uri": "test://a", "name": "a"},
            ]}),
        )),
        "resources/templates/list" => Ok(list(is_modern, json!({"resourceTemplates": []}))),
        "prompts/list" => Ok(list(
            is_modern,
            json!({"prompts": [
                {"name": "greet", "arguments": [{"name": "who"}]},
            ]}),
        )),
        "tools/call" => call(state, connection, request, reply).await,
        "completion/complete" => Ok(complete(state, params)),
        "logging/setLevel" => {
            connection.table().log_level = params["level"].as_str().map(str::to_owned);
            Ok(json!({}))
        }
        "resources/subscribe" | "resources/unsubscribe" if !is_modern => {
            let uri = params["uri"].as_str().unwrap_or_default().to_owned();
            let mut table = connection.table();
            match request.method.as_str() {
                "resources/subscribe" => table.subscribed.insert(uri),
                _ => table.subscribed.remove(&uri),
            };
            Ok(json!({}))
        }
        "subscriptions/listen" if is_modern => listen(state, connection, request, reply).await,
        method if method.starts_with("tasks/") && state.endpoint.revision.has_tasks() => {
            let unknown =
                || json!({"code": -32602, "message": "no such task, or it has no result"});
            let answer = state.tasks.answer(method, params, is_modern);
            answer.ok_or_else(unknown)
        }
        method => Err(json!({"code": -32601, "message": format!("method not found: `{method}`")})),
    }
}

async fn call(
    state: &Arc<State>,
    connection: &Connection,
    request: &SeenRequest,
    reply: &Reply,
) -> Outcome {
    let params = &request.params;
    match params["name"].as_str().unwrap_or_default() {
        "echo" => Ok(echo(state, &params["arguments"])),
        "count" => {
            let token = &params["_meta"]["progressToken"];
            for step in 1..=3 {
                if !token.is_null() && !state.has(Fault::NoProgress) {
                    let progress = json!({"progressToken": token, "progress": step, "total": 3});
                    let _ = reply.send(notification("notifications/progress", &progress));
                }
                if let Ok(permit) = state.gate.acquire().await {
                    permit.forget();
                }
            }
            Ok(text_result("counted"))
        }
        "slow" => match state.has(Fault::IgnoresCancel) {
            // It goes on and answers later: here, when the next call of the tool `count` would continue.
            true => {
                drop(state.gate.acquire().await);
                Ok(text_result("too late"))
            }
            false => future::pending().await,
        },
        "ask_user" => {
            questions::ask(state, connection, request, Question::Elicitation, reply).await
        }
        "ask_model" => questions::ask(state, connection, request, Question::Sampling, reply).await,
        "chatter" => {
            chatter(state, connection, request, reply);
            Ok(text_result("enough said"))
        }
        "job" => job(state, request),
        name => Err(json!({"code": -32602, "message": format!("unknown tool `{name}`")})),
    }
}

fn echo(state: &State, arguments: &Value) -> Value {
    let text = match state.has(Fault::WrongResult) {
        true => "something else",
        false => arguments["text"].as_str().unwrap_or_default(),
    };
    let mut result = text_result(text);
    if state.endpoint.revision.has_structured_content() {
        result["structuredContent"] = json!({"text": text});
    }
    result
}

/// Logs one line at each level, from the least severe, as far as the level that the client set allows.
fn chatter(state: &State, connection: &Connection, request: &SeenRequest, reply: &Reply) {
    let is_modern = state.endpoint.revision.is_modern();
    let level = match is_modern {
        true => request.params["_meta"]["io.modelcontextprotocol/logLevel"]
            .as_str()
            .map(str::to_owned),
        false => connection.table().log_level.clone(),
    };
    let lowest = match level {
        _ if state.has(Fault::IgnoresLogLevel) => 0,
        Some(level) => {
            let at = LEVELS.iter().position(|one| *one == level);
            at.unwrap_or(LEVELS.len())
        }
        // A legacy server may choose what to send if it was told no level; a modern one sends nothing.
        None if is_modern => LEVELS.len(),
        None => 0,
    };
    for level in &LEVELS[lowest..] {
        let line = json!({"level": level, "logger": "chatter", "data": {"at": level}});
        let _ = reply.send(notification("notifications/message", &line));
    }
}

fn job(state: &State, request: &SeenRequest) -> Outcome {
    let is_modern = state.endpoint.revision.is_modern();
    if is_modern {
        let extensions = &request.capabilities["extensions"];
        if extensions.get("io.modelcontextprotocol/tasks").is_none() {
            let required = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
            return Err(
                json!({"code": -32021, "message": "this tool runs as a task",
                "data": {"requiredCapabilities": required}}),
            );
        }
        let mut created = task(&state.tasks.create(), "working", true);
        created["resultType"] = json!("task");
        return Ok(created);
    }
    match request.params.get("task") {
        Some(_) if state.endpoint.revision.has_tasks() => {
            Ok(json!({"task": task(&state.tasks.create(), "working", false)}))
        }
        _ => Err(json!({"code": -32601, "message": "this tool runs as a task"})),
    }
}

/// Acknowledges the filter, and stays in the table of the connection until the request is stopped.
async fn listen(
    state: &State,
    connection: &Connection,
    request: &SeenRequest,
    reply: &Reply,
) -> Outcome {
    let filter = request.params["notifications"].clone();
    let acknowledged = json!({
        "notifications": filter, "_meta": {"io.modelcontextprotocol/subscriptionId": request.id},
    });
    let method = "notifications/subscriptions/acknowledged";
    let _ = reply.send(notification(method, &acknowledged));
    let listening = Listening {
        id: request.id.clone(),
        filter,
        reply: reply.clone(),
    };
    connection
        .table()
        .listening
        .insert(request.serial, listening);
    state.record.touch();
    future::pending().await
}

fn initialize(state: &State, connection: &Connection, params: &Value) -> Value {
    connection.table().capabilities = params["capabilities"].clone();
    json!({
        "protocolVersion": state.endpoint.revision.name(),
        "capabilities": capabilities(state),
        "serverInfo": {"name": "raw-server", "version": "1"},
    })
}

fn capabilities(state: &State) -> Value {
    let revision = state.endpoint.revision;
    let mut capabilities = json!({
        "tools": {"listChanged": true},
        "resources": {"listChanged": true, "subscribe": true},
        "prompts": {},
        "logging": {},
    });
    if revision.declares_completions() {
        capabilities["completions"] = json!({});
    }
    match revision.has_tasks() {
        true if revision.is_modern() => {
            capabilities["extensions"] = json!({"io.modelcontextprotocol/tasks": {}});
        }
        true => {
            capabilities["tasks"] = json!({"cancel": {}, "requests": {"tools": {"call": {}}}});
        }
        false => {}
    }
    capabilities
}

fn tools(state: &State) -> Vec<Value> {
    let mut names = vec!["echo", "count", "slow", "ask_user", "ask_model", "chatter"];
    if state.endpoint.revision.has_tasks() {
        names.push("job");
    }
    if state.has_changed_list.load(Ordering::SeqCst) {
        names.push("added");
    }
    let tools = names.into_iter().map(|name| {
        let mut tool = json!({"name": name, "inputSchema": {"type": "object"}});
        if name == "job" && !state.endpoint.revision.is_modern() {
            tool["execution"] = json!({"taskSupport": "required"});
        }
        tool
    });
    tools.collect()
}

fn complete(state: &State, params: &Value) -> Value {
    let prefix = params["argument"]["value"].as_str().unwrap_or_default();
    let names = ["Ada", "Alan", "Grace"].into_iter();
    let values: Vec<&str> = names.filter(|name| name.starts_with(prefix)).collect();
    match state.has(Fault::NoCompletions) {
        true => json!({"completion": {"values": []}}),
        false => json!({"completion": {"total": values.len(), "values": values, "hasMore": false}}),
    }
}

pub(super) fn text_result(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

/// A list in the form of the revision.
fn list(is_modern: bool, list: Value) -> Value {
    match is_modern {
        true => cacheable(list),
        false => list,
    }
}

fn cacheable(mut result: Value) -> Value {
    result["ttlMs"] = json!(0);
    result["cacheScope"] = json!("private");
    result
}
