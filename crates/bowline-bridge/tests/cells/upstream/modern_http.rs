//! An upstream server over Streamable HTTP at 2026-07-28: one POST per request, no sessions.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::State;
use super::http::{Format, HttpResponse};
use crate::http1::Head;

pub(super) fn respond(state: &Arc<State>, head: &Head, message: Value) -> HttpResponse {
    if head.first_line[0] != "POST" || head.first_line[1] != "/mcp" {
        return HttpResponse::Status(405);
    }
    // Nothing connects the requests of one client, so all of them share a connection in the tables.
    let connection = state.connections().first().cloned();
    let connection = connection.unwrap_or_else(|| state.connect());
    let (reply, replies) = mpsc::unbounded_channel();
    if message.get("id").is_none() || message.get("method").is_none() {
        state.arrive(&connection, message, reply);
        return HttpResponse::Status(202);
    }
    let envelope = &message["params"]["_meta"];
    let is_modern = envelope
        .get("io.modelcontextprotocol/protocolVersion")
        .is_some();
    if let (true, Err(problem)) = (is_modern, check_headers(head, &message)) {
        state.violation(&connection, problem.clone());
        let error = json!({"code": -32020, "message": problem});
        let body = json!({"jsonrpc": "2.0", "id": message["id"], "error": error});
        return HttpResponse::Error(400, body);
    }
    let streams = matches!(
        message["method"].as_str(),
        Some("tools/call" | "subscriptions/listen")
    );
    state.arrive(&connection, message, reply);
    let format = match streams {
        true => Format::Stream,
        false => Format::Json,
    };
    HttpResponse::Modern(replies, format)
}

/// Checks that the headers repeat what the body says.
fn check_headers(head: &Head, message: &Value) -> Result<(), String> {
    let params = &message["params"];
    let name = match message["method"].as_str().unwrap_or_default() {
        "tools/call" | "prompts/get" => &params["name"],
        "resources/read" => &params["uri"],
        method if method.starts_with("tasks/") => &params["taskId"],
        _ => &Value::Null,
    };
    let version = &params["_meta"]["io.modelcontextprotocol/protocolVersion"];
    let expected = [
        ("mcp-protocol-version", version),
        ("mcp-method", &message["method"]),
        ("mcp-name", name),
    ];
    for (header, value) in expected {
        if head.header(header) != value.as_str() {
            let found = head.header(header);
            return Err(format!(
                "the header {header} is {found:?}, the body has {value}"
            ));
        }
    }
    check_accept(head)
}

/// Checks that the client accepts both kinds of response.
pub(super) fn check_accept(head: &Head) -> Result<(), String> {
    let accept = head.header("accept").unwrap_or_default();
    match accept.contains("application/json") && accept.contains("text/event-stream") {
        true => Ok(()),
        false => Err(format!("the header accept is {accept:?}")),
    }
}
