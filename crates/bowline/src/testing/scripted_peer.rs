//! [`ScriptedPeer`], a peer controlled by a test, at the other end of an in-memory wire. The test calls its methods to
//! receive and send single messages.

use std::fmt::Debug;
use std::future::poll_fn;
use std::time::Duration;

use bowline_core::era::Dialect;
use bowline_core::{Message, Notification, RawRequest, Response};
use bowline_types::{ErrorCode, Json, RequestId, RpcError};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::error::Elapsed;

use crate::Server;
use crate::wire::{Memory, Received, Wire, memory};

/// Returns an in-memory wire for a client or a server, and the scripted peer at its other end.
pub fn scripted_peer() -> (Memory, ScriptedPeer) {
    let (near, far) = memory();
    (near, ScriptedPeer { wire: far })
}

/// Serves `server` in a spawned task, which ends with the wire, and returns its scripted client.
///
/// # Panics
///
/// Outside of a tokio runtime.
pub fn scripted_client(server: &Server) -> ScriptedPeer {
    let (wire, client) = scripted_peer();
    tokio::spawn(server.clone().serve(wire));
    client
}

/// A peer that is controlled by a test, and panics if it receives an unexpected message.
///
/// Each expectation waits for at most a minute; with tokio's paused clock it passes at once when all tasks are idle.
///
/// # Examples
///
/// ```
/// use bowline::{Client, testing};
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> bowline::Result<()> {
/// let (wire, mut server) = testing::scripted_peer();
/// let client = Client::from_wire(wire).protocol_version("2026-07-28").await?;
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
pub struct ScriptedPeer {
    wire: Memory,
}

/// An expected request that was received.
#[derive(Debug)]
#[must_use = "call `answer`, `answer_error`, `acknowledge` or `hold`"]
pub struct ExpectedRequest<'a> {
    peer: &'a mut ScriptedPeer,
    id: RequestId,
    params: Value,
}

