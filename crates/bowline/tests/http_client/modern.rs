//! Revision 2026-07-28: a POST and its response are an exchange.

use std::time::Duration;

use bowline::{Client, Error, ErrorCode};
use serde_json::json;

use crate::scripted::{Arrived, Peer, STREAM, Say, bare, error, event, json, json_with, result};

fn text(said: &str) -> serde_json::Value {
    json!({"resultType": "complete", "content": [{"type": "text", "text": said}]})
}

async fn connect(peer: &Peer) -> Client {
    Client::connect(&peer.url)
        .speaking("2026-07-28")
        .await
        .unwrap()
}

#[tokio::test]
async fn the_headers_say_what_the_body_says() {
    let mut peer =
        Peer::start(|request| Say::Bytes(json("200 OK", &result(request, &text("hi"))))).await;
    let client = connect(&peer).await;

    let reply = client
        .call_tool("grüß dich", json!({"a": 1}))
        .await
        .unwrap();

    let request = peer.request().await;
    let meta = &request.body["params"]["_meta"];
    assert_eq!(reply.text(), "hi");
    assert_eq!(
        request.header("mcp-protocol-version"),
        meta["io.modelcontextprotocol/protocolVersion"].as_str()
    );
    assert_eq!(request.header("mcp-method"), Some("tools/call"));
    assert_eq!(
        request.header("mcp-name"),
        Some("=?base64?Z3LDvMOfIGRpY2g=?=")
    );
    assert_eq!(
        request.header("accept"),
        Some("application/json, text/event-stream")
    );
}

#[tokio::test]
async fn dropping_a_call_closes_its_post_and_nothing_further_is_posted() {
    for said in ["", STREAM] {
        let mut peer = Peer::start(move |_| Say::BytesThenStall(said.into())).await;
        let client = connect(&peer).await;
        let mut call = client.call_tool("slow", ()).start();

        tokio::select! {
            biased;
            outcome = &mut call => panic!("the call ended: {outcome:?}"),
            request = peer.request() => assert_eq!(request.what(), "POST tools/call"),
        }
        drop(call);
        peer.client_left().await;

        assert_eq!(peer.so_far(), [""; 0]);
    }
}

#[tokio::test]
async fn a_calls_own_timeout_closes_its_post() {
    let mut peer = Peer::start(|_| Say::BytesThenStall(STREAM.into())).await;
    let client = connect(&peer).await;

    let outcome = client
        .call_tool("slow", ())
        .timeout(Duration::from_millis(100))
        .await;

    assert!(matches!(outcome, Err(Error::Timeout { .. })));
    peer.request().await;
    peer.client_left().await;
}

#[tokio::test]
async fn progress_comes_before_the_answer_on_one_stream() {
    let peer = Peer::start(|request| {
        let token = &request.body["params"]["_meta"]["progressToken"];
        let progress = |at| {
            let params = json!({"progressToken": token, "progress": at});
            event(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))
        };
        let answer = event(&result(request, &text("done")));
        Say::BytesThenClose(format!(
            "{STREAM}: keep-alive\n\n{}{}{answer}",
            progress(1),
            progress(2)
        ))
    })
    .await;
    let client = connect(&peer).await;
    let (sender, mut seen) = tokio::sync::mpsc::unbounded_channel();

    let reply = client
        .call_tool("slow", ())
        .on_progress(move |report| sender.send(report.progress).unwrap())
        .await
        .unwrap();

    assert_eq!(reply.text(), "done");
    assert_eq!((seen.try_recv(), seen.try_recv()), (Ok(1.0), Ok(2.0)));
}

#[tokio::test]
async fn events_of_types_that_are_not_known_are_ignored() {
    let peer = Peer::start(|request| {
        let answer = event(&result(request, &text("done")));
        Say::BytesThenClose(format!(
            "{STREAM}event: weather\ndata: sunny\n\nevent: weather\n{answer}event: message\n{answer}"
        ))
    })
    .await;
    let client = connect(&peer).await;

    let reply = client.call_tool("slow", ()).await.unwrap();

    assert_eq!(reply.text(), "done");
}

#[tokio::test]
async fn an_error_body_counts_at_any_status() {
    let peer = Peer::start(|request| {
        Say::Bytes(json("404 Not Found", &error(request, -32601, &json!(null))))
    })
    .await;
    let client = connect(&peer).await;

    let outcome = client.raw("no/such", ()).await;

    assert!(
        matches!(outcome, Err(Error::Peer(error)) if error.code == ErrorCode::METHOD_NOT_FOUND)
    );
}

