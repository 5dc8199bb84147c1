//! Recordings of small conversations, and the clients that the tests connect.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::client::{ClientBuilder, Host};
use bowline::types::ElicitResult;
use bowline::{Client, Json};
use bowline_recording::{
    Event, EventKind, Header, Mock, Recording, RecordingWriter, Side, Transport,
};
use serde_json::{Value, json};

/// The era of a recording, or of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    Modern,
    Legacy,
}

pub(crate) const ERAS: [Era; 2] = [Era::Modern, Era::Legacy];

/// Every era of a recording with every era of a client.
pub(crate) const PAIRS: [(Era, Era); 4] = [
    (Era::Modern, Era::Modern),
    (Era::Modern, Era::Legacy),
    (Era::Legacy, Era::Modern),
    (Era::Legacy, Era::Legacy),
];

impl Era {
    pub(crate) fn version(self) -> &'static str {
        match self {
            Self::Modern => "2026-07-28",
            Self::Legacy => "2025-11-25",
        }
    }
}

/// A recording over stdio while it is written. Each message takes a second.
pub(crate) struct Recorded {
    pub(crate) era: Era,
    events: Vec<Event>,
    last_id: i64,
}

impl Recorded {
    /// Begins with a handshake.
    pub(crate) fn new(era: Era) -> Self {
        let mut recorded = Self::without_handshake(era);
        let capabilities = json!({
            "tools": {"listChanged": true}, "prompts": {}, "logging": {},
            "resources": {"subscribe": true},
        });
        let server = json!({"name": "recorded", "version": "7"});
        match era {
            Era::Modern => {
                let id = recorded.request("server/discover", json!({}));
                let result = json!({
                    "supportedVersions": ["2026-07-28"], "capabilities": capabilities,
                    "instructions": "Be kind.", "ttlMs": 0, "cacheScope": "private",
                    "_meta": {"io.modelcontextprotocol/serverInfo": server},
                });
                recorded.answer(id, result);
            }
            Era::Legacy => {
                let params = json!({
                    "protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}},
                    "clientInfo": {"name": "client", "version": "1"},
                });
                let id = recorded.request("initialize", params);
                let result = json!({
                    "protocolVersion": "2025-11-25", "capabilities": capabilities,
                    "instructions": "Be kind.", "serverInfo": server,
                });
                recorded.answer(id, result);
                recorded.client(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
            }
        }
        recorded
    }

    pub(crate) fn without_handshake(era: Era) -> Self {
        Self {
            era,
            events: Vec::new(),
            last_id: 0,
        }
    }

    pub(crate) fn client(&mut self, message: Value) {
        self.message(Side::Client, message);
    }

    pub(crate) fn server(&mut self, message: Value) {
        self.message(Side::Server, message);
    }

    fn message(&mut self, from: Side, message: Value) {
        let message = Json::from(message);
        self.event(1, EventKind::Message { from, message });
    }

    /// Adds an event, one second after the last one.
    pub(crate) fn event(&mut self, connection: u64, kind: EventKind) {
        let at = Duration::from_secs(self.events.len() as u64);
        self.events.push(Event::new(at, connection, kind));
    }

    /// Adds a request, with what each request of the era has, and returns its id.
    pub(crate) fn request(&mut self, method: &str, mut params: Value) -> i64 {
        self.last_id += 1;
        if self.era == Era::Modern {
            for (key, value) in [
                ("protocolVersion", json!("2026-07-28")),
                ("clientInfo", json!({"name": "client", "version": "1"})),
                ("clientCapabilities", json!({"elicitation": {}})),
            ] {
                params["_meta"][format!("io.modelcontextprotocol/{key}")] = value;
            }
        }
        let id = self.last_id;
        self.client(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    pub(crate) fn answer(&mut self, id: i64, mut result: Value) {
        if self.era == Era::Modern && result.get("resultType").is_none() {
            result["resultType"] = json!("complete");
        }
        self.server(json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    pub(crate) fn refuse(&mut self, id: i64, error: Value) {
        self.server(json!({"jsonrpc": "2.0", "id": id, "error": error}));
    }

    pub(crate) fn exchange(&mut self, method: &str, params: Value, result: Value) {
        let id = self.request(method, params);
        self.answer(id, result);
    }

    /// Adds a call of a tool that answers with a text.
    pub(crate) fn call(&mut self, tool: &str, arguments: Value, text: &str) {
        self.exchange("tools/call", call(tool, arguments), content(text));
    }

    /// Adds a call of a tool that asks for a name, in the way of the era.
    pub(crate) fn ask(&mut self, arguments: Value, message: &str, answer: Value, text: &str) {
        let params = call("ask", arguments);
        let question = json!({
            "message": message,
            "requestedSchema": {
                "type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"],
            },
        });
        let id = self.request("tools/call", params.clone());
        let id = self.question(id, params, question, answer);
        self.answer(id, content(text));
    }

    /// Adds a question about a call with its answer. Returns the id of the request that is to be answered.
    pub(crate) fn question(
        &mut self,
        id: i64,
        params: Value,
        question: Value,
        answer: Value,
    ) -> i64 {
        match self.era {
            Era::Legacy => {
                let asked = format!("question of {id}, {}", self.events.len());
                self.server(json!({
                    "jsonrpc": "2.0", "id": asked, "method": "elicitation/create",
                    "params": question,
                }));
                self.client(json!({"jsonrpc": "2.0", "id": asked, "result": answer}));
                id
            }
            Era::Modern => {
                let state = format!("state of {id}");
                let question = json!({"method": "elicitation/create", "params": question});
                let result = json!({
                    "resultType": "input_required", "inputRequests": {"name": question},
                    "requestState": state,
                });
                self.answer(id, result);
                let mut retry = params;
                retry["inputResponses"] = json!({"name": answer});
                retry["requestState"] = json!(state);
                self.request("tools/call", retry)
            }
        }
    }

    pub(crate) fn recording(self) -> Recording {
        recording(Transport::Stdio, self.events)
    }

    pub(crate) fn mock(self) -> Mock {
        Mock::new(&self.recording())
    }
}

/// Writes the events, and reads them as a file is read.
pub(crate) fn recording(transport: Transport, events: Vec<Event>) -> Recording {
    let mut file = Vec::new();
    let mut writer = RecordingWriter::new(&mut file, &Header::new(transport)).unwrap();
    writer.write_all(&events).unwrap();
    Recording::parse(&file).unwrap()
}

pub(crate) fn call(tool: &str, arguments: Value) -> Value {
    json!({"name": tool, "arguments": arguments})
}

pub(crate) fn content(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

/// Connects a client of an era in process.
pub(crate) async fn connect(mock: &Mock, era: Era) -> Client {
    builder(mock, era).await.unwrap()
}

pub(crate) fn builder(mock: &Mock, era: Era) -> ClientBuilder {
    Client::in_process(mock).protocol_version(era.version())
}

/// A user who gives these answers, one after the other, and then cancels.
#[derive(Clone, Default)]
pub(crate) struct User {
    answers: Arc<Mutex<VecDeque<ElicitResult>>>,
    /// The messages of the questions.
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
}

impl User {
    pub(crate) fn new(answers: impl IntoIterator<Item = Value>) -> Self {
        let answers = answers
            .into_iter()
            .map(|it| serde_json::from_value(it).unwrap());
        Self {
            answers: Arc::new(Mutex::new(answers.collect())),
            asked: Arc::default(),
        }
    }

    pub(crate) fn host(&self) -> Host {
        let user = self.clone();
        Host::new().elicitation(move |form| {
            user.asked.lock().unwrap().push(form.message);
            let answer = user.answers.lock().unwrap().pop_front();
            let cancel = || serde_json::from_value(json!({"action": "cancel"})).unwrap();
            let answer = answer.unwrap_or_else(cancel);
            async move { answer }
        })
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

pub(crate) fn accept(name: &str) -> Value {
    json!({"action": "accept", "content": {"name": name}})
}
