//! Letting go over HTTP, against a server that follows a script: what is posted, when, and what is not.

use std::time::Duration;

use bowline::http::client::HyperSend;
use bowline::{Call, Client, Error};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::legacy::manners;
use crate::scripted::{Arrived, Peer, STREAM, Saw, Say, bare, event, json, result};

const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";

fn text(said: &str) -> Value {
    json!({"resultType": "complete", "content": [{"type": "text", "text": said}]})
}

async fn connect(peer: &Peer, version: &str) -> Client {
    Client::connect(&peer.url).speaking(version).await.unwrap()
}

/// Polls `call` until its request has arrived, and returns that.
async fn arrived(peer: &mut Peer, call: &mut Call) -> Arrived {
    loop {
        tokio::select! {
            biased;
            outcome = &mut *call => panic!("the call ended: {outcome:?}"),
            request = peer.request() => if request.what() == "POST tools/call" { return request },
        }
    }
}

/// Waits for the GET that a legacy client sends on its own account.
async fn settled(peer: &mut Peer) {
    while peer.request().await.what() != "GET" {}
}

#[tokio::test]
async fn resumption_hints_change_nothing_in_the_modern_era() {
    const HINTS: &str = "id: e1\nretry: 1\ndata:\n\n";
    let mut peer = Peer::start(|request| match &request.body["params"]["name"] {
        name if name == "cut" => Say::BytesThenClose(format!("{STREAM}{HINTS}")),
        _ => Say::BytesThenStall(format!("{STREAM}{HINTS}")),
    })
    .await;
    let client = connect(&peer, MODERN).await;

    let mut call = client.call_tool("slow", ()).start();
    arrived(&mut peer, &mut call).await;
    drop(call);
    peer.client_left().await;
    let cut = client.call_tool("cut", ()).await;

    assert!(matches!(cut, Err(Error::Transport { .. })), "{cut:?}");
    assert_eq!(peer.so_far(), ["POST tools/call"]);
}

#[tokio::test]
async fn a_legacy_request_that_may_be_resumed_is_not_cancelled_by_a_lost_connection() {
    let mut peer =
        Peer::start(
            |request| match (&*request.what(), request.header("last-event-id")) {
                ("POST tools/call", _) => {
                    Say::BytesThenClose(format!("{STREAM}id: e1\nretry: 1\ndata:\n\n"))
                }
                ("GET", Some("e1")) => {
                    let answer = json!({"jsonrpc": "2.0", "id": 7, "result": text("late")});
                    Say::BytesThenClose(format!("{STREAM}id: e2\n{}", event(&answer)))
                }
                _ => manners(request),
            },
        )
        .await;
    let client = connect(&peer, LEGACY).await;
    settled(&mut peer).await;

    let reply = client.call_tool("slow", ()).id(7).await.unwrap();

    assert_eq!(reply.text(), "late");
    assert_eq!(peer.so_far(), ["POST tools/call", "GET"]);
}

#[tokio::test]
async fn the_era_a_request_was_sent_under_decides_how_it_is_let_go_of() {
    let mut peer = Peer::start(|request| match &*request.what() {
        "POST tools/call" => Say::BytesThenStall(STREAM.into()),
        _ => manners(request),
    })
    .await;
    let send = HyperSend::plain();
    let old = Client::connect(&peer.url).http(send.clone());
    let old = old.speaking(LEGACY).await.unwrap();
    let mut first = old.call_tool("slow", ()).start();
    arrived(&mut peer, &mut first).await;
    // The same connections, and by now they are known to be modern.
    let new = Client::connect(&peer.url).http(send);
    let new = new.speaking(MODERN).await.unwrap();
    let mut second = new.call_tool("slow", ()).start();
    arrived(&mut peer, &mut second).await;
    while peer.saw.try_recv().is_ok() {}

    drop(first);
    let cancel = peer.request().await;
    drop(second);
    peer.client_left().await;

    assert_eq!(cancel.what(), "POST notifications/cancelled");
    assert_eq!(
        peer.so_far(),
        [""; 0],
        "nothing else is posted, and the first response is not cut"
    );
}

