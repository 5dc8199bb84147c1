//! The messages that a client sends and receives, against a scripted server.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "clippy exempts only `#[test]` functions, not their helpers"
)]

mod cache;
mod completions;
mod connection;
mod lists;
mod notifications;
mod output_validation;
mod remembered_version;
mod requests;

use bowline::client::ClientBuilder;
use bowline::testing::{self, ScriptedPeer};
use bowline::{Client, Error, Reply, Result};
use serde_json::{Value, json};

/// A modern client that has not sent anything yet, and its scripted server.
async fn modern() -> (Client, ScriptedPeer) {
    modern_with(|connect| connect).await
}

/// The same with a configured client.
async fn modern_with(
    configure: impl FnOnce(ClientBuilder) -> ClientBuilder,
) -> (Client, ScriptedPeer) {
    let (wire, server) = testing::scripted_peer();
    let connect = configure(Client::from_wire(wire).protocol_version("2026-07-28"));
    (connect.await.unwrap(), server)
}

/// A legacy client after its handshake, and its scripted server with these capabilities.
async fn legacy(capabilities: Value) -> (Client, ScriptedPeer) {
    legacy_with(capabilities, |connect| connect).await
}

/// The same with a configured client.
async fn legacy_with(
    capabilities: Value,
    configure: impl FnOnce(ClientBuilder) -> ClientBuilder,
) -> (Client, ScriptedPeer) {
    let (wire, mut server) = testing::scripted_peer();
    let connect = configure(Client::from_wire(wire).protocol_version("2025-11-25"));
    let handshake = server.accept_handshake("2025-11-25", capabilities);
    let (client, ()) = tokio::join!(connect.into_future(), handshake);
    (client.unwrap(), server)
}

/// Calls the tool `x`, which the server answers without content.
async fn call_x(client: &Client, server: &mut ScriptedPeer) -> Result<Reply> {
    let call = client.call_tool("x", ()).start();
    let received = server.expect("tools/call").await;
    received.answer(json!({"content": []}));
    call.await
}

/// A tool of a `tools/list` result.
fn tool(name: &str) -> Value {
    json!({"name": name, "inputSchema": {"type": "object"}})
}

/// The text of a protocol error.
fn protocol_error(error: &Error) -> &str {
    match error {
        Error::Protocol { what, .. } => what,
        other => panic!("expected a protocol error, got {other:?}"),
    }
}
