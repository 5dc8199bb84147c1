//! Front clients, written with raw bytes: one for each revision over each wire.

mod http;
mod inbox;
mod legacy;
mod lines;
mod modern;
mod wire;

use serde_json::{Value, json};

use crate::endpoint::{Endpoint, Wire};
use crate::middle::FrontAddress;
use crate::upstream::Change;
pub(crate) use inbox::Inbox;
pub(crate) use legacy::LegacyClient;
pub(crate) use modern::ModernClient;
use wire::FrontWire;

/// What a check does with a front client. Each method takes the form that is right for the revision and the wire.
/// While it waits, the client answers the questions that it can.
pub(crate) trait FrontClient {
    /// Makes the handshake, or learns what the server offers.
    async fn open(&mut self) -> Result<(), String>;

    fn inbox(&mut self) -> &mut Inbox;

    /// Waits for something to arrive, and handles it.
    async fn step(&mut self) -> Result<(), String>;

    /// Sends a request.
    fn send(&mut self, method: &'static str, params: Value) -> Call;

    /// Waits for the result of a request. Questions of the server are answered on the way.
    async fn result(&mut self, call: &mut Call) -> Result<Value, String>;

    /// Cancels a request.
    async fn cancel(&mut self, call: &Call, reason: &str) -> Result<(), String>;

    /// Sets the lowest level of log lines that are sent from now on.
    async fn set_log_level(&mut self, level: &'static str) -> Result<(), String>;

    /// Starts to watch for a change, and waits until the server has agreed.
    async fn watch(&mut self, change: Change) -> Result<Watch, String>;

    /// Ends the watch.
    async fn unwatch(&mut self, watch: Watch) -> Result<(), String>;

    /// Calls a tool that runs as a task; returns the id of the task.
    async fn start_task(&mut self, tool: &str) -> Result<String, String>;

    /// Returns the result of a task that has completed.
    async fn task_result(&mut self, id: &str) -> Result<Value, String>;

    /// The capabilities that the server has declared.
    fn offered(&self) -> &Value;

    /// The questions that were answered.
    fn asked(&self) -> &[Value];

    fn call(&mut self, tool: &str, arguments: Value) -> Call {
        self.send("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// Sends a request, and waits for its result.
    async fn request(&mut self, method: &'static str, params: Value) -> Result<Value, String> {
        let mut call = self.send(method, params);
        self.result(&mut call).await
    }

    /// Waits for the next progress of a call.
    async fn progress(&mut self, token: &Value) -> Result<Value, String> {
        loop {
            if let Some(progress) = self.inbox().take_progress(token) {
                return Ok(progress);
            }
            self.step().await?;
        }
    }

    /// Waits for the next log line.
    async fn log_line(&mut self) -> Result<Value, String> {
        loop {
            if let Some(line) = self.inbox().logs.pop_front() {
                return Ok(line);
            }
            self.step().await?;
        }
    }

    /// Waits for the announcement of a change.
    async fn changed(&mut self, watch: &Watch) -> Result<(), String> {
        loop {
            let Some(found) = self.inbox().changes.pop_front() else {
                self.step().await?;
                continue;
            };
            if watch.change.is(&found) {
                return watch.check_id(&found);
            }
        }
    }

    async fn task_status(&mut self, id: &str) -> Result<String, String> {
        let task = self.request("tasks/get", json!({"taskId": id})).await?;
        let status = task["status"].as_str();
        status
            .map(str::to_owned)
            .ok_or_else(|| format!("expected a task, got {task}"))
    }

    async fn cancel_task(&mut self, id: &str) -> Result<(), String> {
        let cancelled = self.request("tasks/cancel", json!({"taskId": id}));
        cancelled.await.map(drop)
    }
}

/// A request that was sent.
#[derive(Debug)]
pub(crate) struct Call {
    /// The id of its last round.
    pub(crate) id: Value,
    method: &'static str,
    params: Value,
}

/// A change that is watched.
#[derive(Debug)]
pub(crate) struct Watch {
    change: Change,
    /// The id of the request that carries it, in the modern era.
    id: Option<Value>,
}

/// Something that a client declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capability {
    Elicitation,
    Sampling,
    /// The extension of 2026-07-28. At 2025-11-25 the server alone declares that tools run as tasks.
    Tasks,
}

/// Opens the wire of an endpoint.
pub(crate) async fn connect(
    endpoint: Endpoint,
    address: FrontAddress,
) -> Result<Box<dyn FrontWire>, String> {
    Ok(match (address, endpoint.wire) {
        (FrontAddress::Pipe(stream), Wire::Stdio) => Box::new(lines::LineWire::new(stream)),
        (FrontAddress::Url(url), Wire::Http) => {
            Box::new(http::StreamableWire::new(url, endpoint.revision))
        }
        (FrontAddress::Url(url), Wire::HttpSse) => Box::new(http::SseWire::open(&url).await?),
        _ => return Err(format!("the middle gave no address for {endpoint}")),
    })
}

impl Watch {
    /// Checks that an announcement names the request that asked for it.
    fn check_id(&self, found: &Value) -> Result<(), String> {
        let named = found["params"]["_meta"].get("io.modelcontextprotocol/subscriptionId");
        match self.id.as_ref() == named {
            true => Ok(()),
            false => Err(format!(
                "expected the subscription {:?}, got {found}",
                self.id
            )),
        }
    }
}

impl Change {
    fn is(self, found: &Value) -> bool {
        match self {
            Self::ToolList => found["method"] == "notifications/tools/list_changed",
            Self::Resource(uri) => found["params"]["uri"] == uri,
        }
    }
}

/// The result of a response, or its error as text.
fn result_of(response: &Value) -> Result<Value, String> {
    match response.get("result") {
        Some(result) => Ok(result.clone()),
        None => Err(response["error"].to_string()),
    }
}

/// The answer to a question; `None` if the client did not declare that it answers such questions.
fn answer(question: &str, capabilities: &[Capability]) -> Option<Value> {
    let (capability, answer) = match question {
        "elicitation/create" => (
            Capability::Elicitation,
            json!({"action": "accept", "content": {"name": "Ada"}}),
        ),
        "sampling/createMessage" => (
            Capability::Sampling,
            json!({"role": "assistant", "model": "test", "content": {"type": "text", "text": "Ada"}}),
        ),
        _ => return None,
    };
    capabilities.contains(&capability).then_some(answer)
}

/// The capabilities as the client declares them, without those of one era.
fn declared(capabilities: &[Capability]) -> Value {
    let mut declared = json!({});
    for capability in capabilities {
        match capability {
            Capability::Elicitation => declared["elicitation"] = json!({}),
            Capability::Sampling => declared["sampling"] = json!({}),
            Capability::Tasks => {}
        }
    }
    declared
}
