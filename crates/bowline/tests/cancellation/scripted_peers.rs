//! Scripted clients and servers, whose frames a test writes.

use bowline::peer::Peer;
use bowline::testing::{self, ScriptedPeer, summarize};
use bowline::{Client, RequestId, Server};
use bowline_core::era::Dialect;
use serde_json::{Value, json};

use crate::handler_monitor::{HandlerMonitor, slow_host};

/// Connects a client to a scripted server.
pub(crate) async fn scripted_server(dialect: &'static Dialect) -> (Client, ScriptedPeer) {
    scripted_server_for(dialect, &HandlerMonitor::default()).await
}

/// As [`scripted_server`], for a client with a host.
pub(crate) async fn scripted_server_for(
    dialect: &'static Dialect,
    host: &HandlerMonitor,
) -> (Client, ScriptedPeer) {
    let (wire, mut peer) = testing::scripted_peer();
    let connect = Client::from_wire(wire).protocol_version(dialect.version);
    let connect = connect.host(slow_host(host));
    if dialect.is_modern() {
        return (connect.await.unwrap(), peer);
    }
    let capabilities = json!({"tools": {}, "resources": {"subscribe": true}});
    let handshake = peer.accept_handshake(dialect.version, capabilities);
    let (client, ()) = tokio::join!(connect.into_future(), handshake);
    (client.unwrap(), peer)
}

/// Returns the summary of the next message.
pub(crate) async fn next(peer: &mut ScriptedPeer) -> String {
    summarize(&peer.next_message().await)
}

pub(crate) fn send_cancel(peer: &mut ScriptedPeer, id: impl Into<Value>, reason: &str) {
    let params = json!({"requestId": id.into(), "reason": reason});
    peer.notify("notifications/cancelled", params);
}

/// A scripted client of a server whose handlers are counted.
pub(crate) struct ScriptedClient {
    pub(crate) peer: ScriptedPeer,
    pub(crate) handlers: HandlerMonitor,
    dialect: &'static Dialect,
    server_end: Peer,
}

impl ScriptedClient {
    pub(crate) async fn connect(dialect: &'static Dialect) -> Self {
        let handlers = HandlerMonitor::default();
        let server = handlers.server();
        Self::connect_to(&server, handlers, dialect).await
    }

    pub(crate) async fn connect_to(
        server: &Server,
        handlers: HandlerMonitor,
        dialect: &'static Dialect,
    ) -> Self {
        let (wire, mut peer) = testing::scripted_peer();
        let (server_end, serving) = server.clone().serve_counted(wire);
        tokio::spawn(serving);
        peer.perform_handshake(dialect, json!({"roots": {}})).await;
        Self {
            peer,
            handlers,
            dialect,
            server_end,
        }
    }

    /// Sends a `tools/call` that accepts progress and log messages.
    pub(crate) fn call(&mut self, id: impl Into<RequestId>, tool: &str) {
        let mut meta = json!({"progressToken": "p"});
        if self.dialect.is_modern() {
            meta["io.modelcontextprotocol/logLevel"] = json!("debug");
        }
        let params = json!({"name": tool, "arguments": {"name": "mine"}, "_meta": meta});
        self.peer.request(self.dialect, id, "tools/call", params);
    }

    pub(crate) fn cancel(&mut self, id: impl Into<Value>, reason: &str) {
        send_cancel(&mut self.peer, id, reason);
    }

    /// Returns the summary of the next message.
    pub(crate) async fn next(&mut self) -> String {
        next(&mut self.peer).await
    }

    pub(crate) fn is_server_idle(&self) -> bool {
        self.server_end.is_idle()
    }

    /// Asserts that the server has answered every request, and sends nothing more.
    pub(crate) async fn finish(mut self) {
        assert!(self.server_end.is_idle(), "{:?}", self.server_end);
        self.peer.close().await;
        assert_eq!(self.peer.receive_to_end().await, [Value::Null; 0]);
    }
}
