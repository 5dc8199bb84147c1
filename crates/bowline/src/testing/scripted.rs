//! A peer that follows a script, at the other end of a wire in memory.

use std::fmt::Debug;
use std::future::poll_fn;
use std::time::Duration;

use bowline_core::era::Dialect;
use bowline_core::{Message, Notification, RawRequest, Response};
use bowline_types::{ErrorCode, Json, RequestId, RpcError};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::Server;
use crate::wire::{Memory, Received, Wire, memory};

/// Makes a wire for a client or a server, and the scripted peer at its other end.
pub fn scripted() -> (Memory, Scripted) {
    let (near, far) = memory();
    (near, Scripted { wire: far })
}

/// Serves `server` to a scripted client. A task does it, which ends with the wire.
///
/// # Panics
///
/// Outside of a runtime.
pub fn scripted_client(server: &Server) -> Scripted {
    let (wire, client) = scripted();
    tokio::spawn(server.clone().serve(wire));
    client
}

/// A peer that does what a test tells it to, and panics with what it saw if that was not expected.
///
/// It waits for at most a minute, which under a paused clock passes at once when nothing else happens.
///
/// # Examples
///
/// ```
/// use bowline::{Client, testing};
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> bowline::Result<()> {
/// let (wire, mut server) = testing::scripted();
/// let client = Client::over(wire).speaking("2026-07-28").await?;
///
/// let call = client.call_tool("slow", ()).start();
/// let id = server.expect("tools/call").await.hold();
/// drop(call);
///
/// assert_eq!(server.expect_cancel(&id).await, "caller cancelled");
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "dropping it closes the wire"]
pub struct Scripted {
    wire: Memory,
}

/// A request that was expected and came.
#[derive(Debug)]
#[must_use = "a request wants an answer"]
pub struct Expected<'a> {
    script: &'a mut Scripted,
    id: RequestId,
    params: Value,
}

/// What either side does.
impl Scripted {
    /// Waits for a request for `method`.
    ///
    /// # Panics
    ///
    /// If anything else comes, or nothing.
    ///
    /// # Cancel safety
    ///
    /// Safe: a message is taken only when it is returned.
    pub async fn expect(&mut self, method: &str) -> Expected<'_> {
        match self.receive().await {
            Some(Message::Request(request)) if request.method == method => {
                let RawRequest { id, params, .. } = request;
                Expected {
                    script: self,
                    id,
                    params: value(params.map(Json::from)),
                }
            }
            other => unexpected(&format!("the request `{method}`"), &other),
        }
    }

    /// Waits for a notification, and returns its params.
    ///
    /// # Panics
    ///
    /// If anything else comes, or nothing.
    ///
    /// # Cancel safety
    ///
    /// Safe: a message is taken only when it is returned.
    pub async fn expect_notification(&mut self, method: &str) -> Value {
        match self.receive().await {
            Some(Message::Notification(heard)) if heard.method == method => value(heard.params),
            other => unexpected(&format!("the notification `{method}`"), &other),
        }
    }

    /// Waits for the cancel of the request with this id, and returns the reason.
    ///
    /// # Panics
    ///
    /// If anything else comes, or nothing.
    ///
    /// # Cancel safety
    ///
    /// Safe: a message is taken only when it is returned.
    pub async fn expect_cancel(&mut self, id: &RequestId) -> String {
        let params = self.expect_notification("notifications/cancelled").await;
        let expected = json!(id);
        assert_eq!(
            params["requestId"], expected,
            "another request was cancelled"
        );
        params["reason"].as_str().unwrap_or_default().to_owned()
    }

    /// Waits a while for nothing to come; the end of the wire is nothing too.
    ///
    /// # Panics
    ///
    /// If something comes.
    ///
    /// # Cancel safety
    ///
    /// Safe: a message is taken only when it is returned.
    pub async fn expect_nothing(&mut self) {
        if let Some(message) = self.receive().await {
            unexpected("nothing", &message);
        }
    }

    /// Waits for the next message, whatever it is.
    ///
    /// # Panics
    ///
    /// If nothing comes.
    ///
    /// # Cancel safety
    ///
    /// Safe: a message is taken only when it is returned.
    pub async fn hear(&mut self) -> Value {
        match self.receive().await {
            Some(message) => serde_json::from_slice(&message.to_frame()).unwrap_or(Value::Null),
            None => unexpected("a message", &"nothing"),
        }
    }

    /// Says this, which need not be a message of the protocol.
    pub fn say(&mut self, frame: &Value) {
        self.say_text(&frame.to_string());
    }

    /// Says this, which need not even be JSON.
    pub fn say_text(&mut self, frame: &str) {
        self.wire
            .send_frame(Bytes::copy_from_slice(frame.as_bytes()));
    }

    /// Sends a notification.
    pub fn notify(&mut self, method: &str, params: Value) {
        let params = Some(Json::from(params));
        self.send(Notification::new(method.to_owned(), params));
    }

    /// Answers the request with this id.
    pub fn answer(&mut self, id: RequestId, result: Value) {
        self.respond(id, Ok(result.into()));
    }

    fn respond(&mut self, id: RequestId, outcome: Result<Json, RpcError>) {
        let id = Some(id);
        self.send(Response { id, outcome });
    }

    /// The wire in memory has room for any script; a peer that does not read loses nothing.
    fn send(&mut self, message: impl Into<Message>) {
        self.wire.send(&message.into());
    }

    /// The next message; `None` if there is none.
    async fn receive(&mut self) -> Option<Message> {
        let next = poll_fn(|cx| self.wire.poll_receive(cx));
        match tokio::time::timeout(PATIENCE, next).await {
            Ok(Received::Frame(frame)) => match Message::decode(&frame) {
                Ok(message) => Some(message),
                Err(malformed) => unexpected("a message", &malformed),
            },
            Ok(Received::End) | Err(_) => None,
            Ok(other) => unexpected("a message", &other),
        }
    }
}

