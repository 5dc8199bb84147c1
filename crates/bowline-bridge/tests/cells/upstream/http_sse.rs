//! An upstream server over HTTP+SSE: a stream by GET, whose first event names the URL for POSTs.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::mpsc;

use super::State;
use super::http::HttpResponse;
use crate::http1::Head;

pub(super) fn respond(state: &Arc<State>, head: &Head, message: Value) -> HttpResponse {
    let [method, path, _] = &head.first_line;
    match (method.as_str(), path.split_once('?')) {
        ("GET", None) if path == "/sse" => open(state),
        ("POST", Some(("/messages", number))) => {
            let connections = state.connections();
            let number = number.parse::<usize>().ok();
            let connection = number.and_then(|number| connections.get(number));
            let open = connection.and_then(|connection| {
                let reply = connection.table().standalone.clone()?;
                Some((connection, reply))
            });
            let Some((connection, reply)) = open else {
                return HttpResponse::Status(404);
            };
            state.arrive(connection, message, reply);
            HttpResponse::Status(202)
        }
        _ => HttpResponse::Status(405),
    }
}

fn open(state: &Arc<State>) -> HttpResponse {
    let connection = state.connect();
    let (standalone, messages) = mpsc::unbounded_channel();
    connection.table().standalone = Some(standalone.clone());
    let endpoint = format!("event: endpoint\ndata: /messages?{}\n\n", connection.number);
    let state = state.clone();
    tokio::spawn(async move {
        standalone.closed().await;
        // The end of the stream is the end of the connection.
        connection.end();
        state.record.touch();
    });
    HttpResponse::Stream(messages, endpoint)
}
