//! An upstream server over Streamable HTTP before 2026-07-28: sessions, POST, GET and DELETE.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::mpsc;

use super::State;
use super::connection::Connection;
use super::http::HttpResponse;
use super::modern_http::check_accept;
use crate::http1::Head;

pub(super) fn respond(state: &Arc<State>, head: &Head, message: Value) -> HttpResponse {
    if head.first_line[1] != "/mcp" {
        return HttpResponse::Status(404);
    }
    if head.first_line[0] == "POST" && message["method"] == "initialize" {
        return initialize(state, message);
    }
    let Some(id) = head.header("mcp-session-id") else {
        return HttpResponse::Status(400);
    };
    let sessions = state.connections();
    let session = id
        .strip_prefix(SESSION)
        .and_then(|number| number.parse::<usize>().ok());
    let Some(session) = session.and_then(|number| sessions.get(number)) else {
        return HttpResponse::Status(404);
    };
    check_version(state, session, head);
    match head.first_line[0].as_str() {
        "POST" => post(state, session, head, message),
        "GET" => {
            let (standalone, messages) = mpsc::unbounded_channel();
            session.table().standalone = Some(standalone);
            state.record.touch();
            HttpResponse::Stream(messages, String::new())
        }
        "DELETE" => {
            session.end();
            state.record.touch();
            HttpResponse::Status(200)
        }
        _ => HttpResponse::Status(405),
    }
}

fn initialize(state: &Arc<State>, message: Value) -> HttpResponse {
    let session = state.connect();
    let (reply, replies) = mpsc::unbounded_channel();
    state.arrive(&session, message, reply);
    let header = format!("mcp-session-id: {SESSION}{}\r\n", session.number);
    HttpResponse::Json(replies, header)
}

fn post(
    state: &Arc<State>,
    session: &Arc<Connection>,
    head: &Head,
    message: Value,
) -> HttpResponse {
    if let Err(problem) = check_accept(head) {
        state.violation(session, problem);
    }
    let (reply, replies) = mpsc::unbounded_channel();
    let is_request = message.get("id").is_some() && message.get("method").is_some();
    let streams = message["method"] == "tools/call";
    state.arrive(session, message, reply);
    match (is_request, streams) {
        (false, _) => HttpResponse::Status(202),
        (true, true) => HttpResponse::Stream(replies, String::new()),
        (true, false) => HttpResponse::Json(replies, String::new()),
    }
}

/// Since 2025-06-18, every request after the handshake names the revision.
fn check_version(state: &State, session: &Connection, head: &Head) {
    let revision = state.endpoint.revision;
    let found = head.header("mcp-protocol-version");
    if revision.has_structured_content() && found != Some(revision.name()) {
        let problem = format!("the header mcp-protocol-version is {found:?}");
        state.violation(session, problem);
    }
}

const SESSION: &str = "session-";
