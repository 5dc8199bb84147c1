//! A connection without a client.

use std::time::Duration;

use bowline::client::{ClientBuilder, Connection, Unsolicited, UnsolicitedEvent};
use bowline::exchange::{Answer, CallOptions, Channel, Notification, Request};
use bowline::testing::{self, ScriptedPeer, matrix};
use bowline::types::{ClientCapabilities, LoggingLevel, RootsCapability};
use bowline::{Client, Context, Error, Json, Result, Server, Tool};
use serde_json::{Value, json};
use tokio::time::timeout;

const LEGACY: &str = "2025-11-25";
/// On a paused clock.
const LIMIT: Duration = Duration::from_secs(10);

/// A connection to a modern server that was not probed.
async fn modern() -> (Connection, ScriptedPeer) {
    let (wire, server) = testing::scripted_peer();
    let connect = Client::from_wire(wire).protocol_version("2026-07-28");
    (connect.connection().await.unwrap(), server)
}

async fn legacy(introduction: Value) -> (Connection, ScriptedPeer) {
    legacy_with(introduction, |connect| connect).await
}

async fn legacy_with(
    introduction: Value,
    configure: impl FnOnce(ClientBuilder) -> ClientBuilder,
) -> (Connection, ScriptedPeer) {
    let (wire, mut server) = testing::scripted_peer();
    let connect = configure(Client::from_wire(wire).protocol_version(LEGACY));
    let handshake = async {
        server.expect("initialize").await.answer(introduction);
        let initialized = "notifications/initialized";
        server.expect_notification(initialized).await;
        server
    };
    let (connection, server) = tokio::join!(connect.connection(), handshake);
    (connection.unwrap(), server)
}

fn introduction() -> Value {
    json!({
        "protocolVersion": LEGACY,
        "capabilities": {"tools": {}, "com.example/later": {"a": 1}},
        "serverInfo": {"name": "scripted", "version": "1.0.0"},
        "com.example/unknown": [1],
    })
}

fn request(connection: &Connection, method: &'static str, params: Value) -> Request {
    Request::new(method, Json::from(params), connection.caller())
}

async fn answer(connection: &Connection, method: &'static str, params: Value) -> Result<Answer> {
    let request = request(connection, method, params);
    let mut options = CallOptions::default();
    options.timeout = Some(LIMIT);
    connection.open(request, options).answer().await
}

fn complete(answer: Result<Answer>) -> Value {
    match answer.unwrap() {
        Answer::Complete(result) => result.decode().unwrap(),
        other => panic!("expected a complete result, got {other:?}"),
    }
}