#[tokio::test]
async fn an_opening_that_is_let_go_of_posts_nothing() {
    for version in [Some(LEGACY), None] {
        let mut peer = Peer::start(|_| Say::BytesThenStall(String::new())).await;
        let connect = Client::connect(&peer.url);
        let connect = version
            .into_iter()
            .fold(connect, |connect, version| connect.speaking(version));
        let mut connect = connect.into_future();
        tokio::select! {
            biased;
            opened = &mut connect => panic!("it is open: {opened:?}"),
            _ = peer.request() => {}
        }

        drop(connect);

        peer.client_left().await;
        assert_eq!(peer.so_far(), [""; 0]);
    }
}

#[tokio::test]
async fn an_old_post_that_ends_leaves_the_successor_that_reused_its_id_alone() {
    let late_result = json!({"jsonrpc": "2.0", "id": 7, "result": text("late")});
    let late_error = json!({"jsonrpc": "2.0", "id": 7, "error": {"code": -32800, "message": "no"}});
    for late in [late_result, late_error] {
        let (old, more) = mpsc::unbounded_channel();
        let mut more = Some(more);
        let mut peer = Peer::start(move |request| match &*request.what() {
            "POST tools/call" => match more.take() {
                Some(more) => Say::BytesThenMore(STREAM.into(), more),
                None => Say::Bytes(json("200 OK", &result(request, &text("own")))),
            },
            _ => manners(request),
        })
        .await;
        let client = connect(&peer, LEGACY).await;
        let mut call = client.call_tool("slow", ()).id(7).start();
        arrived(&mut peer, &mut call).await;
        drop(call);
        let successor = client.call_tool("slow", ()).id("7").start();
        while peer.request().await.what() != "POST notifications/cancelled" {}

        old.send(event(&late)).unwrap();

        assert_eq!(successor.await.unwrap().text(), "own");
    }
}

#[tokio::test]
async fn what_is_not_stamped_carries_the_version_that_was_agreed_on_and_a_handshake_carries_none() {
    let mut forgotten = false;
    let mut peer = Peer::start(move |request| match &*request.what() {
        "POST tools/call" if request.body["params"]["name"] == "forgotten" => {
            if std::mem::replace(&mut forgotten, true) {
                Say::Bytes(json("200 OK", &result(request, &text("again"))))
            } else {
                Say::Bytes(bare("404 Not Found"))
            }
        }
        "POST tools/call" => Say::BytesThenStall(STREAM.into()),
        _ => manners(request),
    })
    .await;
    let client = Client::connect(&peer.url).await.unwrap();
    let mut call = client.call_tool("slow", ()).start();
    arrived(&mut peer, &mut call).await;

    drop(call);
    let cancel = loop {
        let request = peer.request().await;
        if request.what() == "POST notifications/cancelled" {
            break request;
        }
    };
    client.call_tool("forgotten", ()).await.unwrap();
    client.close().await.unwrap();

    assert_eq!(cancel.header("mcp-protocol-version"), Some(LEGACY));
    assert_eq!(cancel.header("mcp-session-id"), Some("s1"));
    let mut openings = 0;
    while let Ok(saw) = peer.saw.try_recv() {
        let Saw::Request(request) = saw else { continue };
        let version = request.header("mcp-protocol-version");
        match &*request.what() {
            "POST initialize" => {
                openings += 1;
                assert_eq!((version, request.header("mcp-session-id")), (None, None));
            }
            what => assert_eq!(version, Some(LEGACY), "{what}"),
        }
    }
    assert_eq!(openings, 1, "the session was forgotten once");
}

#[tokio::test]
async fn dropping_a_subscription_closes_its_post_and_the_wire_shows_one_post() {
    let acknowledged = event(&json!({
        "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
        "params": {"notifications": {"toolsListChanged": true},
                   "_meta": {"io.modelcontextprotocol/subscriptionId": "L"}},
    }));
    let mut peer =
        Peer::start(move |_| Say::BytesThenStall(format!("{STREAM}{acknowledged}"))).await;
    let client = connect(&peer, MODERN).await;
    let changes = bowline::client::Changes::new().tools();
    let subscription = client.subscribe(changes).id("L").await.unwrap();

    drop(subscription);

    assert_eq!(peer.request().await.what(), "POST subscriptions/listen");
    peer.client_left().await;
    assert_eq!(peer.so_far(), [""; 0]);
}

