//! Revisions up to 2025-11-25: sessions, GET streams, and cancel notifications.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bowline::client::EraCache;
use bowline::{Client, Error};
use serde_json::json;
use tokio::time::timeout;

use crate::scripted_server::{
    ReceivedRequest, SSE_HEAD, ScriptedReply, ScriptedServer, ServerEvent, bare, event, json,
    json_with, reply_with, result,
};

const SESSION: &str = "Mcp-Session-Id: s1\r\n";

fn initialize_result() -> serde_json::Value {
    initialize_result_of("2025-11-25")
}

fn initialize_result_of(version: &str) -> serde_json::Value {
    json!({"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "old", "version": "1"}})
}

/// Replies to every request but a tool call as legacy servers do.
pub(crate) fn default_legacy_reply(request: &ReceivedRequest) -> ScriptedReply {
    match &*request.label() {
        "POST initialize" => ScriptedReply::Bytes(json_with(
            "200 OK",
            SESSION,
            &result(request, &initialize_result()),
        )),
        "GET" => ScriptedReply::Bytes(bare("405 Method Not Allowed")),
        "DELETE" => ScriptedReply::Bytes(bare("200 OK")),
        "POST server/discover" => ScriptedReply::Bytes(bare("400 Bad Request")),
        _ => ScriptedReply::Bytes(bare("202 Accepted")),
    }
}

#[tokio::test]
async fn a_legacy_server_is_detected_and_its_session_id_is_sent_until_it_is_deleted() {
    let mut server = ScriptedServer::start(|request| match &*request.label() {
        "POST tools/call" => reply_with(request, &json!({"content": []})),
        _ => default_legacy_reply(request),
    })
    .await;

    let client = Client::connect(&server.url).await.unwrap();
    client.call_tool("x", ()).await.unwrap();
    client.close().await.unwrap();

    let mut seen = Vec::new();
    while let Ok(event) = server.events.try_recv() {
        if let ServerEvent::Request(request) = event {
            seen.push((
                request.label(),
                request.header("mcp-session-id").map(str::to_owned),
                request.header("mcp-protocol-version").map(str::to_owned),
            ));
        }
    }
    let find = |label: &str| {
        seen.iter()
            .find(|(own, ..)| own == label)
            .unwrap_or_else(|| panic!("no {label} in {seen:?}"))
    };
    assert_eq!(seen[0].0, "POST server/discover");
    assert_eq!(find("POST initialize").1, None);
    assert_eq!(
        find("POST initialize").2,
        None,
        "the probed version is not sent with the handshake"
    );
    for label in [
        "POST notifications/initialized",
        "POST tools/call",
        "GET",
        "DELETE",
    ] {
        assert_eq!(find(label).1.as_deref(), Some("s1"), "{label}");
        assert_eq!(find(label).2.as_deref(), Some("2025-11-25"), "{label}");
    }
}

#[tokio::test]
async fn dropping_a_call_posts_one_cancel_and_keeps_the_response_open() {
    let mut server = ScriptedServer::start(|request| match &*request.label() {
        "POST tools/call" => ScriptedReply::BytesThenStall(SSE_HEAD.into()),
        _ => default_legacy_reply(request),
    })
    .await;
    let client = server.connect("2025-11-25").await;
    let mut call = client.call_tool("slow", ()).start();
    let id = server.request_of(&mut call).await.body["id"].clone();

    drop(call);

    let cancel = server.request().await;
    assert_eq!(cancel.label(), "POST notifications/cancelled");
    assert_eq!(
        cancel.body["params"],
        json!({"requestId": id, "reason": "caller cancelled"})
    );
    assert_eq!(
        server.drain_events(),
        [""; 0],
        "no other POST is sent, and the response stays open"
    );
}

#[tokio::test]
async fn a_call_with_cancel_on_drop_false_can_still_be_cancelled_with_a_reason() {
    let mut server = ScriptedServer::start(|request| match &*request.label() {
        "POST tools/call" => ScriptedReply::BytesThenStall(SSE_HEAD.into()),
        _ => default_legacy_reply(request),
    })
    .await;
    let client = server.connect("2025-11-25").await;
    let slow = client.call_tool("slow", ()).cancel_on_drop(false);
    let mut call = slow.start();
    let id = server.request_of(&mut call).await.body["id"].clone();

    call.cancel("the user closed the tab");

    let cancel = server.request().await;
    assert_eq!(cancel.label(), "POST notifications/cancelled");
    assert_eq!(
        cancel.body["params"],
        json!({"requestId": id, "reason": "the user closed the tab"})
    );
}

#[tokio::test]
async fn a_request_that_never_reached_a_connection_is_withdrawn() {
    let mut server = ScriptedServer::start(default_legacy_reply).await;
    let client = server.connect("2025-11-25").await;
    while !server.drain_events().contains(&"GET".into()) {
        tokio::task::yield_now().await;
    }

    drop(client.call_tool("slow", ()).start());
    client.close().await.unwrap();

    assert_eq!(server.drain_events(), ["DELETE"]);
}

#[tokio::test]
async fn a_call_that_reuses_a_cancelled_id_waits_until_the_cancel_was_sent() {
    let (push, more) = tokio::sync::mpsc::unbounded_channel();
    let mut more = Some(more);
    let mut server = ScriptedServer::start(move |request| match &*request.label() {
        "POST tools/call" => match more.take() {
            Some(more) => ScriptedReply::BytesThenMore(SSE_HEAD.into(), more),
            None => reply_with(request, &json!({"content": []})),
        },
        "POST notifications/cancelled" => {
            let id = &request.body["params"]["requestId"];
            let error = json!({"code": -32800, "message": "cancelled"});
            let terminator = json!({"jsonrpc": "2.0", "id": id, "error": error});
            push.send(event(&terminator)).unwrap();
            default_legacy_reply(request)
        }
        _ => default_legacy_reply(request),
    })
    .await;
    let client = server.connect("2025-11-25").await;
    let mut first = client.call_tool("slow", ()).id("x").start();
    server.request_of(&mut first).await;

    drop(first);
    let second = client.call_tool("quick", ()).id("x").await;

    assert!(second.is_ok(), "{second:?}");
    let mut seen = server.drain_events();
    seen.retain(|label| label.starts_with("POST"));
    assert_eq!(seen, ["POST notifications/cancelled", "POST tools/call"]);
}

#[tokio::test]
async fn a_closed_stream_is_resumed_after_its_last_event() {
    let mut server = ScriptedServer::start(|request| match (&*request.label(), request.header("last-event-id")) {
        ("POST tools/call", _) => ScriptedReply::BytesThenClose(format!("{SSE_HEAD}id: e1\nretry: 1\ndata:\n\n")),
        ("GET", Some("e1")) => {
            let answer = json!({"jsonrpc": "2.0", "id": 2, "result": {"content": [{"type": "text", "text": "late"}]}});
            ScriptedReply::BytesThenClose(format!("{SSE_HEAD}id: e2\n{}", event(&answer)))
        }
        _ => default_legacy_reply(request),
    })
    .await;
    let client = server.connect("2025-11-25").await;

    let reply = client.call_tool("slow", ()).id(2).await.unwrap();

    assert_eq!(reply.text(), "late");
    assert!(
        server
            .drain_events()
            .iter()
            .filter(|label| *label == "POST tools/call")
            .count()
            == 1
    );
}

#[tokio::test]
async fn a_call_fails_immediately_if_the_retry_delay_exceeds_its_timeout() {
    let server = ScriptedServer::start(|request| match &*request.label() {
        "POST tools/call" => {
            ScriptedReply::BytesThenClose(format!("{SSE_HEAD}id: e1\nretry: 7200000\ndata:\n\n"))
        }
        _ => default_legacy_reply(request),
    })
    .await;
    let client = Client::connect(&server.url).protocol_version("2025-11-25");
    let client = client
        .idle_timeout(Duration::from_secs(7200))
        .await
        .unwrap();
    let hour = Duration::from_secs(3600);

    let call = client.call_tool("slow", ()).timeout(hour).into_future();
    let failed = timeout(Duration::from_secs(60), call).await;

    let error = failed
        .expect("the call does not wait for an hour")
        .unwrap_err();
    assert!(
        matches!(error, Error::Timeout { after } if after == hour),
        "{error}"
    );
}

#[tokio::test]
async fn an_expired_session_is_reopened_once() {
    let mut is_expired = true;
    let mut server = ScriptedServer::start(move |request| match &*request.label() {
        "POST tools/call" if std::mem::take(&mut is_expired) => {
            ScriptedReply::Bytes(bare("404 Not Found"))
        }
        "POST tools/call" => reply_with(request, &json!({"content": []})),
        _ => default_legacy_reply(request),
    })
    .await;
    let client = server.connect("2025-11-25").await;

    client.call_tool("x", ()).await.unwrap();

    let seen: Vec<_> = server
        .drain_events()
        .into_iter()
        .filter(|label| label != "GET")
        .collect();
    assert_eq!(
        seen,
        [
            "POST initialize",
            "POST notifications/initialized",
            "POST tools/call",
            "POST initialize",
            "POST notifications/initialized",
            "POST tools/call"
        ]
    );
}

#[tokio::test]
async fn a_request_without_a_result_fails_only_itself() {
    let server = ScriptedServer::start(|request| match &*request.label() {
        "POST tools/call" if request.body["params"]["name"] == "lost" => {
            ScriptedReply::Bytes(bare("202 Accepted"))
        }
        "POST tools/call" => reply_with(request, &json!({"content": []})),
        _ => default_legacy_reply(request),
    })
    .await;
    let client = server.connect("2025-11-25").await;

    let (lost, found) = tokio::join!(
        client.call_tool("lost", ()).into_future(),
        client.call_tool("found", ()).into_future()
    );

    assert!(matches!(lost, Err(Error::Protocol { .. })));
    assert!(found.is_ok());
}

#[tokio::test]
async fn an_http_sse_server_is_detected_and_used() {
    let (push, more) = tokio::sync::mpsc::unbounded_channel();
    let mut more = Some(more);
    let mut server = ScriptedServer::start(move |request| {
        let path = request.head.split(' ').nth(1);
        match (&*request.label(), path) {
            ("GET", Some("/mcp")) => {
                let named = format!("{SSE_HEAD}event: endpoint\ndata: /messages?id=7\n\n");
                ScriptedReply::BytesThenMore(named, more.take().unwrap())
            }
            (label, Some("/messages?id=7")) => {
                let answer = match label {
                    "POST initialize" => initialize_result_of("2024-11-05"),
                    _ => json!({"content": [{"type": "text", "text": "old"}]}),
                };
                if !request.body["id"].is_null() {
                    push.send(format!(
                        "event: message\n{}",
                        event(&result(request, &answer))
                    ))
                    .unwrap();
                }
                ScriptedReply::Bytes(bare("202 Accepted"))
            }
            _ => ScriptedReply::Bytes(bare("405 Method Not Allowed")),
        }
    })
    .await;

    let client = Client::connect(&server.url).await.unwrap();
    let reply = client.call_tool("x", ()).await.unwrap();

    assert_eq!(client.dialect().version, "2024-11-05");
    assert_eq!(reply.text(), "old");
    drop(client);
    while !server
        .drain_events()
        .contains(&"client disconnected".into())
    {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_cached_legacy_era_skips_the_probe() {
    let mut server = ScriptedServer::start(default_legacy_reply).await;
    let eras = EraCache::new();
    let connect = || Client::connect(&server.url).era_cache(&eras);
    connect().await.unwrap();
    let other = Client::connect(&server.url).era_cache(&EraCache::new());

    connect().await.unwrap();
    other.await.unwrap();

    let requests: Vec<String> = (server.drain_events().into_iter())
        .filter(|label| label == "POST initialize" || label == "POST server/discover")
        .collect();
    let (probe, handshake) = ("POST server/discover", "POST initialize");
    assert_eq!(requests, [probe, handshake, handshake, probe, handshake]);
}

#[tokio::test]
async fn an_upgraded_server_is_probed_again_once() {
    let upgraded = Arc::new(AtomicBool::new(false));
    let is_upgraded = upgraded.clone();
    let mut server = ScriptedServer::start(move |request| {
        if !is_upgraded.load(Ordering::Relaxed) {
            return default_legacy_reply(request);
        }
        match &*request.label() {
            "POST server/discover" => {
                let discovered = json!({"resultType": "complete", "supportedVersions": ["2026-07-28"],
                    "capabilities": {}, "ttlMs": 0, "cacheScope": "public"});
                reply_with(request, &discovered)
            }
            _ => ScriptedReply::Bytes(bare("404 Not Found")),
        }
    })
    .await;
    let eras = EraCache::new();
    let connect = || Client::connect(&server.url).era_cache(&eras);
    let before = connect().await.unwrap().dialect().version;

    upgraded.store(true, Ordering::Relaxed);
    let after = connect().await.unwrap().dialect().version;
    connect().await.unwrap();

    assert_eq!((before, after), ("2025-11-25", "2026-07-28"));
    let handshakes = server.drain_events();
    let handshakes = handshakes
        .iter()
        .filter(|label| *label == "POST initialize");
    assert_eq!(
        handshakes.count(),
        2,
        "the third connection starts with the probe"
    );
}

#[tokio::test]
async fn an_outage_does_not_evict_a_cached_legacy_era() {
    let is_down = Arc::new(AtomicBool::new(false));
    let down = is_down.clone();
    let mut server = ScriptedServer::start(move |request| match down.load(Ordering::Relaxed) {
        true => ScriptedReply::Bytes(bare("503 Service Unavailable")),
        false => default_legacy_reply(request),
    })
    .await;
    let eras = EraCache::new();
    let connect = || Client::connect(&server.url).era_cache(&eras);
    connect().await.unwrap();

    is_down.store(true, Ordering::Relaxed);
    let failed = connect().await;
    is_down.store(false, Ordering::Relaxed);
    connect().await.unwrap();

    assert!(matches!(failed, Err(Error::Transport { .. })), "{failed:?}");
    let probes = server.drain_events();
    let probes = probes
        .iter()
        .filter(|label| *label == "POST server/discover");
    assert_eq!(probes.count(), 1);
}

/// A batch of a notification and the result of a call.
fn batch_with_result(request: &ReceivedRequest) -> serde_json::Value {
    let log = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}});
    let content = json!({"content": [{"type": "text", "text": "batched"}]});
    json!([log, result(request, &content)])
}

#[tokio::test]
async fn a_result_in_a_batch_settles_its_call_in_revisions_with_batches() {
    for as_events in [false, true] {
        let server = ScriptedServer::start(move |request| match &*request.label() {
            "POST initialize" => {
                let response = result(request, &initialize_result_of("2025-03-26"));
                ScriptedReply::Bytes(json_with("200 OK", SESSION, &response))
            }
            "POST tools/call" if as_events => ScriptedReply::BytesThenClose(format!(
                "{SSE_HEAD}{}",
                event(&batch_with_result(request))
            )),
            "POST tools/call" => ScriptedReply::Bytes(json("200 OK", &batch_with_result(request))),
            _ => default_legacy_reply(request),
        })
        .await;
        let connect = Client::connect(&server.url).protocol_version("2025-03-26");
        let client = connect.await.unwrap();

        let reply = client.call_tool("x", ()).await.unwrap();

        assert_eq!(reply.text(), "batched", "as events: {as_events}");
    }
}
