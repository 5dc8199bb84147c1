//! Revisions until 2025-11-25: a session, a GET stream, and a cancel that is a message of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bowline::client::Verdicts;
use bowline::{Client, Error};
use serde_json::json;
use tokio::time::timeout;

use crate::scripted::{Arrived, Peer, STREAM, Say, bare, event, json, json_with, result};

const SESSION: &str = "Mcp-Session-Id: s1\r\n";

fn greeting() -> serde_json::Value {
    greeting_of("2025-11-25")
}

fn greeting_of(version: &str) -> serde_json::Value {
    json!({"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "old", "version": "1"}})
}

/// What any legacy server says to everything but a tool call.
pub(crate) fn manners(request: &Arrived) -> Say {
    match &*request.what() {
        "POST initialize" => {
            Say::Bytes(json_with("200 OK", SESSION, &result(request, &greeting())))
        }
        "GET" => Say::Bytes(bare("405 Method Not Allowed")),
        "DELETE" => Say::Bytes(bare("200 OK")),
        "POST server/discover" => Say::Bytes(bare("400 Bad Request")),
        _ => Say::Bytes(bare("202 Accepted")),
    }
}

#[tokio::test]
async fn an_old_server_is_found_and_its_session_repeated_and_ended() {
    let mut peer = Peer::start(|request| match &*request.what() {
        "POST tools/call" => Say::Bytes(json("200 OK", &result(request, &json!({"content": []})))),
        _ => manners(request),
    })
    .await;

    let client = Client::connect(&peer.url).await.unwrap();
    client.call_tool("x", ()).await.unwrap();
    client.close().await.unwrap();

    let mut seen = Vec::new();
    while let Ok(saw) = peer.saw.try_recv() {
        if let crate::scripted::Saw::Request(request) = saw {
            seen.push((
                request.what(),
                request.header("mcp-session-id").map(str::to_owned),
                request.header("mcp-protocol-version").map(str::to_owned),
            ));
        }
    }
    let find = |what: &str| {
        seen.iter()
            .find(|(own, ..)| own == what)
            .unwrap_or_else(|| panic!("no {what} in {seen:?}"))
    };
    assert_eq!(seen[0].0, "POST server/discover");
    assert_eq!(find("POST initialize").1, None);
    assert_eq!(
        find("POST initialize").2,
        None,
        "a probed version must not leak onto the handshake"
    );
    for what in [
        "POST notifications/initialized",
        "POST tools/call",
        "GET",
        "DELETE",
    ] {
        assert_eq!(find(what).1.as_deref(), Some("s1"), "{what}");
        assert_eq!(find(what).2.as_deref(), Some("2025-11-25"), "{what}");
    }
}

#[tokio::test]
async fn dropping_a_call_posts_one_cancel_and_does_not_cut_the_response() {
    let mut peer = Peer::start(|request| match &*request.what() {
        "POST tools/call" => Say::BytesThenStall(STREAM.into()),
        _ => manners(request),
    })
    .await;
    let client = Client::connect(&peer.url)
        .speaking("2025-11-25")
        .await
        .unwrap();
    let mut call = client.call_tool("slow", ()).start();
    let id = loop {
        tokio::select! {
            biased;
            outcome = &mut call => panic!("the call ended: {outcome:?}"),
            request = peer.request() => if request.what() == "POST tools/call" { break request.body["id"].clone() },
        }
    };

    drop(call);

    let cancel = peer.request().await;
    assert_eq!(cancel.what(), "POST notifications/cancelled");
    assert_eq!(
        cancel.body["params"],
        json!({"requestId": id, "reason": "caller cancelled"})
    );
    assert_eq!(
        peer.so_far(),
        [""; 0],
        "nothing more is posted, and the response is not cut"
    );
}

#[tokio::test]
async fn who_opted_out_can_still_cancel_with_a_reason() {
    let mut peer = Peer::start(|request| match &*request.what() {
        "POST tools/call" => Say::BytesThenStall(STREAM.into()),
        _ => manners(request),
    })
    .await;
    let client = Client::connect(&peer.url)
        .speaking("2025-11-25")
        .await
        .unwrap();
    let slow = client.call_tool("slow", ()).cancel_on_abandon(false);
    let mut call = slow.start();
    let id = loop {
        tokio::select! {
            biased;
            outcome = &mut call => panic!("the call ended: {outcome:?}"),
            request = peer.request() => if request.what() == "POST tools/call" { break request.body["id"].clone() },
        }
    };

    call.cancel("the user closed the tab");

    let cancel = peer.request().await;
    assert_eq!(cancel.what(), "POST notifications/cancelled");
    assert_eq!(
        cancel.body["params"],
        json!({"requestId": id, "reason": "the user closed the tab"})
    );
}

#[tokio::test]
async fn a_request_that_never_reached_a_connection_is_withdrawn() {
    let mut peer = Peer::start(manners).await;
    let client = Client::connect(&peer.url)
        .speaking("2025-11-25")
        .await
        .unwrap();
    while !peer.so_far().contains(&"GET".into()) {
        tokio::task::yield_now().await;
    }

    drop(client.call_tool("slow", ()).start());
    client.close().await.unwrap();

    assert_eq!(peer.so_far(), ["DELETE"]);
}

#[tokio::test]
async fn a_call_with_the_id_of_one_that_was_cancelled_waits_until_that_has_left() {
    let (push, more) = tokio::sync::mpsc::unbounded_channel();
    let mut more = Some(more);
    let mut peer = Peer::start(move |request| match &*request.what() {
        "POST tools/call" => match more.take() {
            Some(more) => Say::BytesThenMore(STREAM.into(), more),
            None => Say::Bytes(json("200 OK", &result(request, &json!({"content": []})))),
        },
        "POST notifications/cancelled" => {
            let id = &request.body["params"]["requestId"];
            let error = json!({"code": -32800, "message": "cancelled"});
            let terminator = json!({"jsonrpc": "2.0", "id": id, "error": error});
            push.send(event(&terminator)).unwrap();
            manners(request)
        }
        _ => manners(request),
    })
    .await;
    let client = Client::connect(&peer.url)
        .speaking("2025-11-25")
        .await
        .unwrap();
    let mut first = client.call_tool("slow", ()).id("x").start();
    tokio::select! {
        biased;
        outcome = &mut first => panic!("the call ended: {outcome:?}"),
        () = async { while peer.request().await.what() != "POST tools/call" {} } => {}
    }

    drop(first);
    let second = client.call_tool("quick", ()).id("x").await;

    assert!(second.is_ok(), "{second:?}");
    let mut seen = peer.so_far();
    seen.retain(|what| what.starts_with("POST"));
    assert_eq!(seen, ["POST notifications/cancelled", "POST tools/call"]);
}

#[tokio::test]
async fn a_cut_stream_is_resumed_after_its_last_event() {
    let mut peer = Peer::start(|request| match (&*request.what(), request.header("last-event-id")) {
        ("POST tools/call", _) => Say::BytesThenClose(format!("{STREAM}id: e1\nretry: 1\ndata:\n\n")),
        ("GET", Some("e1")) => {
            let answer = json!({"jsonrpc": "2.0", "id": 2, "result": {"content": [{"type": "text", "text": "late"}]}});
            Say::BytesThenClose(format!("{STREAM}id: e2\n{}", event(&answer)))
        }
        _ => manners(request),
    })
    .await;
    let client = Client::connect(&peer.url)
        .speaking("2025-11-25")
        .await
        .unwrap();

    let reply = client.call_tool("slow", ()).id(2).await.unwrap();

    assert_eq!(reply.text(), "late");
    assert!(
        peer.so_far()
            .iter()
            .filter(|what| *what == "POST tools/call")
            .count()
            == 1
    );
}

#[tokio::test]
async fn a_call_that_has_less_time_than_its_server_wants_it_to_wait_fails_at_once() {
    let peer = Peer::start(|request| match &*request.what() {
        "POST tools/call" => {
            Say::BytesThenClose(format!("{STREAM}id: e1\nretry: 7200000\ndata:\n\n"))
        }
        _ => manners(request),
    })
    .await;
    let client = Client::connect(&peer.url).speaking("2025-11-25");
    let client = client.timeout(Duration::from_secs(7200)).await.unwrap();
    let hour = Duration::from_secs(3600);

    let call = client
        .call_tool("slow", ())
        .total_timeout(hour)
        .into_future();
    let failed = timeout(Duration::from_secs(60), call).await;

    let error = failed.expect("it does not wait for an hour").unwrap_err();
    assert!(
        matches!(error, Error::Timeout { after } if after == hour),
        "{error}"
    );
}

#[tokio::test]
async fn a_forgotten_session_is_opened_again_once() {
    let mut forgotten = true;
    let mut peer = Peer::start(move |request| match &*request.what() {
        "POST tools/call" if std::mem::take(&mut forgotten) => Say::Bytes(bare("404 Not Found")),
        "POST tools/call" => Say::Bytes(json("200 OK", &result(request, &json!({"content": []})))),
        _ => manners(request),
    })
    .await;
    let client = Client::connect(&peer.url)
        .speaking("2025-11-25")
        .await
        .unwrap();

    client.call_tool("x", ()).await.unwrap();

    let seen: Vec<_> = peer
        .so_far()
        .into_iter()
        .filter(|what| what != "GET")
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
async fn a_lost_request_costs_only_itself() {
    let peer = Peer::start(|request| match &*request.what() {
        "POST tools/call" if request.body["params"]["name"] == "lost" => {
            Say::Bytes(bare("202 Accepted"))
        }
        "POST tools/call" => Say::Bytes(json("200 OK", &result(request, &json!({"content": []})))),
        _ => manners(request),
    })
    .await;
    let client = Client::connect(&peer.url)
        .speaking("2025-11-25")
        .await
        .unwrap();

    let (lost, found) = tokio::join!(
        client.call_tool("lost", ()).into_future(),
        client.call_tool("found", ()).into_future()
    );

    assert!(matches!(lost, Err(Error::Protocol { .. })));
    assert!(found.is_ok());
}

#[tokio::test]
async fn a_server_with_two_endpoints_is_found_and_spoken_to() {
    let (push, more) = tokio::sync::mpsc::unbounded_channel();
    let mut more = Some(more);
    let mut peer = Peer::start(move |request| {
        let path = request.head.split(' ').nth(1);
        match (&*request.what(), path) {
            ("GET", Some("/mcp")) => {
                let named = format!("{STREAM}event: endpoint\ndata: /messages?id=7\n\n");
                Say::BytesThenMore(named, more.take().unwrap())
            }
            (what, Some("/messages?id=7")) => {
                let answer = match what {
                    "POST initialize" => greeting_of("2024-11-05"),
                    _ => json!({"content": [{"type": "text", "text": "old"}]}),
                };
                if !request.body["id"].is_null() {
                    push.send(format!(
                        "event: message\n{}",
                        event(&result(request, &answer))
                    ))
                    .unwrap();
                }
                Say::Bytes(bare("202 Accepted"))
            }
            _ => Say::Bytes(bare("405 Method Not Allowed")),
        }
    })
    .await;

    let client = Client::connect(&peer.url).await.unwrap();
    let reply = client.call_tool("x", ()).await.unwrap();

    assert_eq!(client.dialect().version, "2024-11-05");
    assert_eq!(reply.text(), "old");
    drop(client);
    while !peer.so_far().contains(&"client left".into()) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_server_that_was_found_to_be_old_is_not_probed_again() {
    let mut peer = Peer::start(manners).await;
    let verdicts = Verdicts::new();
    let connect = || Client::connect(&peer.url).verdicts(&verdicts);
    connect().await.unwrap();
    let other = Client::connect(&peer.url).verdicts(&Verdicts::new());

    connect().await.unwrap();
    other.await.unwrap();

    let asked: Vec<String> = (peer.so_far().into_iter())
        .filter(|what| what == "POST initialize" || what == "POST server/discover")
        .collect();
    let (probe, handshake) = ("POST server/discover", "POST initialize");
    assert_eq!(asked, [probe, handshake, handshake, probe, handshake]);
}

#[tokio::test]
async fn a_server_that_is_no_longer_old_is_probed_once_more() {
    let upgraded = Arc::new(AtomicBool::new(false));
    let is_upgraded = upgraded.clone();
    let mut peer = Peer::start(move |request| {
        if !is_upgraded.load(Ordering::Relaxed) {
            return manners(request);
        }
        match &*request.what() {
            "POST server/discover" => {
                let hello = json!({"resultType": "complete", "supportedVersions": ["2026-07-28"],
                    "capabilities": {}, "ttlMs": 0, "cacheScope": "public"});
                Say::Bytes(json("200 OK", &result(request, &hello)))
            }
            _ => Say::Bytes(bare("404 Not Found")),
        }
    })
    .await;
    let verdicts = Verdicts::new();
    let connect = || Client::connect(&peer.url).verdicts(&verdicts);
    let before = connect().await.unwrap().dialect().version;

    upgraded.store(true, Ordering::Relaxed);
    let after = connect().await.unwrap().dialect().version;
    connect().await.unwrap();

    assert_eq!((before, after), ("2025-11-25", "2026-07-28"));
    let handshakes = peer.so_far();
    let handshakes = handshakes.iter().filter(|what| *what == "POST initialize");
    assert_eq!(handshakes.count(), 2, "the third connection did not try it");
}

#[tokio::test]
async fn an_old_server_that_is_down_is_still_an_old_one() {
    let is_down = Arc::new(AtomicBool::new(false));
    let down = is_down.clone();
    let mut peer = Peer::start(move |request| match down.load(Ordering::Relaxed) {
        true => Say::Bytes(bare("503 Service Unavailable")),
        false => manners(request),
    })
    .await;
    let verdicts = Verdicts::new();
    let connect = || Client::connect(&peer.url).verdicts(&verdicts);
    connect().await.unwrap();

    is_down.store(true, Ordering::Relaxed);
    let failed = connect().await;
    is_down.store(false, Ordering::Relaxed);
    connect().await.unwrap();

    assert!(matches!(failed, Err(Error::Transport { .. })), "{failed:?}");
    let probes = peer.so_far();
    let probes = probes.iter().filter(|what| *what == "POST server/discover");
    assert_eq!(probes.count(), 1);
}

/// Answers a call by a batch: a notification, then the answer.
fn in_a_batch(request: &Arrived) -> serde_json::Value {
    let log = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}});
    let content = json!({"content": [{"type": "text", "text": "batched"}]});
    json!([log, result(request, &content)])
}

#[tokio::test]
async fn an_answer_that_comes_in_a_batch_is_an_answer_where_the_revision_has_batches() {
    for as_events in [false, true] {
        let peer = Peer::start(move |request| match &*request.what() {
            "POST initialize" => {
                let greeting = result(request, &greeting_of("2025-03-26"));
                Say::Bytes(json_with("200 OK", SESSION, &greeting))
            }
            "POST tools/call" if as_events => {
                Say::BytesThenClose(format!("{STREAM}{}", event(&in_a_batch(request))))
            }
            "POST tools/call" => Say::Bytes(json("200 OK", &in_a_batch(request))),
            _ => manners(request),
        })
        .await;
        let connect = Client::connect(&peer.url).speaking("2025-03-26");
        let client = connect.await.unwrap();

        let reply = client.call_tool("x", ()).await.unwrap();

        assert_eq!(reply.text(), "batched", "as events: {as_events}");
    }
}