#[tokio::test]
async fn a_server_that_closes_its_stream_at_once_is_not_asked_for_ever() {
    let mut peer = Peer::start(|request| match &*request.what() {
        // In good order, and with an event that says nothing.
        "GET" => Say::BytesThenClose(format!("{STREAM}id: e1\nretry: 0\ndata:\n\n")),
        "POST tools/call" => Say::BytesThenClose(format!("{STREAM}id: e2\nretry: 0\ndata:\n\n")),
        _ => manners(request),
    })
    .await;
    let client = connect(&peer, LEGACY).await;

    let patience = Duration::from_secs(20);
    let lost = client.call_tool("slow", ()).total_timeout(patience).await;

    assert!(matches!(lost, Err(Error::Transport { .. })), "{lost:?}");
    let mut gets = 0;
    let counting = async {
        while gets < 9 {
            if peer.request().await.what() == "GET" {
                gets += 1;
            }
        }
    };
    // Five streams of its own, and four more for the call; a tenth would come at once.
    tokio::time::timeout(patience, counting).await.unwrap();
    client.close().await.unwrap();
    assert_eq!(peer.so_far(), ["DELETE"]);
}

#[tokio::test]
async fn a_raw_cancel_is_a_message_like_any_other_and_concerns_only_the_id_it_names() {
    let mut peer = Peer::start(|request| match &*request.what() {
        "POST tools/call" => Say::BytesThenStall(STREAM.into()),
        _ => manners(request),
    })
    .await;
    let client = connect(&peer, LEGACY).await;
    let mut call = client.call_tool("slow", ()).id(1).start();
    arrived(&mut peer, &mut call).await;
    while peer.saw.try_recv().is_ok() {}

    for id in [json!("1"), json!(true), json!(9), Value::Null] {
        let params = json!({"requestId": id});
        let cancel = bowline::exchange::Notification::new(
            "notifications/cancelled",
            Some(bowline::Json::from(params.clone())),
        );
        client.peer().unwrap().notify(cancel);

        let posted = peer.request().await;
        assert_eq!(posted.body["params"], params);
    }
    drop(call);

    let own = peer.request().await;
    assert_eq!(own.body["params"]["requestId"], 1);
    assert_eq!(peer.so_far(), [""; 0]);
    let modern = connect(&peer, MODERN).await;
    assert!(modern.peer().is_none(), "there is no way to send one");
}

#[tokio::test]
async fn sends_do_not_wait_for_a_cancel_that_stalls() {
    let mut peer = Peer::start(|request| match &*request.what() {
        "POST tools/call" if request.body["params"]["name"] == "quick" => {
            Say::Bytes(json("200 OK", &result(request, &text("quick"))))
        }
        "POST tools/call" | "POST notifications/cancelled" => Say::BytesThenStall(String::new()),
        _ => manners(request),
    })
    .await;
    let client = connect(&peer, LEGACY).await;
    let slow = || {
        client
            .call_tool("slow", ())
            .timeout(Duration::from_millis(200))
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
        if peer.request().await.what() == "POST notifications/cancelled" {
            cancels += 1;
        }
    }
}

#[tokio::test]
async fn with_two_endpoints_sends_do_not_wait_for_a_cancel_that_stalls_either() {
    let (push, more) = mpsc::unbounded_channel();
    let mut more = Some(more);
    let mut peer = Peer::start(move |request| {
        let is_second = request.head.contains("/messages");
        let answer = match &*request.what() {
            "GET" => {
                let named = format!("{STREAM}event: endpoint\ndata: /messages\n\n");
                return Say::BytesThenMore(named, more.take().unwrap());
            }
            _ if !is_second => return Say::Bytes(bare("405 Method Not Allowed")),
            "POST notifications/cancelled" => return Say::BytesThenStall(String::new()),
            "POST initialize" => Some(
                json!({"protocolVersion": "2024-11-05", "capabilities": {"tools": {}},
                "serverInfo": {"name": "old", "version": "1"}}),
            ),
            "POST tools/call" if request.body["params"]["name"] == "quick" => Some(text("quick")),
            _ => None,
        };
        if let Some(answer) = answer {
            push.send(event(&result(request, &answer))).unwrap();
        }
        Say::Bytes(bare("202 Accepted"))
    })
    .await;
    let client = connect(&peer, "2024-11-05").await;
    let slow = client
        .call_tool("slow", ())
        .timeout(Duration::from_millis(200));

    let late = slow.await;
    while peer.request().await.what() != "POST notifications/cancelled" {}
    let quick = client.call_tool("quick", ()).await.unwrap();

    assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
    assert_eq!(quick.text(), "quick");
}
