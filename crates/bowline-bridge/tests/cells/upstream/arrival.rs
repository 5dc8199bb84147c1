//! A message that arrives at the server: recorded, checked against the revision, and dispatched.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::answers::{self, Outcome};
use super::connection::{Connection, Reply, Running};
use super::{Fault, SeenEvent, SeenRequest, State};

const ENVELOPE: &str = "io.modelcontextprotocol/";

impl State {
    /// Takes a message from the client. What the server sends because of it goes to `reply`. A request is in the table
    /// before this returns, so a cancel right behind it finds it.
    pub(super) fn arrive(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        message: Value,
        reply: Reply,
    ) {
        let params = message["params"].clone();
        match (message["method"].as_str(), message.get("id")) {
            (Some(method), Some(id)) => {
                let capabilities = self.capabilities(connection, &params);
                let request = SeenRequest {
                    serial: 0,
                    id: id.clone(),
                    method: method.to_owned(),
                    params,
                    capabilities,
                };
                self.request(connection, request, reply);
            }
            (Some(method), None) => self.notified(connection, method, &params),
            (None, Some(id)) => {
                let question = connection.table().questions.remove(&id.to_string());
                let number = connection.number;
                self.record.add(number, |_| SeenEvent::Response);
                match question {
                    Some(question) => drop(question.send(message)),
                    None => self.violation(connection, format!("unexpected response {message}")),
                }
            }
            (None, None) => self.violation(connection, format!("not a message: {message}")),
        }
    }

    /// The capabilities that the client has declared: with the request, or in the handshake.
    fn capabilities(&self, connection: &Connection, params: &Value) -> Value {
        match self.endpoint.revision.is_modern() {
            true => params["_meta"][format!("{ENVELOPE}clientCapabilities")].clone(),
            false => connection.table().capabilities.clone(),
        }
    }

    fn request(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        mut seen: SeenRequest,
        reply: Reply,
    ) {
        seen.serial = self.record.add(connection.number, |serial| {
            seen.serial = serial;
            SeenEvent::Request(seen.clone())
        });
        let refused = self.refuse(connection, &seen);
        let (stop, stopped) = oneshot::channel();
        let running = Running {
            serial: seen.serial,
            stop,
        };
        let key = self.key(&seen);
        let before = connection.table().running.insert(key, running);
        if before.is_some() {
            let problem = format!("the id {} is in flight already", seen.id);
            self.violation(connection, problem);
        }
        let (state, connection) = (self.clone(), connection.clone());
        tokio::spawn(async move {
            if let Some(error) = refused {
                state.finish(&connection, &seen, Err(error), &reply);
                return;
            }
            state.handle(&connection, seen, reply, stopped).await;
        });
    }

    /// Runs the handler until its end, the cancel, or the close of the response where that is the cancel.
    async fn handle(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        request: SeenRequest,
        reply: Reply,
        stopped: oneshot::Receiver<()>,
    ) {
        let number = connection.number;
        let closes = self.endpoint.cancels_by_close() && !self.has(Fault::IgnoresCancel);
        let closed = async {
            match closes {
                true => reply.closed().await,
                false => std::future::pending().await,
            }
        };
        tokio::select! {
            outcome = answers::answer(self, connection, &request, &reply) => {
                self.finish(connection, &request, outcome, &reply);
            }
            was_cancelled = stopped => {
                self.forget(connection, &request);
                // An error: the connection has ended.
                if was_cancelled.is_ok() {
                    self.record.add(number, |_| SeenEvent::Cancelled(request.serial));
                    self.end_post(&request, &reply);
                }
            }
            () = closed => {
                self.forget(connection, &request);
                self.record.add(number, |_| SeenEvent::Closed(request.serial));
            }
        }
    }

    /// The key of a request in the table of its connection. Over modern HTTP clients share a table, not their ids.
    fn key(&self, request: &SeenRequest) -> String {
        match self.endpoint.cancels_by_close() {
            true => format!("request {}", request.serial),
            false => request.id.to_string(),
        }
    }

