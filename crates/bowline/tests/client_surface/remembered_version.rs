//! A remembered protocol version that is outdated.

use std::time::Duration;

use bowline::testing::{self, ScriptedPeer};
use bowline::types::ErrorCode;
use bowline::{Client, Error};
use serde_json::json;
use tokio::time::timeout;

use super::tool;

/// A client that remembers 2026-07-28 as the version of its server, and that server.
async fn client_with_remembered_version() -> (Client, ScriptedPeer) {
    let (wire, server) = testing::scripted_peer();
    let known = json!({"version": "2026-07-28"});
    let known = serde_json::from_value(known).unwrap();
    let client = Client::from_wire(wire).known_server(known).await.unwrap();
    (client, server)
}

/// Rejects the probe and accepts the handshake, as a legacy server does.
async fn act_as_legacy_server(server: &mut ScriptedPeer) {
    let probe = server.expect("server/discover").await;
    probe.answer_error(ErrorCode::METHOD_NOT_FOUND, "what?");
    let capabilities = json!({"tools": {}});
    server.accept_handshake("2025-06-18", capabilities).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_have_run_is_retried_in_the_version_of_the_server() {
    for code in [
        ErrorCode::METHOD_NOT_FOUND,
        ErrorCode::INVALID_REQUEST,
        ErrorCode::UNSUPPORTED_PROTOCOL_VERSION,
    ] {
        let (client, mut server) = client_with_remembered_version().await;
        let script = async {
            let modern = server.expect("tools/list").await;
            assert!(modern.params()["_meta"].is_object());
            modern.answer_error(code, "not initialized");
            act_as_legacy_server(&mut server).await;
            let again = server.expect("tools/list").await;
            assert!(again.params()["_meta"].is_null());
            again.answer(json!({"tools": [tool("a")]}));
        };

        let (tools, ()) = tokio::join!(client.list_tools().into_future(), script);

        assert_eq!(tools.unwrap().len(), 1);
        assert_eq!(client.dialect().version, "2025-06-18");
        assert_eq!(client.known_server().version(), "2025-06-18");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_retried_after_a_change_makes_its_tools_known() {
    let (client, mut server) = client_with_remembered_version().await;
    let schema = json!({"type": "object", "required": ["n"]});
    let mut known = tool("a");
    known["outputSchema"] = schema;
    let script = async {
        let modern = server.expect("tools/list").await;
        modern.answer_error(ErrorCode::METHOD_NOT_FOUND, "not initialized");
        server.notify("notifications/tools/list_changed", json!({}));
        act_as_legacy_server(&mut server).await;
        let again = server.expect("tools/list").await;
        again.answer(json!({"tools": [known]}));
        let output = json!({"content": [], "structuredContent": {}});
        server.expect("tools/call").await.answer(output);
        server.expect_nothing().await;
    };
    let calling = async {
        client.list_tools().await.unwrap();
        client.call_tool("a", ()).await
    };

    let (reply, ()) = tokio::join!(calling, script);

    assert!(matches!(reply, Err(Error::Protocol { .. })), "{reply:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_may_have_run_fails_and_the_next_one_succeeds() {
    let (client, mut server) = client_with_remembered_version().await;
    let script = async {
        let modern = server.expect("tools/call").await;
        modern.answer_error(ErrorCode::INVALID_PARAMS, "perhaps it ran");
        act_as_legacy_server(&mut server).await;
    };

    let (failed, ()) = tokio::join!(client.call_tool("a", ()).into_future(), script);
    let next = tokio::spawn(client.list_tools().into_future());
    server
        .expect("tools/list")
        .await
        .answer(json!({"tools": []}));

    let error = failed.unwrap_err();
    assert!(
        matches!(&error, Error::Rpc(error) if error.message == "perhaps it ran"),
        "{error}"
    );
    assert_eq!(next.await.unwrap().unwrap(), []);
    assert_eq!(client.dialect().version, "2025-06-18");
}

#[tokio::test(start_paused = true)]
async fn concurrent_failures_probe_the_server_once() {
    let (client, mut server) = client_with_remembered_version().await;
    let calls: Vec<_> = (0..3)
        .map(|_| tokio::spawn(client.request_raw("tools/list", ()).into_future()))
        .collect();

    for _ in 0..3 {
        let modern = server.expect("tools/list").await;
        modern.answer_error(ErrorCode::METHOD_NOT_FOUND, "not initialized");
    }
    act_as_legacy_server(&mut server).await;
    for _ in 0..3 {
        server
            .expect("tools/list")
            .await
            .answer(json!({"tools": []}));
    }

    for call in calls {
        call.await.unwrap().unwrap();
    }
    server.expect_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn a_confirmed_version_is_not_probed_again() {
    let (client, mut server) = client_with_remembered_version().await;
    let script = async {
        let first = server.expect("tools/list").await;
        first.answer(json!({"tools": []}));
        let second = server.expect("tools/call").await;
        second.answer_error(ErrorCode::METHOD_NOT_FOUND, "no such thing");
        server.expect_nothing().await;
    };

    let calling = async {
        client.list_tools().await.unwrap();
        client.call_tool("a", ()).await.unwrap_err()
    };
    let (error, ()) = tokio::join!(calling, script);

    assert!(matches!(error, Error::Rpc(_)), "{error}");
    assert_eq!(client.dialect().version, "2026-07-28");
}

/// Rejects a modern request, and does not answer the probe that follows.
async fn leave_probe_unanswered(server: &mut ScriptedPeer) {
    let modern = server.expect("tools/list").await;
    modern.answer_error(ErrorCode::METHOD_NOT_FOUND, "not initialized");
    let _ = server.expect("server/discover").await.hold();
    std::future::pending::<()>().await;
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_probe_returns_the_first_error() {
    let (client, mut server) = client_with_remembered_version().await;
    let script = leave_probe_unanswered(&mut server);

    let failed = tokio::select! {
        failed = timeout(Duration::from_secs(3600), client.list_tools().into_future()) => failed,
        () = script => unreachable!(),
    };

    let error = failed.expect("the probe times out").unwrap_err();
    assert!(
        matches!(&error, Error::Rpc(error) if error.message == "not initialized"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_probe_is_bounded_by_the_timeout_of_its_call() {
    let (client, mut server) = client_with_remembered_version().await;
    let script = leave_probe_unanswered(&mut server);
    let start = tokio::time::Instant::now();

    let list = client.request_raw("tools/list", ());
    let call = list.timeout(Duration::from_secs(1)).into_future();
    let failed = tokio::select! {
        failed = call => failed,
        () = script => unreachable!(),
    };

    assert!(failed.is_err());
    assert_eq!(start.elapsed(), Duration::from_secs(1));
}
