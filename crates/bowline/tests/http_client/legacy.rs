//! Revisions until 2025-11-25: a session, a GET stream, and a cancel that is a message of its own.

use bowline::{Client, Error};
use serde_json::json;

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
