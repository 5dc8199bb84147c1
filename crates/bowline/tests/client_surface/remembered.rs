//! A remembered protocol version that is out of date.

use std::time::Duration;

use bowline::testing::{self, Scripted};
use bowline::types::ErrorCode;
use bowline::{Client, Error};
use serde_json::json;
use tokio::time::timeout;

use super::tool;

/// A client that remembers its server to speak 2026-07-28 without having asked it, and that server.
async fn assuming() -> (Client, Scripted) {
    let (wire, server) = testing::scripted();
    let verdict = json!({"version": "2026-07-28"});
    let verdict = serde_json::from_value(verdict).unwrap();
    let client = Client::over(wire).remembered(verdict).await.unwrap();
    (client, server)
}

/// Says what an older server says: first to the probe, then to the handshake.
async fn be_older(server: &mut Scripted) {
    let probe = server.expect("server/discover").await;
    probe.refuse(ErrorCode::METHOD_NOT_FOUND, "what?");
    let capabilities = json!({"tools": {}});
    server.shake_hands("2025-06-18", capabilities).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_have_run_is_sent_again_in_what_the_server_speaks() {
    for code in [
        ErrorCode::METHOD_NOT_FOUND,
        ErrorCode::INVALID_REQUEST,
        ErrorCode::UNSUPPORTED_PROTOCOL_VERSION,
    ] {
        let (client, mut server) = assuming().await;
        let script = async {
            let modern = server.expect("tools/list").await;
            assert!(modern.params()["_meta"].is_object());
            modern.refuse(code, "not initialized");
            be_older(&mut server).await;
            let again = server.expect("tools/list").await;
            assert!(again.params()["_meta"].is_null());
            again.answer(json!({"tools": [tool("a")]}));
        };

        let (tools, ()) = tokio::join!(client.list_tools().into_future(), script);

        assert_eq!(tools.unwrap().len(), 1);
        assert_eq!(client.dialect().version, "2025-06-18");
        assert_eq!(client.verdict().version(), "2025-06-18");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_may_have_run_fails_and_the_next_one_does_not() {
    let (client, mut server) = assuming().await;
    let script = async {
        let modern = server.expect("tools/call").await;
        modern.refuse(ErrorCode::INVALID_PARAMS, "perhaps it ran");
        be_older(&mut server).await;
    };

    let (failed, ()) = tokio::join!(client.call_tool("a", ()).into_future(), script);
    let next = tokio::spawn(client.list_tools().into_future());
    server
        .expect("tools/list")
        .await
        .answer(json!({"tools": []}));

    let error = failed.unwrap_err();
    assert!(
        matches!(&error, Error::Peer(error) if error.message == "perhaps it ran"),
        "{error}"
    );
    assert_eq!(next.await.unwrap().unwrap(), []);
    assert_eq!(client.dialect().version, "2025-06-18");
}

#[tokio::test(start_paused = true)]
async fn all_who_fail_at_once_ask_the_server_once() {
    let (client, mut server) = assuming().await;
    let calls: Vec<_> = (0..3)
        .map(|_| tokio::spawn(client.raw("tools/list", ()).into_future()))
        .collect();

    for _ in 0..3 {
        let modern = server.expect("tools/list").await;
        modern.refuse(ErrorCode::METHOD_NOT_FOUND, "not initialized");
    }
    be_older(&mut server).await;
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
async fn what_was_confirmed_once_is_not_asked_about_again() {
    let (client, mut server) = assuming().await;
    let script = async {
        let first = server.expect("tools/list").await;
        first.answer(json!({"tools": []}));
        let second = server.expect("tools/call").await;
        second.refuse(ErrorCode::METHOD_NOT_FOUND, "no such thing");
        server.expect_nothing().await;
    };

    let calling = async {
        client.list_tools().await.unwrap();
        client.call_tool("a", ()).await.unwrap_err()
    };
    let (error, ()) = tokio::join!(calling, script);

    assert!(matches!(error, Error::Peer(_)), "{error}");
    assert_eq!(client.dialect().version, "2026-07-28");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_nothing_more_leaves_the_first_error_to_be_told() {
    let (client, mut server) = assuming().await;
    let script = async {
        let modern = server.expect("tools/list").await;
        modern.refuse(ErrorCode::METHOD_NOT_FOUND, "not initialized");
        let _ = server.expect("server/discover").await.hold();
        std::future::pending::<()>().await;
    };

    let failed = tokio::select! {
        failed = timeout(Duration::from_secs(3600), client.list_tools().into_future()) => failed,
        () = script => unreachable!(),
    };

    let error = failed.expect("it does not wait for ever").unwrap_err();
    assert!(
        matches!(&error, Error::Peer(error) if error.message == "not initialized"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_probe_takes_no_longer_than_the_call_has_left() {
    let (client, mut server) = assuming().await;
    let script = async {
        let modern = server.expect("tools/list").await;
        modern.refuse(ErrorCode::METHOD_NOT_FOUND, "not initialized");
        let _ = server.expect("server/discover").await.hold();
        std::future::pending::<()>().await;
    };
    let start = tokio::time::Instant::now();

    let list = client.raw("tools/list", ());
    let call = list.total_timeout(Duration::from_secs(1)).into_future();
    let failed = tokio::select! {
        failed = call => failed,
        () = script => unreachable!(),
    };

    assert!(failed.is_err());
    assert_eq!(start.elapsed(), Duration::from_secs(1));
}
