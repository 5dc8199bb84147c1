//! Cancellation over HTTP against a scripted server: which POSTs are sent, and when.

use std::time::Duration;

use bowline::http::client::HyperClient;
use bowline::{Client, Error};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::legacy::default_legacy_reply;
use crate::scripted_server::{
    SSE_HEAD, ScriptedReply, ScriptedServer, ServerEvent, bare, event, reply_with, result,
    text_result,
};

const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";

/// Waits for the GET that a legacy client sends after the handshake.
async fn wait_for_get(server: &mut ScriptedServer) {
    while server.request().await.label() != "GET" {}
}

#[tokio::test]
async fn resumption_hints_are_ignored_in_the_modern_era() {
    const HINTS: &str = "id: e1\nretry: 1\ndata:\n\n";
    let mut server = ScriptedServer::start(|request| match &request.body["params"]["name"] {
        name if name == "cut" => ScriptedReply::BytesThenClose(format!("{SSE_HEAD}{HINTS}")),
        _ => ScriptedReply::BytesThenStall(format!("{SSE_HEAD}{HINTS}")),
    })
    .await;
    let client = server.connect(MODERN).await;

    let mut call = client.call_tool("slow", ()).start();
    server.request_of(&mut call).await;
    drop(call);
    server.client_disconnected().await;
    let cut = client.call_tool("cut", ()).await;

    assert!(matches!(cut, Err(Error::Transport { .. })), "{cut:?}");
    assert_eq!(server.drain_events(), ["POST tools/call"]);
}

#[tokio::test]
async fn a_resumable_legacy_request_is_not_cancelled_by_a_lost_connection() {
    let mut server = ScriptedServer::start(|request| {
        match (&*request.label(), request.header("last-event-id")) {
            ("POST tools/call", _) => {
                ScriptedReply::BytesThenClose(format!("{SSE_HEAD}id: e1\nretry: 1\ndata:\n\n"))
            }
            ("GET", Some("e1")) => {
                let answer = json!({"jsonrpc": "2.0", "id": 7, "result": text_result("late")});
                ScriptedReply::BytesThenClose(format!("{SSE_HEAD}id: e2\n{}", event(&answer)))
            }
            _ => default_legacy_reply(request),
        }
    })
    .await;
    let client = server.connect(LEGACY).await;
    wait_for_get(&mut server).await;

    let reply = client.call_tool("slow", ()).id(7).await.unwrap();

    assert_eq!(reply.text(), "late");
    assert_eq!(server.drain_events(), ["POST tools/call", "GET"]);
}

#[tokio::test]
async fn the_era_of_a_request_decides_how_it_is_cancelled() {
    let mut server = ScriptedServer::start(|request| match &*request.label() {
        "POST tools/call" => ScriptedReply::BytesThenStall(SSE_HEAD.into()),
        _ => default_legacy_reply(request),
    })
    .await;
    let send = HyperClient::plain();
    let old = Client::connect(&server.url).http_client(send.clone());
    let old = old.protocol_version(LEGACY).await.unwrap();
    let mut first = old.call_tool("slow", ()).start();
    server.request_of(&mut first).await;
    // The same connection pool, now used by a modern client.
    let new = Client::connect(&server.url).http_client(send);
    let new = new.protocol_version(MODERN).await.unwrap();
    let mut second = new.call_tool("slow", ()).start();
    server.request_of(&mut second).await;
    while server.events.try_recv().is_ok() {}

    drop(first);
    let cancel = server.request().await;
    drop(second);
    server.client_disconnected().await;

    assert_eq!(cancel.label(), "POST notifications/cancelled");
    assert_eq!(
        server.drain_events(),
        [""; 0],
        "no other POST is sent, and the first response stays open"
    );
}

#[tokio::test]
async fn a_dropped_connection_attempt_sends_no_cancel() {
    for version in [Some(LEGACY), None] {
        let mut server =
            ScriptedServer::start(|_| ScriptedReply::BytesThenStall(String::new())).await;
        let connect = Client::connect(&server.url);
        let connect = version.into_iter().fold(connect, |connect, version| {
            connect.protocol_version(version)
        });
        let mut connect = connect.into_future();
        tokio::select! {
            biased;
            opened = &mut connect => panic!("connected: {opened:?}"),
            _ = server.request() => {}
        }

        drop(connect);

        server.client_disconnected().await;
        assert_eq!(server.drain_events(), [""; 0]);
    }
}