/// What a scripted server does.
impl Scripted {
    /// Answers the legacy handshake for `version`, with these capabilities.
    ///
    /// # Panics
    ///
    /// If the client does not shake hands.
    ///
    /// # Cancel safety
    ///
    /// Safe, but what was answered stays answered.
    pub async fn shake_hands(&mut self, version: &str, capabilities: Value) {
        self.expect("initialize").await.answer(json!({
            "protocolVersion": version,
            "capabilities": capabilities,
            "serverInfo": {"name": "scripted", "version": "1.0.0"},
        }));
        self.expect_notification("notifications/initialized").await;
    }
}

/// What a scripted client does.
impl Scripted {
    /// Opens the connection as this version does, with these capabilities.
    ///
    /// # Panics
    ///
    /// If the server does not go along.
    ///
    /// # Cancel safety
    ///
    /// Safe, but what was said stays said.
    pub async fn open(&mut self, dialect: &Dialect, capabilities: Value) {
        if dialect.is_modern() {
            return;
        }
        let introduction = json!({
            "protocolVersion": dialect.version,
            "capabilities": capabilities,
            "clientInfo": {"name": "scripted", "version": "1.0.0"},
        });
        let answer = self.ask("opening", "initialize", introduction).await;
        assert_eq!(answer["result"]["protocolVersion"], dialect.version);
        self.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    }

    /// Sends a request, with what this version adds to every request.
    pub fn request(
        &mut self,
        dialect: &Dialect,
        id: impl Into<RequestId>,
        method: &str,
        mut params: Value,
    ) {
        if dialect.is_modern() {
            let own = params["_meta"].as_object().cloned().unwrap_or_default();
            params["_meta"] = envelope(dialect);
            for (key, value) in own {
                params["_meta"][key] = value;
            }
        }
        let id: RequestId = id.into();
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
    }

    /// Sends a request as it is, and waits for its answer.
    ///
    /// # Panics
    ///
    /// If something else comes first, or nothing.
    ///
    /// # Cancel safety
    ///
    /// Safe, but what was said stays said.
    pub async fn ask(&mut self, id: &str, method: &str, params: Value) -> Value {
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        let answer = self.hear().await;
        assert_eq!(answer["id"], id, "the answer to {method}, but saw {answer}");
        answer
    }
}

impl Expected<'_> {
    /// The id of the request.
    #[must_use]
    pub fn id(&self) -> RequestId {
        self.id.clone()
    }

    /// The params of the request; `null` if it has none.
    #[must_use]
    pub fn params(&self) -> &Value {
        &self.params
    }

    /// Says something before the answer.
    pub fn notify(self, method: &str, params: Value) -> Self {
        self.script.notify(method, params);
        self
    }

    /// Answers.
    pub fn answer(self, result: Value) {
        self.script.respond(self.id, Ok(result.into()));
    }

    /// Says no.
    pub fn refuse(self, code: ErrorCode, message: &str) {
        let error = RpcError::new(code, message);
        self.script.respond(self.id, Err(error));
    }

    /// Acknowledges a subscription, for all that it wants, and returns its id.
    #[must_use = "changes are told under this id"]
    pub fn acknowledge(self) -> RequestId {
        let params = json!({
            "notifications": self.params["notifications"],
            "_meta": {"io.modelcontextprotocol/subscriptionId": self.id},
        });
        self.script
            .notify("notifications/subscriptions/acknowledged", params);
        self.id
    }

    /// Leaves the request without an answer, and returns its id.
    #[must_use = "it may be answered or cancelled later"]
    pub fn hold(self) -> RequestId {
        self.id
    }
}

/// What a modern request says of its sender.
fn envelope(dialect: &Dialect) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": dialect.version,
        "io.modelcontextprotocol/clientInfo": {"name": "scripted", "version": "1.0.0"},
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

fn value(params: Option<Json>) -> Value {
    let decoded = params.map(|params| params.decode());
    decoded.and_then(Result::ok).unwrap_or(Value::Null)
}

fn unexpected(expected: &str, seen: &impl Debug) -> ! {
    panic!("expected {expected}, and saw {seen:?}")
}

const PATIENCE: Duration = Duration::from_secs(60);
