//! Connections without a client: the headers of tool calls, which only HTTP has, and the streams of legacy servers.

use bowline::Client;
use bowline::client::Connection;
use bowline::exchange::{Answer, CallOptions, Channel, Request};
use bowline::{Error, Json, Result};
use serde_json::{Value, json};

use crate::scripted_server::{
    ReceivedRequest, ScriptedReply, ScriptedServer, error, json, reply_with, text_result,
};

async fn connect(server: &ScriptedServer) -> Connection {
    let connect = Client::connect(&server.url).protocol_version("2026-07-28");
    connect.connection().await.unwrap()
}

async fn answer(connection: &Connection, method: &'static str, params: Value) -> Result<Value> {
    let request = Request::new(method, Json::from(params), connection.caller());
    let exchange = connection.open(request, CallOptions::default());
    match exchange.answer().await? {
        Answer::Complete(result) => Ok(result.decode().unwrap()),
        other => panic!("expected a complete result, got {other:?}"),
    }
}

/// A tool whose argument `region` is mirrored.
fn query() -> Value {
    let region = json!({"type": "string", "x-mcp-header": "Region"});
    json!({"name": "query", "inputSchema": {"type": "object", "properties": {"region": region}}, "unknown": [1]})
}

/// Answers a call with the right header, and rejects others.
fn check_header(request: &ReceivedRequest) -> ScriptedReply {
    match request.header("mcp-param-region") {
        Some("us") => reply_with(request, &text_result("ok")),
        _ => ScriptedReply::Bytes(json(
            "400 Bad Request",
            &error(request, -32020, &json!(null)),
        )),
    }
}

fn call_params() -> Value {
    json!({"name": "query", "arguments": {"region": "us"}})
}

#[tokio::test]
async fn headers_are_learned_from_a_list_that_passes_and_invalid_tools_are_left_out_of_it() {
    let mut server = ScriptedServer::start(|request| match &*request.label() {
        "POST tools/list" => {
            let number = json!({"type": "number", "x-mcp-header": "not a token"});
            let bad = json!({"name": "broken", "inputSchema": {"properties": {"n": number}}});
            let page = json!({"resultType": "complete", "tools": [bad, query()], "nextCursor": "2",
                "com.example/unknown": {"a": 1}});
            reply_with(request, &page)
        }
        _ => check_header(request),
    })
    .await;
    let connection = connect(&server).await;

    let page = answer(&connection, "tools/list", json!({})).await.unwrap();
    let called = answer(&connection, "tools/call", call_params()).await;

    assert_eq!(
        page,
        json!({"resultType": "complete", "tools": [query()], "nextCursor": "2", "com.example/unknown": {"a": 1}})
    );
    assert_eq!(called.unwrap()["content"][0]["text"], "ok");
    let sent = server.drain_events();
    assert_eq!(sent, ["POST tools/list", "POST tools/call"]);
}

#[tokio::test]
async fn a_rejected_header_lists_every_page_until_the_tool_is_found_and_sends_the_call_again() {
    let mut server = ScriptedServer::start(|request| match &*request.label() {
        "POST tools/list" => {
            let (tools, next) = match request.body["params"]["cursor"].as_str() {
                None => (json!([]), "2"),
                Some("2") => (json!([query()]), "3"),
                _ => (json!([]), "4"),
            };
            let page = json!({"resultType": "complete", "tools": tools, "nextCursor": next});
            reply_with(request, &page)
        }
        _ => check_header(request),
    })
    .await;
    let connection = connect(&server).await;

    let called = answer(&connection, "tools/call", call_params()).await;

    assert_eq!(called.unwrap()["content"][0]["text"], "ok");
    assert_eq!(
        server.drain_events(),
        [
            "POST tools/call",
            "POST tools/list",
            "POST tools/list",
            "POST tools/call"
        ]
    );
}

#[tokio::test]
async fn a_rejected_header_that_no_list_explains_is_an_error_after_a_bounded_number_of_pages() {
    let mut server = ScriptedServer::start(|request| match &*request.label() {
        "POST tools/list" => {
            let cursor = request.body["params"]["cursor"].as_str();
            let next = cursor.map_or(0, |cursor| cursor.parse::<u32>().unwrap()) + 1;
            let page =
                json!({"resultType": "complete", "tools": [], "nextCursor": next.to_string()});
            reply_with(request, &page)
        }
        _ => check_header(request),
    })
    .await;
    let connection = connect(&server).await;

    let called = answer(&connection, "tools/call", call_params()).await;

    assert!(matches!(called, Err(Error::Rpc(error)) if error.code.0 == -32020));
    let sent = server.drain_events();
    assert_eq!(sent.len(), 101, "one call, 100 pages");
}
