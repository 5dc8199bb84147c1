//! A server of ours over HTTP, seen by somebody who speaks plain HTTP: the door, and the answers, in every era.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::exchange::Dialects;
use bowline::http::legacy::Legacy;
use bowline::{CallToolResult, ErrorCode, RpcError, Server, Tool};
use bowline_core::era::Dialect;
use http_body_util::{BodyExt, Full};
use scenarios::{Scenario, World, scenario};
use serde_json::{Value, json};
use tower_service::Service;

use crate::support::{anything, echo, hanging, tally_of, waiting};

pub(crate) fn scenarios() -> Vec<Scenario> {
    let all = door().into_iter().chain(answers()).chain(modern());
    all.map(Scenario::over_http).collect()
}

fn door() -> Vec<Scenario> {
    vec![
        scenario!(
            a_page_from_elsewhere_is_refused,
            "transport:streamable-http:origin-validation",
            "hosting:http:dns-rebinding",
        ),
        scenario!(
            a_request_must_be_json_and_its_answer_readable,
            "hosting:http:accept-406",
            "hosting:http:content-type-415",
            "hosting:http:method-405",
        ),
        scenario!(
            a_body_that_is_no_message_is_refused,
            "hosting:http:parse-error-400",
            "hosting:http:batch",
        ),
        scenario!(
            a_version_that_nobody_speaks_is_refused_in_words_that_clients_look_for,
            "hosting:http:protocol-version-400",
            "hosting:http:protocol-version-rejection-literal",
        ),
        scenario!(
            whoever_mounts_the_service_sees_what_it_refuses,
            "hosting:http:onerror",
        ),
    ]
}

fn answers() -> Vec<Scenario> {
    vec![
        scenario!(
            an_answer_comes_where_the_request_went_and_ends_the_stream,
            "hosting:http:response-same-connection",
            "hosting:http:sse-close-after-response",
            "transport:streamable-http:notifications",
        ),
        scenario!(
            an_answer_that_comes_at_once_is_plain_json,
            "hosting:http:json-response-mode",
            "transport:streamable-http:json-response",
        ),
        scenario!(
            a_slow_answer_to_somebody_who_reads_only_json_is_waited_for,
            "transport:streamable-http:json-response",
        ),
    ]
}

fn modern() -> Vec<Scenario> {
    let all = vec![
        scenario!(
            a_call_without_a_handshake_names_no_conversation,
            "hosting:http:modern:tools-call-stateless",
            "hosting:http:modern:no-session-id",
            "hosting:stateless:no-reuse",
        ),
        scenario!(
            what_the_newest_version_does_not_have_is_not_found,
            "hosting:http:modern:initialize-removed",
            "hosting:http:modern:removed-method-status-404",
        ),
        scenario!(
            the_same_url_serves_clients_with_a_handshake,
            "hosting:http:modern:legacy-fallthrough",
        ),
        scenario!(
            a_handler_that_panics_is_an_internal_error_without_details,
            "hosting:http:modern:handler-exception-internal-error",
        ),
        scenario!(
            an_introduction_has_the_name_of_the_server_in_its_meta_only,
            "hosting:http:modern:discover-response-shape",
        ),
        scenario!(
            a_request_without_its_envelope_is_refused,
            "hosting:http:modern:envelope-missing-key-status-400",
        ),
        scenario!(
            the_errors_of_handlers_have_the_status_of_their_code,
            "hosting:http:modern:handler-error-status-via-table",
        ),
        scenario!(
            a_notification_is_accepted_and_an_answer_is_not,
            "hosting:http:modern:notification-post-202",
        ),
        scenario!(
            a_lost_connection_cancels_its_request_and_no_other,
            "client-transport:http:cancel-closes-stream",
        ),
    ];
    all.into_iter().map(Scenario::modern).collect()
}

async fn a_page_from_elsewhere_is_refused(world: World) {
    let plain = world.plain(hanging().http()).await.open().await;
    let call = || plain.call(1, "echo");

    let page = call().header("origin", "https://evil.example").await;
    let rebound = call().header("host", "evil.example").await;
    let local = call().header("origin", "http://localhost:3000").await;

    assert_eq!(page.status(), 403);
    let told = page.json().await;
    let told = told["error"]["message"].as_str().unwrap();
    assert!(told.contains("allow_origin"), "{told}");
    assert_eq!(rebound.status(), 403);
    assert_eq!(local.status(), 200);
}

async fn a_request_must_be_json_and_its_answer_readable(world: World) {
    let plain = world.plain(hanging().http()).await.open().await;
    let call = || plain.call(1, "echo");

    let unreadable = call().header("accept", "text/html").await;
    let no_json = call().header("content-type", "text/plain").await;
    let another_method = call().by("PUT").await;

    assert_eq!(unreadable.status(), 406);
    assert_eq!(no_json.status(), 415);
    assert_eq!(another_method.status(), 405);
    let allowed = another_method.header("allow").unwrap();
    assert!(allowed.contains("POST"), "{allowed}");
}

