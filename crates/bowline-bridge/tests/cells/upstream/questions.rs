//! The tools that put a question to the user or to the model, in the form of the revision.

use std::sync::Arc;

use serde_json::{Value, json};

use super::answers::{Outcome, text_result};
use super::connection::{Connection, Reply};
use super::{Fault, SeenRequest, State};

/// A question of a tool.
#[derive(Clone, Copy, Debug)]
pub(super) enum Question {
    Elicitation,
    Sampling,
}

impl Question {
    fn capability(self) -> &'static str {
        match self {
            Self::Elicitation => "elicitation",
            Self::Sampling => "sampling",
        }
    }

    fn request(self) -> (&'static str, Value) {
        match self {
            Self::Elicitation => (
                "elicitation/create",
                json!({"message": "Who are you?", "requestedSchema": {
                    "type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"],
                }}),
            ),
            Self::Sampling => (
                "sampling/createMessage",
                json!({"maxTokens": 16, "messages": [
                    {"role": "user", "content": {"type": "text", "text": "Who are you?"}},
                ]}),
            ),
        }
    }

    /// The name in an answer of the client.
    fn name(self, answer: &Value) -> Option<&str> {
        match self {
            Self::Elicitation => answer["content"]["name"].as_str(),
            Self::Sampling => answer["content"]["text"].as_str(),
        }
    }
}

/// Answers a call of a tool that asks for a name.
pub(super) async fn ask(
    state: &Arc<State>,
    connection: &Connection,
    request: &SeenRequest,
    question: Question,
    reply: &Reply,
) -> Outcome {
    if state.has(Fault::NeverAsks) {
        return Ok(text_result("Hello, Ada"));
    }
    let capability = question.capability();
    if request.capabilities.get(capability).is_none() {
        let missing = json!({"requiredCapabilities": {capability: {}}});
        let message = format!("the client has no {capability}");
        let code = match state.endpoint.revision.is_modern() {
            true => -32021,
            false => -32603,
        };
        return Err(json!({"code": code, "message": message, "data": missing}));
    }
    let answer = match state.endpoint.revision.is_modern() {
        true => match answer_of_retry(state, connection, request)? {
            Some(answer) => answer,
            None => return Ok(input_required(question, request)),
        },
        false => ask_by_request(connection, question, reply).await?,
    };
    match question.name(&answer) {
        Some(name) => Ok(text_result(&format!("Hello, {name}"))),
        None => Err(json!({"code": -32603, "message": format!("unexpected answer {answer}")})),
    }
}

/// Sends a request to the client on the stream of the call, and waits for its response.
async fn ask_by_request(
    connection: &Connection,
    question: Question,
    reply: &Reply,
) -> Result<Value, Value> {
    let (method, params) = question.request();
    let (id, answered) = connection.ask();
    let asked = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    let _ = reply.send(asked);
    let lost = |_| json!({"code": -32603, "message": "the client went away"});
    let response = answered.await.map_err(lost)?;
    match response.get("result") {
        Some(result) => Ok(result.clone()),
        None => Err(json!({"code": -32603, "message": format!("the client refused: {response}")})),
    }
}

fn input_required(question: Question, request: &SeenRequest) -> Value {
    let (method, params) = question.request();
    json!({
        "resultType": "input_required",
        "inputRequests": {"who": {"method": method, "params": params}},
        "requestState": state_of(request.serial),
    })
}

/// The answer in a retry; `None` if this is the first round.
fn answer_of_retry(
    state: &State,
    connection: &Connection,
    request: &SeenRequest,
) -> Result<Option<Value>, Value> {
    let Some(given) = request.params.get("requestState") else {
        return Ok(None);
    };
    let issued = |serial| *given == state_of(serial);
    if !(0..request.serial).any(issued) {
        let message = format!("requestState {given} was never issued");
        state.violation(connection, message.clone());
        return Err(json!({"code": -32602, "message": message}));
    }
    Ok(Some(request.params["inputResponses"]["who"].clone()))
}

fn state_of(serial: usize) -> Value {
    json!(format!("the state of round {serial}"))
}