#[tokio::test]
async fn a_late_response_of_an_abandoned_post_does_not_settle_a_later_call_with_the_same_id() {
    let late_result = json!({"jsonrpc": "2.0", "id": 7, "result": text_result("late")});
    let late_error = json!({"jsonrpc": "2.0", "id": 7, "error": {"code": -32800, "message": "no"}});
    for late in [late_result, late_error] {
        let (old, more) = mpsc::unbounded_channel();
        let mut more = Some(more);
        let mut server = ScriptedServer::start(move |request| match &*request.label() {
            "POST tools/call" => match more.take() {
                Some(more) => ScriptedReply::BytesThenMore(SSE_HEAD.into(), more),
                None => reply_with(request, &text_result("own")),
            },
            _ => default_legacy_reply(request),
        })
        .await;
        let client = server.connect(LEGACY).await;
        let mut call = client.call_tool("slow", ()).id(7).start();
        server.request_of(&mut call).await;
        drop(call);
        let successor = client.call_tool("slow", ()).id("7").start();
        while server.request().await.label() != "POST notifications/cancelled" {}

        old.send(event(&late)).unwrap();

        assert_eq!(successor.await.unwrap().text(), "own");
    }
}

#[tokio::test]
async fn requests_carry_the_negotiated_version_header_and_initialize_carries_none() {
    let mut expired = false;
    let mut server = ScriptedServer::start(move |request| match &*request.label() {
        "POST tools/call" if request.body["params"]["name"] == "expired" => {
            if std::mem::replace(&mut expired, true) {
                reply_with(request, &text_result("again"))
            } else {
                ScriptedReply::Bytes(bare("404 Not Found"))
            }
        }
        "POST tools/call" => ScriptedReply::BytesThenStall(SSE_HEAD.into()),
        _ => default_legacy_reply(request),
    })
    .await;
    let client = Client::connect(&server.url).await.unwrap();
    let mut call = client.call_tool("slow", ()).start();
    server.request_of(&mut call).await;

    drop(call);
    let cancel = loop {
        let request = server.request().await;
        if request.label() == "POST notifications/cancelled" {
            break request;
        }
    };
    client.call_tool("expired", ()).await.unwrap();
    client.close().await.unwrap();

    assert_eq!(cancel.header("mcp-protocol-version"), Some(LEGACY));
    assert_eq!(cancel.header("mcp-session-id"), Some("s1"));
    let mut openings = 0;
    while let Ok(event) = server.events.try_recv() {
        let ServerEvent::Request(request) = event else {
            continue;
        };
        let version = request.header("mcp-protocol-version");
        match &*request.label() {
            "POST initialize" => {
                openings += 1;
                assert_eq!((version, request.header("mcp-session-id")), (None, None));
            }
            what => assert_eq!(version, Some(LEGACY), "{what}"),
        }
    }
    assert_eq!(openings, 1, "the session expired once");
}

#[tokio::test]
async fn dropping_a_subscription_closes_its_post_and_sends_nothing_else() {
    let acknowledged = event(&json!({
        "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
        "params": {"notifications": {"toolsListChanged": true},
                   "_meta": {"io.modelcontextprotocol/subscriptionId": "L"}},
    }));
    let mut server = ScriptedServer::start(move |_| {
        ScriptedReply::BytesThenStall(format!("{SSE_HEAD}{acknowledged}"))
    })
    .await;
    let client = server.connect(MODERN).await;
    let changes = bowline::client::ChangeFilter::new().tools();
    let subscription = client.subscribe(changes).id("L").await.unwrap();

    drop(subscription);

    assert_eq!(server.request().await.label(), "POST subscriptions/listen");
    server.client_disconnected().await;
    assert_eq!(server.drain_events(), [""; 0]);
}

#[tokio::test]
async fn reopening_of_streams_that_close_immediately_is_bounded() {
    let mut server = ScriptedServer::start(|request| match &*request.label() {
        // An empty event with an id makes the stream resumable.
        "GET" => ScriptedReply::BytesThenClose(format!("{SSE_HEAD}id: e1\nretry: 0\ndata:\n\n")),
        "POST tools/call" => {
            ScriptedReply::BytesThenClose(format!("{SSE_HEAD}id: e2\nretry: 0\ndata:\n\n"))
        }
        _ => default_legacy_reply(request),
    })
    .await;
    let client = server.connect(LEGACY).await;

    let limit = Duration::from_secs(20);
    let lost = client.call_tool("slow", ()).timeout(limit).await;

    assert!(matches!(lost, Err(Error::Transport { .. })), "{lost:?}");
    let mut gets = 0;
    let counting = async {
        while gets < 9 {
            if server.request().await.label() == "GET" {
                gets += 1;
            }
        }
    };
    // Five GET streams of the client and four resumptions of the call; a tenth would follow immediately.
    tokio::time::timeout(limit, counting).await.unwrap();
    client.close().await.unwrap();
    assert_eq!(server.drain_events(), ["DELETE"]);
}