    fn forget(&self, connection: &Connection, request: &SeenRequest) {
        let mut table = connection.table();
        let key = self.key(request);
        let running = table.running.get(&key);
        if running.is_some_and(|one| one.serial == request.serial) {
            table.running.remove(&key);
        }
        table.listening.remove(&request.serial);
        drop(table);
        self.record.touch();
    }

    fn finish(
        &self,
        connection: &Connection,
        request: &SeenRequest,
        outcome: Outcome,
        reply: &Reply,
    ) {
        self.forget(connection, request);
        let response = match outcome {
            Ok(mut result) => {
                if self.endpoint.revision.is_modern() {
                    let server_info = json!({"name": "raw-server", "version": "1"});
                    result["_meta"][format!("{ENVELOPE}serverInfo")] = server_info;
                    if result.get("resultType").is_none() {
                        result["resultType"] = json!("complete");
                    }
                }
                json!({"jsonrpc": "2.0", "id": request.id, "result": result})
            }
            Err(error) => json!({"jsonrpc": "2.0", "id": request.id, "error": error}),
        };
        let _ = reply.send(response);
    }

    /// Ends the POST of a cancelled legacy request. On a duplex wire a cancelled request gets no answer.
    fn end_post(&self, request: &SeenRequest, reply: &Reply) {
        if self.endpoint.wire == crate::endpoint::Wire::Http {
            let error = json!({"code": -32800, "message": "request cancelled"});
            let _ = reply.send(json!({"jsonrpc": "2.0", "id": request.id, "error": error}));
        }
    }

    fn notified(&self, connection: &Connection, method: &str, params: &Value) {
        self.record
            .add(connection.number, |_| SeenEvent::Notification {
                method: method.to_owned(),
                params: params.clone(),
            });
        match method {
            "notifications/initialized" => connection.table().is_initialized = true,
            "notifications/cancelled" => {
                let id = params["requestId"].to_string();
                if self.endpoint.cancels_by_close() {
                    self.violation(connection, "a cancel was posted to a modern server");
                } else if !self.has(Fault::IgnoresCancel) {
                    let running = connection.table().running.remove(&id);
                    match running {
                        Some(running) => drop(running.stop.send(())),
                        None => self.violation(connection, format!("a cancel of unknown id {id}")),
                    }
                }
            }
            _ => {}
        }
        self.record.touch();
    }

    /// The error for a request that the revision does not allow; `None` if it does.
    fn refuse(&self, connection: &Connection, request: &SeenRequest) -> Option<Value> {
        let meta = request.params["_meta"].as_object();
        let revision = self.endpoint.revision;
        let method = request.method.as_str();
        if revision.is_modern() {
            let version = meta.and_then(|meta| meta.get(&format!("{ENVELOPE}protocolVersion")));
            if matches!(method, "initialize" | "ping") || method.starts_with("logging/") {
                return Some(json!({"code": -32601, "message": "method not found"}));
            }
            if version != Some(&json!(revision.name())) || !request.capabilities.is_object() {
                self.violation(connection, format!("{method} without its envelope"));
                return Some(
                    json!({"code": -32602, "message": "expected the envelope in `_meta`"}),
                );
            }
            return None;
        }
        if method == "server/discover" {
            return Some(json!({"code": -32601, "message": "method not found"}));
        }
        let related = format!("{ENVELOPE}related-task");
        let foreign = meta.into_iter().flatten().map(|(key, _)| key);
        let mut foreign = foreign.filter(|key| key.starts_with(ENVELOPE) && **key != related);
        if let Some(key) = foreign.next() {
            self.violation(connection, format!("{method} has `_meta.{key}`"));
        }
        if method == "initialize" && !connection.table().capabilities.is_null() {
            self.violation(connection, "a second handshake");
        }
        let is_initialized = connection.table().is_initialized;
        if !is_initialized && !matches!(method, "initialize" | "ping") {
            self.violation(connection, format!("{method} before the handshake"));
        }
        None
    }
}
