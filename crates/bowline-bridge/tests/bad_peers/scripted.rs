//! A bridge whose upstreams are controlled by a test.

use std::time::Duration;

use bowline::client::{ClientBuilder, Host};
use bowline::http::HttpService;
use bowline::http::client::HyperClient;
use bowline::prelude::*;
use bowline::testing::{PipeConnector, ScriptedPeer, scripted_peer};
use bowline::types::ElicitResult;
use bowline_bridge::{Bridge, BridgeBuilder, Target};
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// The upstreams that a bridge has connected to, in this order.
pub(crate) struct Upstreams(mpsc::UnboundedReceiver<ScriptedPeer>);

impl Upstreams {
    /// Waits for the next connection.
    pub(crate) async fn next(&mut self) -> ScriptedPeer {
        let next = tokio::time::timeout(WAIT_LIMIT, self.0.recv()).await;
        next.expect("the bridge opened no connection").unwrap()
    }

    /// Waits for the next connection, and performs the handshake as a legacy server.
    pub(crate) async fn accept(&mut self) -> ScriptedPeer {
        let mut peer = self.next().await;
        let capabilities = json!({"tools": {"listChanged": true}, "logging": {}});
        peer.accept_handshake(LEGACY, capabilities).await;
        peer
    }

    /// Returns whether the bridge has opened no further connection.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Returns the builder of a bridge to legacy servers, and those servers.
pub(crate) fn builder() -> (BridgeBuilder, Upstreams) {
    let (sender, upstreams) = mpsc::unbounded_channel();
    let target = Target::new("scripted", move |_| {
        let (wire, peer) = scripted_peer();
        // Fails if the test has ended.
        let _ = sender.send(peer);
        Ok(Client::from_wire(wire).protocol_version(LEGACY))
    });
    (Bridge::builder(target), Upstreams(upstreams))
}

pub(crate) fn bridge() -> (Bridge, Upstreams) {
    let (builder, upstreams) = builder();
    (builder.build(), upstreams)
}

/// Returns a connection over HTTP.
pub(crate) fn over_http(service: &HttpService, version: &'static str) -> ClientBuilder {
    let http = HyperClient::with_connector(PipeConnector::to(service));
    let connect = Client::connect("http://localhost/mcp").http_client(http);
    connect.protocol_version(version)
}

/// Returns a host that answers with the name of its user.
pub(crate) fn user(name: &'static str) -> Host {
    let answer = move |_| async move { ElicitResult::accept(json!({"name": name})) };
    Host::new().elicitation(answer)
}

/// Returns a host that must not be asked.
pub(crate) fn bystander() -> Host {
    Host::new().elicitation(async |_| panic!("asked about the call of another client"))
}

/// Returns the result of a tool.
pub(crate) fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

/// Returns a question.
pub(crate) fn elicitation(id: &str) -> Value {
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    let params = json!({"message": "Who are you?", "requestedSchema": schema});
    json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params})
}

const WAIT_LIMIT: Duration = Duration::from_secs(60);
pub(crate) const MODERN: &str = "2026-07-28";
pub(crate) const LEGACY: &str = "2025-11-25";