#[tokio::test]
async fn a_raw_cancel_is_posted_unchanged_and_affects_only_its_request_id() {
    let mut server = ScriptedServer::start(|request| match &*request.label() {
        "POST tools/call" => ScriptedReply::BytesThenStall(SSE_HEAD.into()),
        _ => default_legacy_reply(request),
    })
    .await;
    let client = server.connect(LEGACY).await;
    let mut call = client.call_tool("slow", ()).id(1).start();
    server.request_of(&mut call).await;
    while server.events.try_recv().is_ok() {}

    for id in [json!("1"), json!(true), json!(9), Value::Null] {
        let params = json!({"requestId": id});
        let cancel = bowline::exchange::Notification::new(
            "notifications/cancelled",
            Some(bowline::Json::from(params.clone())),
        );
        client.peer().unwrap().notify(cancel);

        let posted = server.request().await;
        assert_eq!(posted.body["params"], params);
    }
    drop(call);

    let own = server.request().await;
    assert_eq!(own.body["params"]["requestId"], 1);
    assert_eq!(server.drain_events(), [""; 0]);
    let modern = server.connect(MODERN).await;
    assert!(
        modern.peer().is_none(),
        "a modern HTTP client cannot send raw notifications"
    );
}

#[tokio::test]
async fn requests_do_not_wait_for_a_stalled_cancel() {
    let mut server = ScriptedServer::start(|request| match &*request.label() {
        "POST tools/call" if request.body["params"]["name"] == "quick" => {
            reply_with(request, &text_result("quick"))
        }
        "POST tools/call" | "POST notifications/cancelled" => {
            ScriptedReply::BytesThenStall(String::new())
        }
        _ => default_legacy_reply(request),
    })
    .await;
    let client = server.connect(LEGACY).await;
    let slow = || {
        client
            .call_tool("slow", ())
            .idle_timeout(Duration::from_millis(200))
    };

    let (first, second, third) = tokio::join!(
        slow().into_future(),
        slow().into_future(),
        slow().into_future()
    );
    let quick = client.call_tool("quick", ()).await.unwrap();

    for late in [first, second, third] {
        assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
    }
    assert_eq!(quick.text(), "quick");
    let mut cancels = 0;
    while cancels < 3 {
        if server.request().await.label() == "POST notifications/cancelled" {
            cancels += 1;
        }
    }
}

#[tokio::test]
async fn requests_over_http_sse_do_not_wait_for_a_stalled_cancel() {
    let (push, more) = mpsc::unbounded_channel();
    let mut more = Some(more);
    let mut server = ScriptedServer::start(move |request| {
        let is_second = request.head.contains("/messages");
        let answer = match &*request.label() {
            "GET" => {
                let named = format!("{SSE_HEAD}event: endpoint\ndata: /messages\n\n");
                return ScriptedReply::BytesThenMore(named, more.take().unwrap());
            }
            _ if !is_second => return ScriptedReply::Bytes(bare("405 Method Not Allowed")),
            "POST notifications/cancelled" => return ScriptedReply::BytesThenStall(String::new()),
            "POST initialize" => Some(
                json!({"protocolVersion": "2024-11-05", "capabilities": {"tools": {}},
                "serverInfo": {"name": "old", "version": "1"}}),
            ),
            "POST tools/call" if request.body["params"]["name"] == "quick" => {
                Some(text_result("quick"))
            }
            _ => None,
        };
        if let Some(answer) = answer {
            push.send(event(&result(request, &answer))).unwrap();
        }
        ScriptedReply::Bytes(bare("202 Accepted"))
    })
    .await;
    let client = server.connect("2024-11-05").await;
    let slow = client
        .call_tool("slow", ())
        .idle_timeout(Duration::from_millis(200));

    let late = slow.await;
    while server.request().await.label() != "POST notifications/cancelled" {}
    let quick = client.call_tool("quick", ()).await.unwrap();

    assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
    assert_eq!(quick.text(), "quick");
}
