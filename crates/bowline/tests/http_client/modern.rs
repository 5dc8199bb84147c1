//! Revision 2026-07-28: one POST and its response per request.

use std::time::Duration;

use bowline::{Client, Error, ErrorCode};
use serde_json::json;

use crate::scripted_server::{
    ReceivedRequest, SSE_HEAD, ScriptedReply, ScriptedServer, bare, error, event, json, json_with,
    reply_with, result, text_result,
};

const MODERN: &str = "2026-07-28";

#[tokio::test]
async fn a_bearer_token_is_sent_with_every_request_and_a_malformed_one_is_refused() {
    let mut server = ScriptedServer::start(|request| reply_with(request, &text_result("ok"))).await;
    let connect = || Client::connect(&server.url).protocol_version("2026-07-28");

    let malformed = connect().bearer("two\nlines").await.unwrap_err();
    let client = connect().bearer("secret").await.unwrap();
    client.call_tool("x", ()).await.unwrap();

    assert!(matches!(&malformed, Error::Misuse { what } if !what.contains("lines")));
    let request = server.request().await;
    assert_eq!(request.header("authorization"), Some("Bearer secret"));
}

#[tokio::test]
async fn a_header_of_the_builder_is_sent_with_every_request() {
    let mut server = ScriptedServer::start(|request| reply_with(request, &text_result("ok"))).await;
    let connect = Client::connect(&server.url).header("x-region", "eu");
    let client = connect.protocol_version(MODERN).await.unwrap();

    for tool in ["x", "y"] {
        client.call_tool(tool, ()).await.unwrap();
        let request = server.request().await;
        assert_eq!(request.header("x-region"), Some("eu"), "{tool}");
    }
}

#[tokio::test]
async fn the_request_headers_match_the_body() {
    let mut server = ScriptedServer::start(|request| reply_with(request, &text_result("hi"))).await;
    let client = server.connect(MODERN).await;

    let reply = client
        .call_tool("grüß dich", json!({"a": 1}))
        .await
        .unwrap();

    let request = server.request().await;
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
    for bytes in ["", SSE_HEAD] {
        let mut server =
            ScriptedServer::start(move |_| ScriptedReply::BytesThenStall(bytes.into())).await;
        let client = server.connect(MODERN).await;
        let mut call = client.call_tool("slow", ()).start();

        server.request_of(&mut call).await;
        drop(call);
        server.client_disconnected().await;

        assert_eq!(server.drain_events(), [""; 0]);
    }
}

#[tokio::test]
async fn a_timed_out_call_closes_its_post() {
    let mut server =
        ScriptedServer::start(|_| ScriptedReply::BytesThenStall(SSE_HEAD.into())).await;
    let client = server.connect(MODERN).await;

    let outcome = client
        .call_tool("slow", ())
        .idle_timeout(Duration::from_millis(100))
        .await;

    assert!(matches!(outcome, Err(Error::Timeout { .. })));
    server.request().await;
    server.client_disconnected().await;
}

#[tokio::test]
async fn progress_is_delivered_before_the_result() {
    let server = ScriptedServer::start(|request| {
        let token = &request.body["params"]["_meta"]["progressToken"];
        let progress = |at| {
            let params = json!({"progressToken": token, "progress": at});
            event(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))
        };
        let answer = event(&result(request, &text_result("done")));
        ScriptedReply::BytesThenClose(format!(
            "{SSE_HEAD}: keep-alive\n\n{}{}{answer}",
            progress(1),
            progress(2)
        ))
    })
    .await;
    let client = server.connect(MODERN).await;
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
async fn events_of_unknown_types_are_ignored() {
    let server = ScriptedServer::start(|request| {
        let answer = event(&result(request, &text_result("done")));
        ScriptedReply::BytesThenClose(format!(
            "{SSE_HEAD}event: weather\ndata: sunny\n\nevent: weather\n{answer}event: message\n{answer}"
        ))
    })
    .await;
    let client = server.connect(MODERN).await;

    let reply = client.call_tool("slow", ()).await.unwrap();

    assert_eq!(reply.text(), "done");
}

#[tokio::test]
async fn a_json_rpc_error_is_read_at_any_status() {
    let server = ScriptedServer::start(|request| {
        ScriptedReply::Bytes(json("404 Not Found", &error(request, -32601, &json!(null))))
    })
    .await;
    let client = server.connect(MODERN).await;

    let outcome = client.request_raw("no/such", ()).await;

    assert!(matches!(outcome, Err(Error::Rpc(error)) if error.code == ErrorCode::METHOD_NOT_FOUND));
}

