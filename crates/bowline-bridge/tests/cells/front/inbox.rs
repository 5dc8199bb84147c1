//! What a front client has sent and received, in both eras: answers, progress, logs, changes and questions.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Value, json};

use super::wire::{Delivery, FrontWire, Incoming};
use crate::endpoint::{Endpoint, Wire};

pub(crate) struct Inbox {
    pub(crate) endpoint: Endpoint,
    pub(crate) wire: Box<dyn FrontWire>,
    next_id: i64,
    sent: BTreeMap<String, Sent>,
    progress: VecDeque<Value>,
    pub(crate) logs: VecDeque<Value>,
    /// Announcements of changes.
    pub(crate) changes: VecDeque<Value>,
    /// The subscriptions that the server acknowledged.
    pub(crate) acknowledged: Vec<Value>,
    /// Requests of the server.
    pub(crate) questions: VecDeque<Value>,
    pub(crate) violations: Vec<String>,
}

#[derive(Debug)]
struct Sent {
    token: Option<Value>,
    state: SentState,
}

#[derive(Debug)]
enum SentState {
    Waiting,
    /// Its response, until it is taken.
    Answered(Option<Value>),
    Cancelled,
}

impl Inbox {
    pub(crate) fn new(endpoint: Endpoint, wire: Box<dyn FrontWire>) -> Self {
        Self {
            endpoint,
            wire,
            next_id: 1,
            sent: BTreeMap::new(),
            progress: VecDeque::new(),
            logs: VecDeque::new(),
            changes: VecDeque::new(),
            acknowledged: Vec::new(),
            questions: VecDeque::new(),
            violations: Vec::new(),
        }
    }

    /// Sends a request; returns its id.
    pub(crate) fn request(&mut self, method: &str, params: &Value) -> Value {
        let id = json!(self.next_id);
        self.next_id += 1;
        let token = params["_meta"].get("progressToken").cloned();
        let state = SentState::Waiting;
        self.sent.insert(id.to_string(), Sent { token, state });
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.wire.request(message);
        id
    }

    pub(crate) async fn notify(&mut self, method: &str, params: &Value) -> Result<(), String> {
        let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        wait(self.wire.post(message)).await
    }

    /// Marks a request as cancelled: nothing may arrive for it from now on.
    pub(crate) fn cancelled(&mut self, id: &Value) {
        if let Some(sent) = self.sent.get_mut(&id.to_string()) {
            sent.state = SentState::Cancelled;
        }
    }

    /// Takes the response to a request, if it is there.
    pub(crate) fn take_response(&mut self, id: &Value) -> Option<Value> {
        match &mut self.sent.get_mut(&id.to_string())?.state {
            SentState::Answered(response) => response.take(),
            _ => None,
        }
    }

    pub(crate) fn take_progress(&mut self, token: &Value) -> Option<Value> {
        let mut progress = self.progress.iter();
        let at = progress.position(|one| one["progressToken"] == *token)?;
        self.progress.remove(at)
    }

    /// Waits for something to arrive, and files it.
    pub(crate) async fn receive(&mut self) -> Result<(), String> {
        match self.wire.incoming().recv().await {
            Some(Incoming::Message { within, message }) => self.file(within.as_ref(), message),
            Some(Incoming::Ended(id)) => self.ended(&id),
            Some(Incoming::Failed(reason)) => return Err(reason),
            None => return Err("the wire has ended".to_owned()),
        }
        Ok(())
    }

    fn file(&mut self, within: Option<&Value>, message: Value) {
        self.check_envelope(&message);
        match (message["method"].as_str(), message.get("id")) {
            (None, Some(_)) => self.response(message),
            (Some(_), Some(_)) => self.questions.push_back(message),
            (Some(method), None) => {
                let (method, params) = (method.to_owned(), message["params"].clone());
                self.notification(within, &method, params);
            }
            (None, None) => self.violations.push(format!("not a message: {message}")),
        }
    }