async fn notification(unsolicited: &mut Unsolicited) -> Notification {
    match timeout(LIMIT, unsolicited.next()).await.unwrap() {
        Some(UnsolicitedEvent::Notification(notification)) => notification,
        other => panic!("expected a notification, got {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_calls_a_tool_over_every_transport_and_ends_when_it_is_closed() {
    let server = Server::new("clock", "1.0.0").tool(Tool::new("now", async || "noon"));
    for case in matrix() {
        let connection = case.serve(&server).connect.connection().await.unwrap();
        let ended = connection.ended();
        let mut unsolicited = connection.unsolicited();

        let called = answer(&connection, "tools/call", json!({"name": "now"})).await;

        assert_eq!(complete(called)["content"][0]["text"], "noon", "{case:?}");
        assert_eq!(connection.dialect().version, case.dialect.version);
        assert!(!connection.has_ended(), "{case:?}");
        connection.close().await;
        assert!(connection.has_ended(), "{case:?}");
        let error = ended.await;
        assert!(matches!(error, Error::Closed), "{case:?}: {error:?}");
        assert!(unsolicited.next().await.is_none(), "{case:?}");
        let called = answer(&connection, "tools/call", json!({"name": "now"})).await;
        assert!(called.unwrap_err().is_disconnected(), "{case:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn answers_are_neither_cached_nor_validated_and_no_tools_are_listed() {
    let (connection, mut server) = modern().await;
    let listed = json!({"tools": [{"name": "x", "inputSchema": {}, "outputSchema": {"required": ["n"]}}],
        "resultType": "complete", "ttlMs": 60_000, "cacheScope": "public", "unknown": 1});
    let called = json!({"content": [], "structuredContent": {}, "resultType": "complete"});
    let extended = json!({"resultType": "com.example/later", "a": 1});
    let script = async {
        for _ in 0..2 {
            server.expect("tools/list").await.answer(listed.clone());
        }
        server.expect("tools/call").await.answer(called.clone());
        server.expect("tools/call").await.answer(extended.clone());
        server.expect_nothing().await;
    };
    let calling = async {
        for _ in 0..2 {
            let answer = answer(&connection, "tools/list", json!({})).await;
            assert_eq!(complete(answer), listed);
        }
        let first = answer(&connection, "tools/call", json!({"name": "x"})).await;
        let second = answer(&connection, "tools/call", json!({"name": "x"})).await;
        (first, second)
    };

    let ((first, second), ()) = tokio::join!(calling, script);

    assert_eq!(complete(first), called);
    assert!(
        matches!(second, Ok(Answer::Extension { result_type, .. }) if result_type == "com.example/later")
    );
}

#[tokio::test(start_paused = true)]
async fn the_introduction_keeps_members_that_have_no_type() {
    let (connection, _server) = legacy(introduction()).await;

    let kept: Value = connection.introduction().unwrap().decode().unwrap();

    assert_eq!(kept["com.example/unknown"], json!([1]));
    assert_eq!(
        kept["capabilities"]["com.example/later"],
        json!({"a": 1}),
        "{kept}"
    );
    assert_eq!(kept["supportedVersions"], json!([LEGACY]));
}

#[tokio::test(start_paused = true)]
async fn server_discover_is_answered_from_the_introduction_of_a_legacy_server() {
    let (connection, mut server) = legacy(introduction()).await;

    let discovered = answer(&connection, "server/discover", json!({})).await;

    let introduction: Value = connection.introduction().unwrap().decode().unwrap();
    assert_eq!(complete(discovered), introduction);
    server.expect_nothing().await; // no second `initialize`

    server.close().await;
    connection.ended().await;
    let later = answer(&connection, "server/discover", json!({})).await;
    assert!(matches!(later, Err(Error::Closed)), "{later:?}");
}

#[tokio::test(start_paused = true)]
async fn server_discover_of_a_client_is_not_a_second_handshake() {
    let (client, mut server) = super::legacy(json!({"tools": {}})).await;

    let reply = client.request_raw("server/discover", ()).await.unwrap();

    let reply: Value = reply.json().decode().unwrap();
    assert_eq!(reply["capabilities"], json!({"tools": {}}));
    server.expect_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn server_discover_is_sent_to_a_modern_server() {
    let (connection, mut server) = modern().await;
    assert!(connection.introduction().is_none(), "it was not probed");
    let discovery =
        json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {}});

    for _ in 0..2 {
        let script = async {
            let discover = server.expect("server/discover").await;
            discover.answer(discovery.clone());
        };
        let (discovered, ()) =
            tokio::join!(answer(&connection, "server/discover", json!({})), script);

        assert_eq!(complete(discovered), discovery);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_of_the_server_is_answered_by_the_host_responder() {
    async fn roots(_: Request, _: Context) -> bowline::exchange::Outcome {
        Ok(json!({"roots": [], "unknown": 1}).into())
    }
    let mut capabilities = ClientCapabilities::default();
    capabilities.roots = Some(RootsCapability::default());
    let configure = |connect: ClientBuilder| connect.host_responder(roots, capabilities);
    let (_connection, mut server) = legacy_with(introduction(), configure).await;

    let ask = json!({"jsonrpc": "2.0", "id": "q", "method": "roots/list"});
    server.send_json(&ask);

    let answered = server.next_message().await;
    assert_eq!(answered["result"], json!({"roots": [], "unknown": 1}));
}

#[tokio::test(start_paused = true)]
async fn unsolicited_notifications_are_received_from_the_first_message_on() {
    let (connection, mut server) = legacy(introduction()).await;
    let sent = [
        ("notifications/message", json!({"level": "info", "data": 1})),
        ("notifications/tools/list_changed", json!({})),
        (
            "notifications/elicitation/complete",
            json!({"elicitationId": "e"}),
        ),
        ("com.example/custom", json!({"a": [1]})),
    ];
    for (method, params) in &sent {
        server.notify(method, params.clone());
    }
    // The driver has read them when it answers this one.
    server.send_json(&json!({"jsonrpc": "2.0", "id": "p", "method": "ping"}));
    server.next_message().await;

    let mut first = connection.unsolicited();
    for (method, params) in &sent {
        let received = notification(&mut first).await;
        assert_eq!(received.method, *method);
        let received: Value = received.params.unwrap().decode().unwrap();
        assert_eq!(received, *params);
    }

    let mut second = connection.unsolicited();
    server.notify("com.example/later", json!({}));
    for unsolicited in [&mut first, &mut second] {
        assert_eq!(notification(unsolicited).await.method, "com.example/later");
    }
    server.close().await;
    assert!(first.next().await.is_none());
    let mut late = connection.unsolicited();
    let ended = timeout(LIMIT, late.next()).await;
    assert!(ended.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn progress_of_a_call_is_not_unsolicited() {
    let (connection, mut server) = legacy(introduction()).await;
    let mut unsolicited = connection.unsolicited();
    let mut request = request(&connection, "tools/call", json!({"name": "x"}));
    request.progress_token = Some(7.into());
    let exchange = connection.open(request, CallOptions::default());

    let call = server.expect("tools/call").await;
    let progress = json!({"progressToken": 7, "progress": 1});
    let call = call.notify("notifications/progress", progress);
    call.answer(json!({"content": []}));
    exchange.answer().await.unwrap();
    server.notify("com.example/custom", json!({}));

    let received = notification(&mut unsolicited).await;
    assert_eq!(received.method, "com.example/custom");
}

#[tokio::test(start_paused = true)]
async fn an_overflow_of_unsolicited_notifications_is_reported_and_later_ones_follow() {
    let (connection, mut server) = legacy(introduction()).await;
    let mut unsolicited = connection.unsolicited();
    let sent = 5_000;
    for number in 0..sent {
        server.notify("com.example/custom", json!({"n": number}));
    }
    server.send_json(&json!({"jsonrpc": "2.0", "id": "p", "method": "ping"}));
    server.next_message().await;

    let mut received = 0;
    loop {
        match unsolicited.next().await.unwrap() {
            UnsolicitedEvent::Notification(_) => received += 1,
            UnsolicitedEvent::Lagged => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(0 < received && received < sent, "{received}");

    server.notify("com.example/later", json!({}));
    let later = notification(&mut unsolicited).await;
    assert_eq!(later.method, "com.example/later");
}

#[tokio::test(start_paused = true)]
async fn notifications_are_sent_if_the_version_has_them() {
    let roots = "notifications/roots/list_changed";
    let custom = "com.example/custom";
    let all = [
        roots,
        "notifications/initialized",
        "notifications/cancelled",
        custom,
    ];
    let (old, old_server) = legacy(introduction()).await;
    let (new, new_server) = modern().await;

    for (connection, mut server, expected) in [
        (old, old_server, vec![roots, custom]),
        (new, new_server, vec![custom]),
    ] {
        for method in all {
            let params = json!({"requestId": 1});
            connection.notify(Notification::new(method, Some(params.into())));
        }
        for method in expected {
            server.expect_notification(method).await;
        }
        server.expect_nothing().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_log_level_of_the_builder_is_set_at_a_legacy_server() {
    let (wire, mut server) = testing::scripted_peer();
    let connect = Client::from_wire(wire).protocol_version(LEGACY);
    let connect = connect.log_level(LoggingLevel::Warning);
    let script = async {
        let capabilities = json!({"logging": {}});
        server.accept_handshake(LEGACY, capabilities).await;
        let set = server.expect("logging/setLevel").await;
        assert_eq!(set.params()["level"], "warning");
        set.answer(json!({}));
    };

    let (connection, ()) = tokio::join!(connect.connection(), script);

    assert!(connection.is_ok());
}
