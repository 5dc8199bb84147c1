//! What a client says and hears, word for word, against a server that follows a script.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "the lints know tests by their attribute, and what tests share has none"
)]

mod acts;
mod cache;
mod lists;
mod news;
mod output;
mod remembered;

use bowline::client::Connect;
use bowline::testing::{self, Scripted};
use bowline::{Client, Error};
use serde_json::{Value, json};

/// A client that speaks the modern version, with nothing asked yet, and its scripted server.
async fn modern() -> (Client, Scripted) {
    modern_with(|connect| connect).await
}

/// The same, with a say in how the client is made.
async fn modern_with(choose: impl FnOnce(Connect) -> Connect) -> (Client, Scripted) {
    let (wire, server) = testing::scripted();
    let connect = choose(Client::over(wire).speaking("2026-07-28"));
    (connect.await.unwrap(), server)
}

/// A client that has shaken hands, and its scripted server with these capabilities.
async fn legacy(capabilities: Value) -> (Client, Scripted) {
    legacy_with(capabilities, |connect| connect).await
}

/// The same, with a say in how the client is made.
async fn legacy_with(
    capabilities: Value,
    choose: impl FnOnce(Connect) -> Connect,
) -> (Client, Scripted) {
    let (wire, mut server) = testing::scripted();
    let connect = choose(Client::over(wire).speaking("2025-11-25"));
    let handshake = server.shake_hands("2025-11-25", capabilities);
    let (client, ()) = tokio::join!(connect.into_future(), handshake);
    (client.unwrap(), server)
}

/// A tool as `tools/list` has it.
fn tool(name: &str) -> Value {
    json!({"name": name, "inputSchema": {"type": "object"}})
}

/// What went wrong, in words, if it was the peer's breach of the protocol.
fn breach(error: &Error) -> &str {
    match error {
        Error::Protocol { what, .. } => what,
        other => panic!("expected a breach of the protocol, and saw {other:?}"),
    }
}