async fn a_body_that_is_no_message_is_refused(world: World) {
    let plain = world.plain(hanging().http()).await.open().await;

    let no_json = plain.post_text("{").await;
    let no_message = plain.post(&json!({"jsonrpc": "2.0", "id": 1})).await;
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let batch = plain.post(&json!([ping])).await;

    assert_eq!(no_json.status(), 400);
    assert_eq!(no_json.json().await["error"]["code"], -32700);
    assert_eq!(no_message.status(), 400);
    assert_eq!(no_message.json().await["error"]["code"], -32600);
    if world.dialect().batches {
        assert_eq!(batch.json().await[0]["id"], 1);
    } else {
        assert_eq!(batch.status(), 400);
        assert_eq!(batch.json().await["error"]["code"], -32600);
    }
}

async fn a_version_that_nobody_speaks_is_refused_in_words_that_clients_look_for(world: World) {
    let plain = world.plain(hanging().http()).await.open().await;
    let unknown = if world.is_modern() {
        "2031-01-01"
    } else {
        "1999-01-01"
    };
    let meta = json!({"io.modelcontextprotocol/protocolVersion": unknown});
    let params = if world.is_modern() {
        json!({"_meta": meta})
    } else {
        json!({})
    };
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params});

    let refused = plain
        .post(&list)
        .header("mcp-protocol-version", unknown)
        .await;

    assert_eq!(refused.status(), 400);
    let told = refused.json().await["error"]["message"].to_string();
    assert!(told.contains("Unsupported protocol version"), "{told}");
}

async fn whoever_mounts_the_service_sees_what_it_refuses(world: World) {
    let mut service = hanging().http();
    let request = |host: &str| {
        http::Request::post("/mcp")
            .header("host", host)
            .header("content-type", "application/json")
            .header("mcp-protocol-version", world.version())
            .body(Full::<bytes::Bytes>::from("{"))
            .unwrap()
    };

    // What a layer around the service does.
    let stranger = service.call(request("evil.example")).await.unwrap();
    let garbled = service.call(request("localhost")).await.unwrap();

    assert_eq!(stranger.status(), 403);
    assert_eq!(garbled.status(), 400);
    let why = garbled.into_body().collect().await.unwrap().to_bytes();
    let why: Value = serde_json::from_slice(&why).unwrap();
    assert_eq!(why["error"]["code"], -32700);
}

async fn an_answer_comes_where_the_request_went_and_ends_the_stream(world: World) {
    let plain = world.plain(waiting().http()).await.open().await;
    let mut one = plain.call_with_progress(1, "wait").await;
    let mut other = plain.call_with_progress(2, "wait").await;
    let (of_one, of_other) = (one.message().await, other.message().await);

    plain.call(3, "release").await.answer().await;
    plain.call(4, "release").await.answer().await;
    let (one, other) = (one.messages().await, other.messages().await);

    assert_eq!(of_one["params"]["progressToken"], 1);
    assert_eq!(of_other["params"]["progressToken"], 2);
    assert_eq!((one.len(), &one[0]["id"]), (1, &json!(1)));
    assert_eq!((other.len(), &other[0]["id"]), (1, &json!(2)));
}

async fn an_answer_that_comes_at_once_is_plain_json(world: World) {
    let service = Server::new("s", "1").tool(echo("echo")).http();
    let service = service.legacy(Legacy::sessions().json_answers());
    let plain = world.plain(service).await.open().await;

    let heard = plain.call(1, "echo").await;

    assert_eq!(heard.status(), 200);
    assert_eq!(heard.json().await["id"], 1);
}

async fn a_slow_answer_to_somebody_who_reads_only_json_is_waited_for(world: World) {
    let service = waiting().http().commit_after(Duration::ZERO);
    let plain = world.plain(service).await.open().await;
    let call = plain.call_with_progress(1, "wait");
    let slow = call.header("accept", "application/json").into_future();

    let (heard, _) = tokio::join!(slow, async { plain.call(2, "release").await });

    let answer = heard.json().await;
    assert_eq!(answer["id"], 1);
    assert_eq!(answer["result"]["content"][0]["text"], "released");
}

async fn a_call_without_a_handshake_names_no_conversation(world: World) {
    let plain = world.plain(hanging().http()).await;

    let first = plain.call(1, "echo").await;
    let again = plain
        .call(1, "echo")
        .header("mcp-session-id", "made-up")
        .await;

    assert_eq!(first.header("mcp-session-id"), None);
    assert_eq!(first.json().await["result"]["resultType"], "complete");
    assert_eq!(again.header("mcp-session-id"), None);
    assert_eq!(
        again.json().await["id"],
        1,
        "nothing is kept, the id included"
    );
}

