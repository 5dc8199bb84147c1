//! A peer whose frames the test writes.

use std::future::poll_fn;
use std::time::Duration;

use bowline::wire::{Memory, Received, Wire};
use bowline_core::Message;
use bytes::Bytes;
use serde_json::{Value, json};

use crate::logged_wire::summarize;
use crate::test_pair::is_modern;

/// One end of an in-memory wire, used directly by a test.
pub(crate) struct RawPeer(Memory);

impl RawPeer {
    pub(crate) fn new(wire: Memory) -> Self {
        Self(wire)
    }

    /// Returns the next frame; panics if there is none.
    pub(crate) async fn receive(&mut self) -> Value {
        match self.next_frame().await {
            Some(frame) => serde_json::from_slice(&frame).unwrap(),
            None => panic!("the other side closed the wire"),
        }
    }

    /// Returns the summary of the next frame.
    pub(crate) async fn receive_summary(&mut self) -> String {
        let frame = self.next_frame().await;
        summarize(&frame.expect("the other side closed the wire"))
    }

    /// Returns the summaries of all frames until the other side closes the wire.
    pub(crate) async fn receive_all(&mut self) -> Vec<String> {
        let mut received = Vec::new();
        while let Some(frame) = self.next_frame().await {
            received.push(summarize(&frame));
        }
        received
    }

    pub(crate) fn send(&mut self, frame: &Value) {
        self.send_text(&frame.to_string());
    }

    pub(crate) fn send_text(&mut self, frame: &str) {
        let frame = Bytes::copy_from_slice(frame.as_bytes());
        self.0.send(&Message::decode(&frame).unwrap());
    }

    pub(crate) fn answer(&mut self, request: &Value, result: &Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result}));
    }

    /// Closes this end, and returns the summaries of all frames until the other side closes the wire.
    pub(crate) async fn close_and_receive_all(mut self) -> Vec<String> {
        poll_fn(|cx| self.0.poll_close(cx)).await.unwrap();
        self.receive_all().await
    }

    /// Performs the client's part of the handshake, if `version` has one.
    pub(crate) async fn handshake_as_client(&mut self, version: &str) {
        if is_modern(version) {
            return;
        }
        let params = json!({
            "protocolVersion": version,
            "capabilities": {"roots": {}},
            "clientInfo": {"name": "script", "version": "1"},
        });
        self.send(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}));
        assert_eq!(self.receive().await["result"]["protocolVersion"], version);
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    }

    /// Performs the server's part of a legacy handshake.
    pub(crate) async fn handshake_as_server(&mut self, version: &str) {
        let initialize = self.receive().await;
        assert_eq!(initialize["method"], "initialize");
        let result = json!({
            "protocolVersion": version,
            "capabilities": {"tools": {}, "resources": {"subscribe": true}},
            "serverInfo": {"name": "script", "version": "1"},
        });
        self.answer(&initialize, &result);
        assert_eq!(self.receive().await["method"], "notifications/initialized");
    }

    async fn next_frame(&mut self) -> Option<Bytes> {
        let receiving = poll_fn(|cx| self.0.poll_receive(cx));
        // The paused clock advances only when every task is idle, so this elapses only if no frame will come.
        let received = tokio::time::timeout(Duration::from_secs(3600), receiving).await;
        match received.expect("the other side sent another frame") {
            Received::Frame(frame) => Some(frame),
            Received::End => None,
            other => panic!("the wire is broken: {other:?}"),
        }
    }
}