#[tokio::test]
async fn an_error_at_an_error_status_fails_its_post_regardless_of_its_id() {
    let server = ScriptedServer::start(|_| {
        let error = json!({"code": -32600, "message": "a handshake is missing"});
        let body = json!({"jsonrpc": "2.0", "id": "server-error", "error": error});
        ScriptedReply::Bytes(json("400 Bad Request", &body))
    })
    .await;
    let client = server.connect(MODERN).await;

    let outcome = client.call_tool("x", ()).await;

    assert!(
        matches!(&outcome, Err(Error::Rpc(error)) if error.message == "a handshake is missing"),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn a_challenge_causes_an_unauthorized_error() {
    let server = ScriptedServer::start(|_| {
        let head = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer scope=\"x\"\r\nContent-Length: 0\r\n\r\n";
        ScriptedReply::Bytes(head.into())
    })
    .await;

    let direct = server.connect(MODERN).await.call_tool("x", ()).await;
    let probed = Client::connect(&server.url).await;

    assert!(
        matches!(direct, Err(Error::Unauthorized { challenges, .. }) if challenges[0].scope() == Some("x"))
    );
    assert!(matches!(probed, Err(Error::Unauthorized { .. })));
}

#[tokio::test]
async fn an_outage_during_the_probe_is_a_transport_error() {
    let mut server =
        ScriptedServer::start(|_| ScriptedReply::Bytes(bare("503 Service Unavailable"))).await;

    let outcome = Client::connect(&server.url).await;

    assert!(matches!(outcome, Err(Error::Transport { .. })));
    assert_eq!(server.drain_events(), ["POST server/discover"]);
}

#[tokio::test]
async fn a_probe_without_a_response_times_out() {
    let mut server = ScriptedServer::start(|_| ScriptedReply::BytesThenStall(String::new())).await;

    let outcome = Client::connect(&server.url)
        .connect_timeout(Duration::from_millis(100))
        .await;

    assert!(matches!(outcome, Err(Error::Transport { .. })));
    server.request().await;
    server.client_disconnected().await;
}

#[tokio::test]
async fn a_header_mismatch_lists_the_tools_again_and_resends_once() {
    let schema = json!({"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}});
    let mut server = ScriptedServer::start(move |request| match &*request.label() {
        "POST tools/list" => {
            let bad = json!({"type": "object", "properties": {"n": {"type": "number", "x-mcp-header": "N"}}});
            let tools = json!([{"name": "query", "inputSchema": schema}, {"name": "broken", "inputSchema": bad}]);
            reply_with(request, &json!({"resultType": "complete", "tools": tools}))
        }
        _ if request.header("mcp-param-region") == Some("us") => reply_with(request, &text_result("ok")),
        _ => ScriptedReply::Bytes(json("400 Bad Request", &error(request, -32020, &json!(null)))),
    })
    .await;
    let client = server.connect(MODERN).await;

    let reply = client
        .call_tool("query", json!({"region": "us"}))
        .await
        .unwrap();
    let tools = client.list_tools().await.unwrap();

    assert_eq!(reply.text(), "ok");
    assert_eq!(
        tools.len(),
        1,
        "a tool with an invalid `x-mcp-header` is left out"
    );
    assert_eq!(
        server.drain_events(),
        [
            "POST tools/call",
            "POST tools/list",
            "POST tools/call",
            "POST tools/list"
        ]
    );
}

#[tokio::test]
async fn a_header_mismatch_lists_every_page_of_the_tools_again() {
    let schema = json!({"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}});
    let mut server = ScriptedServer::start(move |request| match &*request.label() {
        "POST tools/list" => {
            let page = match request.body["params"]["cursor"].as_str() {
                None => json!({"tools": [], "nextCursor": "2"}),
                Some("2") => json!({"tools": [], "nextCursor": "3"}),
                _ => json!({"tools": [{"name": "query", "inputSchema": schema}]}),
            };
            let mut page = page;
            page["resultType"] = json!("complete");
            reply_with(request, &page)
        }
        _ if request.header("mcp-param-region") == Some("us") => {
            reply_with(request, &text_result("ok"))
        }
        _ => ScriptedReply::Bytes(json(
            "400 Bad Request",
            &error(request, -32020, &json!(null)),
        )),
    })
    .await;
    let client = server.connect(MODERN).await;

    let reply = client.call_tool("query", json!({"region": "us"})).await;

    assert_eq!(reply.unwrap().text(), "ok");
    let listed = server.drain_events();
    assert_eq!(
        listed
            .iter()
            .filter(|label| *label == "POST tools/list")
            .count(),
        3
    );
}

#[tokio::test]
async fn redirects_are_followed_within_the_origin_only() {
    let redirect = |to: &str| {
        format!("HTTP/1.1 307 Temporary Redirect\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")
    };
    let server = ScriptedServer::start(move |request: &ReceivedRequest| {
        match request.head.split(' ').nth(1) {
            Some("/mcp") => ScriptedReply::Bytes(redirect("/moved")),
            Some("/moved") => reply_with(request, &text_result("found")),
            _ => ScriptedReply::Bytes(redirect("http://elsewhere.invalid/mcp")),
        }
    })
    .await;

    let within = server.connect(MODERN).await.call_tool("x", ()).await;
    let away = server.url.replace("/mcp", "/away");
    let across = Client::connect(&away)
        .protocol_version(MODERN)
        .await
        .unwrap()
        .call_tool("x", ())
        .await;

    assert_eq!(within.unwrap().text(), "found");
    assert!(matches!(across, Err(Error::Protocol { .. })));
}

#[tokio::test]
async fn the_probe_detects_a_modern_server() {
    let server = ScriptedServer::start(|request| {
        let found = json!({
            "resultType": "complete", "supportedVersions": [MODERN], "capabilities": {"tools": {}},
            "ttlMs": 0, "cacheScope": "private",
        });
        ScriptedReply::Bytes(json_with(
            "200 OK",
            "X-Extra: yes\r\n",
            &result(request, &found),
        ))
    })
    .await;

    let client = Client::connect(&server.url).await.unwrap();

    assert!(client.dialect().is_modern());
    assert!(client.server_capabilities().unwrap().tools.is_some());
}

#[tokio::test]
async fn a_version_rejected_and_yet_listed_as_supported_is_tried_once_more() {
    for refusals in [1, usize::MAX] {
        let supported = json!({"supported": [MODERN], "requested": MODERN});
        let mut refused = 0;
        let mut server = ScriptedServer::start(move |request| {
            if refused < refusals {
                refused += 1;
                return ScriptedReply::Bytes(json(
                    "400 Bad Request",
                    &error(request, -32022, &supported),
                ));
            }
            reply_with(request, &text_result("hi"))
        })
        .await;
        let client = server.connect(MODERN).await;

        let outcome = client.call_tool("greet", ()).await;

        assert_eq!(outcome.is_ok(), refusals == 1);
        assert_eq!(
            server.drain_events(),
            ["POST tools/call", "POST tools/call"]
        );
    }
}

#[tokio::test]
async fn a_dropped_call_with_cancel_on_drop_false_keeps_its_post_open() {
    let (finish, more) = tokio::sync::mpsc::unbounded_channel();
    let mut more = Some(more);
    let mut server = ScriptedServer::start(move |request| match more.take() {
        Some(more) => ScriptedReply::BytesThenMore(SSE_HEAD.into(), more),
        None => reply_with(request, &text_result("second")),
    })
    .await;
    let client = server.connect(MODERN).await;
    let mut call = client.call_tool("slow", ()).cancel_on_drop(false).start();
    server.request_of(&mut call).await;

    drop(call);
    let second = client.call_tool("quick", ()).await.unwrap();

    assert_eq!(second.text(), "second");
    assert_eq!(
        server.drain_events(),
        ["POST tools/call"],
        "the first response stays open"
    );
    let answer = json!({"jsonrpc": "2.0", "id": 1, "result": text_result("ignored")});
    finish.send(event(&answer)).unwrap();
    server.client_disconnected().await;
}

#[tokio::test]
async fn a_call_with_cancel_on_drop_false_can_still_be_cancelled_with_a_reason() {
    let mut server =
        ScriptedServer::start(|_| ScriptedReply::BytesThenStall(SSE_HEAD.into())).await;
    let client = server.connect(MODERN).await;
    let mut call = client.call_tool("slow", ()).cancel_on_drop(false).start();
    server.request_of(&mut call).await;

    call.cancel("the user closed the tab");

    server.client_disconnected().await;
}

#[tokio::test]
async fn a_timed_out_call_with_cancel_on_abandon_false_keeps_its_post_open() {
    let (finish, more) = tokio::sync::mpsc::unbounded_channel();
    let mut more = Some(more);
    let mut server = ScriptedServer::start(move |request| match request.header("mcp-name") {
        Some("slow") => ScriptedReply::BytesThenMore(SSE_HEAD.into(), more.take().unwrap()),
        _ => reply_with(request, &text_result("quick")),
    })
    .await;
    let client = server.connect(MODERN).await;

    let slow = client.call_tool("slow", ()).cancel_on_drop(false);
    let outcome = slow.idle_timeout(Duration::from_millis(50)).await;
    client.call_tool("quick", ()).await.unwrap();

    assert!(matches!(outcome, Err(Error::Timeout { .. })));
    // A closed response would cause a disconnect event before or between the two requests.
    for _ in ["slow", "quick"] {
        assert_eq!(server.request().await.label(), "POST tools/call");
    }
    let answer = json!({"jsonrpc": "2.0", "id": 1, "result": text_result("ignored")});
    finish.send(event(&answer)).unwrap();
    server.client_disconnected().await;
}