    fn response(&mut self, message: Value) {
        let terminator = self.endpoint.wire == Wire::Http && message["error"]["code"] == -32800;
        let problem = match self.sent.get_mut(&message["id"].to_string()) {
            None => "an answer to no request",
            Some(sent) => match sent.state {
                SentState::Waiting => {
                    sent.state = SentState::Answered(Some(message));
                    return;
                }
                SentState::Answered(_) => "a second answer",
                SentState::Cancelled if terminator => return,
                SentState::Cancelled => "an answer to a cancelled request",
            },
        };
        self.violations.push(format!("{problem}: {message}"));
    }

    fn notification(&mut self, within: Option<&Value>, method: &str, params: Value) {
        // Over modern HTTP each message of a subscription comes on the response of its request.
        let subscription = params["_meta"].get("io.modelcontextprotocol/subscriptionId");
        if within.is_some() && subscription.is_some() && within != subscription {
            let problem = format!("{method} on the response of request {within:?}: {params}");
            self.violations.push(problem);
        }
        match method {
            "notifications/progress" => self.progressed(within, params),
            "notifications/message" => self.logs.push_back(params),
            "notifications/subscriptions/acknowledged" => {
                let id = &params["_meta"]["io.modelcontextprotocol/subscriptionId"];
                self.acknowledged.push(id.clone());
            }
            "notifications/tools/list_changed" | "notifications/resources/updated" => {
                let change = json!({"method": method, "params": params});
                self.changes.push_back(change);
            }
            // Of a task, or of another list.
            _ => {}
        }
    }

    fn progressed(&mut self, within: Option<&Value>, params: Value) {
        let token = Some(&params["progressToken"]);
        let within = within.map(Value::to_string);
        let mut sent = self.sent.iter();
        let problem = match sent.find(|(_, sent)| sent.token.as_ref() == token) {
            None => "progress of no request",
            Some((id, _)) if within.as_ref().is_some_and(|within| within != id) => {
                "progress on the response of another request"
            }
            Some((_, sent)) => match sent.state {
                SentState::Waiting => return self.progress.push_back(params),
                SentState::Answered(_) => "progress after the answer",
                SentState::Cancelled => "progress of a cancelled request",
            },
        };
        self.violations.push(format!("{problem}: {params}"));
    }

    /// A request whose response ended without an answer gets one here.
    fn ended(&mut self, id: &Value) {
        let Some(sent) = self.sent.get_mut(&id.to_string()) else {
            return;
        };
        if matches!(sent.state, SentState::Waiting) {
            let message = "the response ended without an answer";
            let error = json!({"id": id, "error": {"code": 0, "message": message}});
            sent.state = SentState::Answered(Some(error));
        }
    }

    /// Checks what only one era may put into a message.
    fn check_envelope(&mut self, message: &Value) {
        let result = &message["result"];
        let mut add = |problem: String| self.violations.push(format!("{problem}: {message}"));
        if self.endpoint.revision.is_modern() {
            if result.is_object() && result.get("resultType").is_none() {
                add("a result without `resultType`".to_owned());
            }
            if message.get("method").is_some() && message.get("id").is_some() {
                add("a request to a modern client".to_owned());
            }
            return;
        }
        for name in ["resultType", "ttlMs", "cacheScope"] {
            if result.get(name).is_some() {
                add(format!("`{name}` for a legacy client"));
            }
        }
        let metas = [&result["_meta"], &message["params"]["_meta"]];
        let keys = metas.iter().filter_map(|meta| meta.as_object());
        for key in keys.flat_map(|meta| meta.keys()) {
            if key.starts_with("io.modelcontextprotocol/") && !key.ends_with("/related-task") {
                add(format!("`_meta.{key}` for a legacy client"));
            }
        }
    }
}

/// Waits until a message is delivered.
pub(crate) async fn wait(delivery: Delivery) -> Result<(), String> {
    let lost = |_| "the wire has ended".to_owned();
    delivery.await.map_err(lost)?
}
