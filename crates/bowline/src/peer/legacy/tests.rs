//! Tests of emulated subscriptions, observed at the other end of the wire.

use std::sync::Arc;

use bowline_core::era::{Caller, Dialect, Request};
use bowline_types::Json;
use serde_json::{Value, json};

use crate::exchange::{CallOptions, Channel as _, ExchangeEvent};
use crate::peer::tests::{client, request};
use crate::peer::{LISTEN, Peer};

#[tokio::test(start_paused = true)]
async fn a_legacy_subscription_acknowledges_what_the_server_declared() {
    let caller = Arc::new(Caller::new(Dialect::LATEST_LEGACY));
    let open = |peer: &Peer, method: &'static str, params: Value| {
        let request = Request::new(method, Json::from(params), caller.clone());
        peer.open(request, CallOptions::default())
    };
    let filter = json!({"toolsListChanged": true, "promptsListChanged": true,
        "resourcesListChanged": true, "resourceSubscriptions": ["a:b"], "taskIds": ["1"]});
    let (peer, mut far) = client();
    let handshake = open(&peer, "server/discover", json!({}));
    let id = far.receive().await["id"].clone();
    let result = json!({"protocolVersion": Dialect::LATEST_LEGACY.version,
        "capabilities": {"tools": {"listChanged": true}, "prompts": {}, "resources": {}},
        "serverInfo": {"name": "s", "version": "1"}});
    let answer = json!({"jsonrpc": "2.0", "id": id, "result": result});
    far.send_line(&answer.to_string()).await;
    handshake.answer().await.unwrap();

    let mut listening = open(&peer, LISTEN, json!({"notifications": filter}));
    let ExchangeEvent::Notification(acknowledged) = listening.next_event().await else {
        panic!("expected an acknowledgement");
    };
    let _next = peer.open(request("next"), CallOptions::default());

    let params: Value = acknowledged.params.unwrap().decode().unwrap();
    assert_eq!(params["notifications"], json!({"toolsListChanged": true}));
    assert_eq!(
        far.receive().await["method"],
        "next",
        "no subscription is sent"
    );
}
