//! A server that follows a script: for tests that look at what a client says, word for word.
//!
//! ```
//! use bowline::{Client, testing};
//! use serde_json::json;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> bowline::Result<()> {
//! let (wire, mut server) = testing::scripted();
//! let client = Client::over(wire).speaking("2026-07-28").await?;
//!
//! let listing = tokio::spawn(async move { client.list_tools().await });
//! let tool = json!({"name": "add", "inputSchema": {"type": "object"}});
//! server.expect("tools/list").await.answer(json!({"tools": [tool]}));
//!
//! assert_eq!(listing.await.expect("no panic")?[0].name, "add");
//! # Ok(()) }
//! ```
#![allow(clippy::panic, reason = "a test that sees the wrong thing ends there")]

use std::fmt::Debug;
use std::future::poll_fn;
use std::time::Duration;

use bowline_core::{Message, Notification, RawRequest, Response};
use bowline_types::{ErrorCode, Json, RequestId, RpcError};
use serde_json::{Value, json};

use crate::wire::{Memory, Received, Wire, memory};

/// Makes a wire for a client, and the scripted server at its other end.
pub fn scripted() -> (Memory, Scripted) {
    let (near, far) = memory();
    (near, Scripted { wire: far })
}

/// A server that does what a test tells it to, and panics with what it saw if that is not expected.
///
/// It waits for at most a minute, which under a paused clock passes at once when nothing else happens.
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
                    params: value(params),
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

    /// Says something.
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

    /// The wire in memory has room for any script; a client that does not read loses nothing.
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

fn value(params: Option<Json>) -> Value {
    let decoded = params.map(|params| params.decode());
    decoded.and_then(Result::ok).unwrap_or(Value::Null)
}

fn unexpected(expected: &str, seen: &impl Debug) -> ! {
    panic!("expected {expected}, and saw {seen:?}")
}

const PATIENCE: Duration = Duration::from_secs(60);