/// Methods of a scripted client or server.
impl ScriptedPeer {
    /// Waits for a request for `method`.
    ///
    /// # Panics
    ///
    /// If another message is received, or none.
    ///
    /// # Cancel safety
    ///
    /// Safe: a message is removed only when it is returned.
    pub async fn expect(&mut self, method: &str) -> ExpectedRequest<'_> {
        match self.receive().await {
            Some(Message::Request(request)) if request.method == method => {
                let RawRequest { id, params, .. } = request;
                ExpectedRequest {
                    peer: self,
                    id,
                    params: params_value(params.map(Json::from)),
                }
            }
            other => unexpected(&format!("the request `{method}`"), &other),
        }
    }

    /// Waits for a notification, and returns its params.
    ///
    /// # Panics
    ///
    /// If another message is received, or none.
    ///
    /// # Cancel safety
    ///
    /// Safe: a message is removed only when it is returned.
    pub async fn expect_notification(&mut self, method: &str) -> Value {
        match self.receive().await {
            Some(Message::Notification(notification)) if notification.method == method => {
                params_value(notification.params)
            }
            other => unexpected(&format!("the notification `{method}`"), &other),
        }
    }

    /// Waits for `notifications/cancelled` for the request with this id, and returns the reason.
    ///
    /// # Panics
    ///
    /// If another message is received, or none.
    ///
    /// # Cancel safety
    ///
    /// Safe: a message is removed only when it is returned.
    pub async fn expect_cancel(&mut self, id: &RequestId) -> String {
        let params = self.expect_notification("notifications/cancelled").await;
        let expected = json!(id);
        assert_eq!(
            params["requestId"], expected,
            "unexpected `requestId` in `notifications/cancelled`"
        );
        params["reason"].as_str().unwrap_or_default().to_owned()
    }

    /// Waits for a minute, or until the wire ends, and checks that no message is received.
    ///
    /// # Panics
    ///
    /// If a message is received.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropping the future removes no message.
    pub async fn expect_nothing(&mut self) {
        if let Some(message) = self.receive().await {
            unexpected("no message", &message);
        }
    }

    /// Waits for the next message of any kind.
    ///
    /// # Panics
    ///
    /// If none is received.
    ///
    /// # Cancel safety
    ///
    /// Safe: a message is removed only when it is returned.
    pub async fn next_message(&mut self) -> Value {
        match self.receive().await {
            Some(message) => message_value(&message),
            None => unexpected("a message", &"none"),
        }
    }

    /// Receives all messages until the other side closes the wire.
    ///
    /// # Panics
    ///
    /// If the wire stays open for a minute without a message.
    ///
    /// # Cancel safety
    ///
    /// Not safe: dropping the future loses the messages received so far.
    pub async fn receive_to_end(&mut self) -> Vec<Value> {
        let mut messages = Vec::new();
        loop {
            match self.receive_or_end().await {
                Ok(Some(message)) => messages.push(message_value(&message)),
                Ok(None) => return messages,
                Err(elapsed) => unexpected("the end of the wire", &elapsed),
            }
        }
    }

    /// Closes the sending direction. The other side can still send.
    ///
    /// # Cancel safety
    ///
    /// Safe: the direction is closed by the first poll.
    pub async fn close(&mut self) {
        // An in-memory wire always closes.
        let _ = poll_fn(|cx| self.wire.poll_close(cx)).await;
    }

    /// Sends a JSON frame, which need not be a valid message.
    pub fn send_json(&mut self, frame: &Value) {
        self.send_text(&frame.to_string());
    }

    /// Sends a frame, which need not be valid JSON.
    pub fn send_text(&mut self, frame: &str) {
        self.wire
            .send_frame(Bytes::copy_from_slice(frame.as_bytes()));
    }

    /// Sends a notification.
    pub fn notify(&mut self, method: &str, params: Value) {
        let params = Some(Json::from(params));
        self.send(Notification::new(method.to_owned(), params));
    }

    /// Sends the result of the request with this id.
    pub fn answer(&mut self, id: RequestId, result: Value) {
        self.respond(id, Ok(result.into()));
    }

    fn respond(&mut self, id: RequestId, outcome: Result<Json, RpcError>) {
        let id = Some(id);
        self.send(Response { id, outcome });
    }

    /// Sends without `poll_ready`: the in-memory wire queues frames beyond its bound, so none is lost.
    fn send(&mut self, message: impl Into<Message>) {
        self.wire.send(&message.into());
    }

    /// Returns the next message; `None` at the end of the wire, or after a minute.
    async fn receive(&mut self) -> Option<Message> {
        self.receive_or_end().await.unwrap_or_default()
    }

    /// Returns the next message; `None` at the end of the wire.
    async fn receive_or_end(&mut self) -> Result<Option<Message>, Elapsed> {
        let next = poll_fn(|cx| self.wire.poll_receive(cx));
        match tokio::time::timeout(EXPECT_TIMEOUT, next).await? {
            Received::Frame(frame) => match Message::decode(&frame) {
                Ok(message) => Ok(Some(message)),
                Err(malformed) => unexpected("a message", &malformed),
            },
            Received::End => Ok(None),
            other => unexpected("a message", &other),
        }
    }
}

/// Methods of a scripted server.
impl ScriptedPeer {
    /// Performs the legacy handshake as a server of `version` with these capabilities.
    ///
    /// # Panics
    ///
    /// If the client does not perform it.
    ///
    /// # Cancel safety
    ///
    /// Safe, but sent messages stay sent.
    pub async fn accept_handshake(&mut self, version: &str, capabilities: Value) {
        self.expect("initialize").await.answer(json!({
            "protocolVersion": version,
            "capabilities": capabilities,
            "serverInfo": {"name": "scripted", "version": "1.0.0"},
        }));
        self.expect_notification("notifications/initialized").await;
    }
}