async fn what_the_newest_version_does_not_have_is_not_found(world: World) {
    let plain = world.plain(hanging().http()).await;

    for gone in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
    ] {
        let heard = plain.request(1, gone, json!({})).await;

        assert_eq!(heard.status(), 404, "{gone}");
        assert_eq!(heard.json().await["error"]["code"], -32601, "{gone}");
    }
}

async fn the_same_url_serves_clients_with_a_handshake(world: World) {
    let plain = world.plain(hanging().http()).await;

    for dialect in Dialects::legacy().iter() {
        let older = plain.speaking(dialect).open().await;
        let answer = older.call(1, "echo").await.answer().await;

        assert_eq!(answer["result"]["content"][0]["text"], "{}", "{dialect}");
        assert_eq!(answer["result"].get("resultType"), None, "{dialect}");
    }
    assert_eq!(plain.call(1, "echo").await.status(), 200);
}

async fn a_handler_that_panics_is_an_internal_error_without_details(world: World) {
    let clumsy = Tool::raw("clumsy", anything(), async |_, _| {
        let none: Vec<CallToolResult> = Vec::new();
        Ok(none[7].clone())
    });
    let plain = world.plain(Server::new("s", "1").tool(clumsy).http()).await;

    let heard = plain.call(1, "clumsy").await;

    assert_eq!(heard.status(), 200);
    let error = heard.json().await["error"].clone();
    assert_eq!(error["code"], -32603);
    assert!(!error.to_string().contains("index"), "{error}");
}

async fn an_introduction_has_the_name_of_the_server_in_its_meta_only(world: World) {
    let plain = world.plain(hanging().http()).await;

    let heard = plain.request(1, "server/discover", json!({})).await;

    let result = heard.json().await["result"].clone();
    let name = &result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"];
    assert_eq!(*name, "hanging");
    assert_eq!(result.get("serverInfo"), None);
    assert_eq!(result["supportedVersions"][0], Dialect::LATEST.version);
    assert!(result["capabilities"]["tools"].is_object(), "{result}");
}

async fn a_request_without_its_envelope_is_refused(world: World) {
    let plain = world.plain(hanging().http()).await;
    let meta = json!({"io.modelcontextprotocol/protocolVersion": world.version()});

    for meta in [json!({}), meta] {
        let params = json!({"_meta": meta});
        let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params});
        let heard = plain.post(&list).header("mcp-method", "tools/list").await;

        assert_eq!(heard.status(), 400);
        assert_eq!(heard.json().await["error"]["code"], -32602);
    }
}

async fn the_errors_of_handlers_have_the_status_of_their_code(world: World) {
    let codes = Arc::new(Mutex::new(Vec::<i64>::new()));
    let next = codes.clone();
    let fails = Tool::raw("fails", anything(), move |_, _| {
        let code = next.lock().unwrap().pop().unwrap();
        async move { Err(RpcError::new(ErrorCode(code), "no")) }
    });
    let plain = world.plain(Server::new("s", "1").tool(fails).http()).await;

    for (code, status) in [
        (-32601, 404),
        (-32600, 400),
        (-32021, 400),
        (-32603, 200),
        (-32602, 200),
        (7, 200),
    ] {
        codes.lock().unwrap().push(code);
        let heard = plain.call(1, "fails").await;

        assert_eq!(heard.status(), status, "{code}");
        assert_eq!(heard.json().await["error"]["code"], code);
    }
}

async fn a_notification_is_accepted_and_an_answer_is_not(world: World) {
    let plain = world.plain(hanging().http()).await;

    let told = plain.cancel(1).await;
    let answer = json!({"jsonrpc": "2.0", "id": 1, "result": {}});
    let answered = plain.post(&answer).await;

    assert_eq!(told.status(), 202);
    assert_eq!(told.text().await, "");
    assert_eq!(answered.status(), 400);
    let refused = answered.json().await;
    assert_eq!(refused["error"]["code"], -32600);
    assert_eq!(refused.get("id").unwrap_or(&Value::Null), &Value::Null);
}

async fn a_lost_connection_cancels_its_request_and_no_other(world: World) {
    let plain = world.plain(hanging().http()).await;
    let mut lost = plain.call_with_progress(1, "hang").await;
    let mut kept = plain.call_with_progress(2, "hang").await;
    lost.message().await;
    kept.message().await;

    drop(lost);

    tally_of(&plain, 2, 1).await;
    drop(kept);
    tally_of(&plain, 2, 2).await;
}