#[tokio::test]
async fn an_error_at_an_error_status_is_about_its_own_post_whatever_id_it_names() {
    let peer = Peer::start(|_| {
        let error = json!({"code": -32600, "message": "a handshake is missing"});
        let body = json!({"jsonrpc": "2.0", "id": "server-error", "error": error});
        Say::Bytes(json("400 Bad Request", &body))
    })
    .await;
    let client = connect(&peer).await;

    let outcome = client.call_tool("x", ()).await;

    assert!(
        matches!(&outcome, Err(Error::Peer(error)) if error.message == "a handshake is missing"),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn a_challenge_is_an_error_of_its_own() {
    let peer = Peer::start(|_| {
        let head = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer scope=\"x\"\r\nContent-Length: 0\r\n\r\n";
        Say::Bytes(head.into())
    })
    .await;

    let direct = connect(&peer).await.call_tool("x", ()).await;
    let probed = Client::connect(&peer.url).await;

    assert!(
        matches!(direct, Err(Error::Unauthorized { challenges, .. }) if challenges[0].scope() == Some("x"))
    );
    assert!(matches!(probed, Err(Error::Unauthorized { .. })));
}

#[tokio::test]
async fn an_outage_is_no_verdict_on_the_era() {
    let mut peer = Peer::start(|_| Say::Bytes(bare("503 Service Unavailable"))).await;

    let outcome = Client::connect(&peer.url).await;

    assert!(matches!(outcome, Err(Error::Transport { .. })));
    assert_eq!(peer.so_far(), ["POST server/discover"]);
}

#[tokio::test]
async fn a_server_that_is_silent_on_the_probe_does_not_hang_it() {
    let mut peer = Peer::start(|_| Say::BytesThenStall(String::new())).await;

    let outcome = Client::connect(&peer.url)
        .probe_timeout(Duration::from_millis(100))
        .await;

    assert!(matches!(
        outcome,
        Err(Error::Timeout { .. } | Error::Transport { .. })
    ));
    peer.request().await;
    peer.client_left().await;
}

#[tokio::test]
async fn a_header_mismatch_lists_the_tools_again_and_resends_once() {
    let schema = json!({"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}});
    let mut peer = Peer::start(move |request| match &*request.what() {
        "POST tools/list" => {
            let bad = json!({"type": "object", "properties": {"n": {"type": "number", "x-mcp-header": "N"}}});
            let tools = json!([{"name": "query", "inputSchema": schema}, {"name": "broken", "inputSchema": bad}]);
            Say::Bytes(json("200 OK", &result(request, &json!({"resultType": "complete", "tools": tools}))))
        }
        _ if request.header("mcp-param-region") == Some("us") => Say::Bytes(json("200 OK", &result(request, &text("ok")))),
        _ => Say::Bytes(json("400 Bad Request", &error(request, -32020, &json!(null)))),
    })
    .await;
    let client = connect(&peer).await;

    let reply = client
        .call_tool("query", json!({"region": "us"}))
        .await
        .unwrap();
    let tools = client.list_tools().await.unwrap();

    assert_eq!(reply.text(), "ok");
    assert_eq!(
        tools.len(),
        1,
        "a tool whose annotations break the rules is left out"
    );
    assert_eq!(
        peer.so_far(),
        [
            "POST tools/call",
            "POST tools/list",
            "POST tools/call",
            "POST tools/list"
        ]
    );
}

#[tokio::test]
async fn a_header_mismatch_has_every_page_of_the_tools_listed_again() {
    let schema = json!({"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}});
    let mut peer = Peer::start(move |request| match &*request.what() {
        "POST tools/list" => {
            let page = match request.body["params"]["cursor"].as_str() {
                None => json!({"tools": [], "nextCursor": "2"}),
                Some("2") => json!({"tools": [], "nextCursor": "3"}),
                _ => json!({"tools": [{"name": "query", "inputSchema": schema}]}),
            };
            let mut page = page;
            page["resultType"] = json!("complete");
            Say::Bytes(json("200 OK", &result(request, &page)))
        }
        _ if request.header("mcp-param-region") == Some("us") => {
            Say::Bytes(json("200 OK", &result(request, &text("ok"))))
        }
        _ => Say::Bytes(json(
            "400 Bad Request",
            &error(request, -32020, &json!(null)),
        )),
    })
    .await;
    let client = connect(&peer).await;

    let reply = client.call_tool("query", json!({"region": "us"})).await;

    assert_eq!(reply.unwrap().text(), "ok");
    let listed = peer.so_far();
    assert_eq!(
        listed
            .iter()
            .filter(|what| *what == "POST tools/list")
            .count(),
        3
    );
}

#[tokio::test]
async fn redirects_are_followed_within_the_origin_only() {
    let redirect = |to: &str| {
        format!("HTTP/1.1 307 Temporary Redirect\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")
    };
    let peer = Peer::start(
        move |request: &Arrived| match request.head.split(' ').nth(1) {
            Some("/mcp") => Say::Bytes(redirect("/moved")),
            Some("/moved") => Say::Bytes(json("200 OK", &result(request, &text("found")))),
            _ => Say::Bytes(redirect("http://elsewhere.invalid/mcp")),
        },
    )
    .await;

    let within = connect(&peer).await.call_tool("x", ()).await;
    let away = peer.url.replace("/mcp", "/away");
    let across = Client::connect(&away)
        .speaking("2026-07-28")
        .await
        .unwrap()
        .call_tool("x", ())
        .await;

    assert_eq!(within.unwrap().text(), "found");
    assert!(matches!(across, Err(Error::Protocol { .. })));
}

#[tokio::test]
async fn the_probe_finds_a_modern_server() {
    let peer = Peer::start(|request| {
        let found = json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
            "ttlMs": 0, "cacheScope": "private",
        });
        Say::Bytes(json_with("200 OK", "X-Extra: yes\r\n", &result(request, &found)))
    })
    .await;

    let client = Client::connect(&peer.url).await.unwrap();

    assert!(client.dialect().is_modern());
    assert!(client.capabilities().unwrap().tools.is_some());
}

#[tokio::test]
async fn a_version_that_is_refused_and_yet_supported_is_tried_once_more() {
    for refusals in [1, usize::MAX] {
        let supported = json!({"supported": ["2026-07-28"], "requested": "2026-07-28"});
        let mut refused = 0;
        let mut peer = Peer::start(move |request| {
            if refused < refusals {
                refused += 1;
                return Say::Bytes(json("400 Bad Request", &error(request, -32022, &supported)));
            }
            Say::Bytes(json("200 OK", &result(request, &text("hi"))))
        })
        .await;
        let client = connect(&peer).await;

        let outcome = client.call_tool("greet", ()).await;

        assert_eq!(outcome.is_ok(), refusals == 1);
        assert_eq!(peer.so_far(), ["POST tools/call", "POST tools/call"]);
    }
}

#[tokio::test]
async fn a_call_that_opted_out_of_cancelling_is_let_go_of_without_a_word() {
    let (finish, more) = tokio::sync::mpsc::unbounded_channel();
    let mut more = Some(more);
    let mut peer = Peer::start(move |request| match more.take() {
        Some(more) => Say::BytesThenMore(STREAM.into(), more),
        None => Say::Bytes(json("200 OK", &result(request, &text("second")))),
    })
    .await;
    let client = connect(&peer).await;
    let mut call = client
        .call_tool("slow", ())
        .cancel_on_abandon(false)
        .start();
    tokio::select! {
        biased;
        outcome = &mut call => panic!("the call ended: {outcome:?}"),
        request = peer.request() => assert_eq!(request.what(), "POST tools/call"),
    }

    drop(call);
    let second = client.call_tool("quick", ()).await.unwrap();

    assert_eq!(second.text(), "second");
    assert_eq!(
        peer.so_far(),
        ["POST tools/call"],
        "the first response was not cut"
    );
    let answer = json!({"jsonrpc": "2.0", "id": 1, "result": text("unheard")});
    finish.send(event(&answer)).unwrap();
    peer.client_left().await;
}

#[tokio::test]
async fn who_opted_out_can_still_cancel_with_a_reason() {
    let mut peer = Peer::start(|_| Say::BytesThenStall(STREAM.into())).await;
    let client = connect(&peer).await;
    let mut call = client
        .call_tool("slow", ())
        .cancel_on_abandon(false)
        .start();
    tokio::select! {
        biased;
        outcome = &mut call => panic!("the call ended: {outcome:?}"),
        request = peer.request() => assert_eq!(request.what(), "POST tools/call"),
    }

    call.cancel("the user closed the tab");

    peer.client_left().await;
}

#[tokio::test]
async fn a_call_that_opted_out_and_takes_too_long_goes_on_unheard() {
    let (finish, more) = tokio::sync::mpsc::unbounded_channel();
    let mut more = Some(more);
    let mut peer = Peer::start(move |request| match request.header("mcp-name") {
        Some("slow") => Say::BytesThenMore(STREAM.into(), more.take().unwrap()),
        _ => Say::Bytes(json("200 OK", &result(request, &text("quick")))),
    })
    .await;
    let client = connect(&peer).await;

    let slow = client.call_tool("slow", ()).cancel_on_abandon(false);
    let outcome = slow.timeout(Duration::from_millis(50)).await;
    client.call_tool("quick", ()).await.unwrap();

    assert!(matches!(outcome, Err(Error::Timeout { .. })));
    // Had its response been cut, that would be seen between the two or in their place.
    for _ in ["slow", "quick"] {
        assert_eq!(peer.request().await.what(), "POST tools/call");
    }
    let answer = json!({"jsonrpc": "2.0", "id": 1, "result": text("unheard")});
    finish.send(event(&answer)).unwrap();
    peer.client_left().await;
}