/// Methods of a scripted client.
impl ScriptedPeer {
    /// Performs the handshake of a legacy version, with these capabilities. A modern version has none.
    ///
    /// # Panics
    ///
    /// If the server does not perform it.
    ///
    /// # Cancel safety
    ///
    /// Safe, but sent messages stay sent.
    pub async fn perform_handshake(&mut self, dialect: &Dialect, capabilities: Value) {
        if dialect.is_modern() {
            return;
        }
        let params = json!({
            "protocolVersion": dialect.version,
            "capabilities": capabilities,
            "clientInfo": {"name": "scripted", "version": "1.0.0"},
        });
        let answer = self.call("opening", "initialize", params).await;
        assert_eq!(answer["result"]["protocolVersion"], dialect.version);
        self.send_json(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    }

    /// Sends a request with the `_meta` that this version requires, and does not wait for the response.
    /// [`call`](Self::call) waits, but adds no `_meta`.
    pub fn request(
        &mut self,
        dialect: &Dialect,
        id: impl Into<RequestId>,
        method: &str,
        mut params: Value,
    ) {
        if dialect.is_modern() {
            let own = params["_meta"].as_object().cloned().unwrap_or_default();
            params["_meta"] = modern_meta(dialect);
            for (key, value) in own {
                params["_meta"][key] = value;
            }
        }
        let id: RequestId = id.into();
        self.send_json(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
    }

    /// Sends a request with exactly these params, without adding `_meta`, and waits for the response.
    ///
    /// # Panics
    ///
    /// If another message is received first, or none.
    ///
    /// # Cancel safety
    ///
    /// Safe, but sent messages stay sent.
    pub async fn call(&mut self, id: &str, method: &str, params: Value) -> Value {
        self.send_json(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        let answer = self.next_message().await;
        assert_eq!(
            answer["id"], id,
            "expected the response to {method}, got {answer}"
        );
        answer
    }
}

impl ExpectedRequest<'_> {
    /// Returns the id of the request.
    #[must_use]
    pub fn id(&self) -> RequestId {
        self.id.clone()
    }

    /// Returns the params of the request; `null` if it has none.
    #[must_use]
    pub fn params(&self) -> &Value {
        &self.params
    }

    /// Sends a notification before the response.
    pub fn notify(self, method: &str, params: Value) -> Self {
        self.peer.notify(method, params);
        self
    }

    /// Sends a result.
    pub fn answer(self, result: Value) {
        self.peer.respond(self.id, Ok(result.into()));
    }

    /// Sends an error.
    pub fn answer_error(self, code: ErrorCode, message: &str) {
        let error = RpcError::new(code, message);
        self.peer.respond(self.id, Err(error));
    }

    /// Acknowledges every requested notification type, and returns the subscription's id.
    #[must_use = "the notifications of the subscription need this id"]
    pub fn acknowledge(self) -> RequestId {
        let params = json!({
            "notifications": self.params["notifications"],
            "_meta": {"io.modelcontextprotocol/subscriptionId": self.id},
        });
        self.peer
            .notify("notifications/subscriptions/acknowledged", params);
        self.id
    }

    /// Leaves the request unanswered, and returns its id.
    #[must_use = "it may be answered or cancelled later"]
    pub fn hold(self) -> RequestId {
        self.id
    }
}

/// Returns the `_meta` of a modern request.
fn modern_meta(dialect: &Dialect) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": dialect.version,
        "io.modelcontextprotocol/clientInfo": {"name": "scripted", "version": "1.0.0"},
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

fn message_value(message: &Message) -> Value {
    serde_json::from_slice(&message.to_frame()).unwrap_or(Value::Null)
}

fn params_value(params: Option<Json>) -> Value {
    let decoded = params.map(|params| params.decode());
    decoded.and_then(Result::ok).unwrap_or(Value::Null)
}

fn unexpected(expected: &str, seen: &impl Debug) -> ! {
    panic!("expected {expected}, got {seen:?}")
}

const EXPECT_TIMEOUT: Duration = Duration::from_secs(60);
