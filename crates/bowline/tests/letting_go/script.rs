//! A peer that says exactly what a test tells it to.

use std::future::poll_fn;
use std::time::Duration;

use bowline::wire::{Memory, Received, Wire};
use bowline_core::Message;
use bytes::Bytes;
use serde_json::{Value, json};

use crate::tap::in_short;
use crate::world::is_modern;

/// One end of a wire in memory, in the hands of a test.
pub(crate) struct Script(Memory);

impl Script {
    pub(crate) fn new(wire: Memory) -> Self {
        Self(wire)
    }

    /// The next frame; panics if nothing comes any more.
    pub(crate) async fn hear(&mut self) -> Value {
        match self.receive().await {
            Some(frame) => serde_json::from_slice(&frame).unwrap(),
            None => panic!("the other side closed the wire"),
        }
    }

    /// The next frame, in short.
    pub(crate) async fn hear_in_short(&mut self) -> String {
        in_short(&self.receive().await.unwrap_or_else(|| panic!("closed")))
    }

    /// All that still comes until the other side closes the wire, in short.
    pub(crate) async fn hear_all(&mut self) -> Vec<String> {
        let mut heard = Vec::new();
        while let Some(frame) = self.receive().await {
            heard.push(in_short(&frame));
        }
        heard
    }

    pub(crate) fn say(&mut self, frame: &Value) {
        self.say_text(&frame.to_string());
    }

    pub(crate) fn say_text(&mut self, frame: &str) {
        let frame = Bytes::copy_from_slice(frame.as_bytes());
        self.0.send(&Message::decode(&frame).unwrap());
    }

    /// Answers a request that was heard.
    pub(crate) fn answer(&mut self, request: &Value, result: &Value) {
        self.say(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result}));
    }

    /// Says nothing more, and returns all that still comes, in short.
    pub(crate) async fn rest(mut self) -> Vec<String> {
        poll_fn(|cx| self.0.poll_close(cx)).await.unwrap();
        self.hear_all().await
    }

    /// Plays a client that opens the wire as `version` has it.
    pub(crate) async fn open(&mut self, version: &str) {
        if is_modern(version) {
            return;
        }
        let opening = json!({
            "protocolVersion": version,
            "capabilities": {"roots": {}},
            "clientInfo": {"name": "script", "version": "1"},
        });
        self.say(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": opening}));
        assert_eq!(self.hear().await["result"]["protocolVersion"], version);
        self.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    }

    /// Plays the server in a legacy handshake.
    pub(crate) async fn shake_hands(&mut self, version: &str) {
        let opening = self.hear().await;
        assert_eq!(opening["method"], "initialize");
        let introduction = json!({
            "protocolVersion": version,
            "capabilities": {"tools": {}, "resources": {"subscribe": true}},
            "serverInfo": {"name": "script", "version": "1"},
        });
        self.answer(&opening, &introduction);
        assert_eq!(self.hear().await["method"], "notifications/initialized");
    }

    async fn receive(&mut self) -> Option<Bytes> {
        let receiving = poll_fn(|cx| self.0.poll_receive(cx));
        // The clock stands still while anything moves, so this only rings if nothing does any more.
        let received = tokio::time::timeout(Duration::from_secs(3600), receiving).await;
        match received.expect("the other side says nothing any more") {
            Received::Frame(frame) => Some(frame),
            Received::End => None,
            other => panic!("the wire is broken: {other:?}"),
        }
    }
}
