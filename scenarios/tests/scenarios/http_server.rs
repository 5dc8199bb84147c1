//! The HTTP server against a raw HTTP client: request validation and responses, in every version.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::exchange::Dialects;
use bowline::http::HttpService;
use bowline::http::legacy::Legacy;
use bowline::{CallToolResult, ErrorCode, RpcError, Server, Tool};
use bowline_core::era::Dialect;
use http_body_util::{BodyExt, Full};
use scenarios::{Scenario, ScenarioEnv, scenario};
use serde_json::{Value, json};
use tower_service::Service;

use crate::support::{any_object, echo, hanging_server, wait_for_handlers_raw, waiting_server};

pub(crate) fn scenarios() -> Vec<Scenario> {
    let all = validation().into_iter().chain(responses()).chain(modern());
    all.map(Scenario::over_http).collect()
}

fn validation() -> Vec<Scenario> {
    vec![
        scenario!(
            a_foreign_origin_or_host_is_rejected,
            "transport:streamable-http:origin-validation",
            "hosting:http:dns-rebinding",
        ),
        scenario!(
            an_unacceptable_method_content_type_or_accept_header_is_rejected,
            "hosting:http:accept-406",
            "hosting:http:content-type-415",
            "hosting:http:method-405",
        ),
        scenario!(
            a_malformed_body_is_rejected,
            "hosting:http:parse-error-400",
            "hosting:http:batch",
        ),
        scenario!(
            an_unsupported_version_is_rejected_with_the_expected_message,
            "hosting:http:protocol-version-400",
            "hosting:http:protocol-version-rejection-literal",
        ),
        scenario!(
            a_layer_around_the_service_sees_rejected_requests,
            "hosting:http:onerror",
        ),
    ]
}

fn responses() -> Vec<Scenario> {
    vec![
        scenario!(
            a_response_is_sent_on_the_stream_of_its_request_and_ends_it,
            "hosting:http:response-same-connection",
            "hosting:http:sse-close-after-response",
            "transport:streamable-http:notifications",
        ),
        scenario!(
            an_immediate_response_is_json,
            "hosting:http:json-response-mode",
            "transport:streamable-http:json-response",
        ),
        scenario!(
            a_client_that_accepts_only_json_gets_json_from_a_slow_handler,
            "transport:streamable-http:json-response",
        ),
    ]
}

fn modern() -> Vec<Scenario> {
    let all = vec![
        scenario!(
            a_modern_call_has_no_session_id,
            "hosting:http:modern:tools-call-stateless",
            "hosting:http:modern:no-session-id",
            "hosting:stateless:no-reuse",
        ),
        scenario!(
            removed_methods_are_not_found,
            "hosting:http:modern:initialize-removed",
            "hosting:http:modern:removed-method-status-404",
        ),
        scenario!(
            the_same_url_serves_legacy_clients,
            "hosting:http:modern:legacy-fallthrough",
        ),
        scenario!(
            a_panicking_handler_is_an_internal_error_without_details,
            "hosting:http:modern:handler-exception-internal-error",
        ),
        scenario!(
            the_discover_result_has_the_server_info_only_in_its_meta,
            "hosting:http:modern:discover-response-shape",
        ),
        scenario!(
            a_request_without_its_envelope_is_rejected,
            "hosting:http:modern:envelope-missing-key-status-400",
        ),
        scenario!(
            handler_errors_have_the_http_status_of_their_code,
            "hosting:http:modern:handler-error-status-via-table",
        ),
        scenario!(
            a_posted_notification_is_accepted_and_a_response_is_rejected,
            "hosting:http:modern:notification-post-202",
        ),
        scenario!(
            a_lost_connection_cancels_only_its_own_request,
            "client-transport:http:cancel-closes-stream",
        ),
    ];
    all.into_iter().map(Scenario::modern).collect()
}

async fn a_foreign_origin_or_host_is_rejected(env: ScenarioEnv) {
    let client = env.raw_client(&hanging_server()).await.open().await;
    let call = || client.call(1, "echo");

    let page = call().header("origin", "https://evil.example").await;
    let rebound = call().header("host", "evil.example").await;
    let local = call().header("origin", "http://localhost:3000").await;

    assert_eq!(page.status(), 403);
    let body = page.json().await;
    let message = body["error"]["message"].as_str().unwrap();
    assert!(message.contains("allowed origins"), "{message}");
    assert_eq!(rebound.status(), 403);
    assert_eq!(local.status(), 200);
}

async fn an_unacceptable_method_content_type_or_accept_header_is_rejected(env: ScenarioEnv) {
    let client = env.raw_client(&hanging_server()).await.open().await;
    let call = || client.call(1, "echo");

    let unreadable = call().header("accept", "text/html").await;
    let no_json = call().header("content-type", "text/plain").await;
    let another_method = call().method("PUT").await;

    assert_eq!(unreadable.status(), 406);
    assert_eq!(no_json.status(), 415);
    assert_eq!(another_method.status(), 405);
    let allowed = another_method.header("allow").unwrap();
    assert!(allowed.contains("POST"), "{allowed}");
}

async fn a_malformed_body_is_rejected(env: ScenarioEnv) {
    let client = env.raw_client(&hanging_server()).await.open().await;

    let no_json = client.post_text("{").await;
    let no_message = client.post(&json!({"jsonrpc": "2.0", "id": 1})).await;
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let batch = client.post(&json!([ping])).await;

    assert_eq!(no_json.status(), 400);
    assert_eq!(no_json.json().await["error"]["code"], -32700);
    assert_eq!(no_message.status(), 400);
    assert_eq!(no_message.json().await["error"]["code"], -32600);
    if env.dialect().batches {
        assert_eq!(batch.json().await[0]["id"], 1);
    } else {
        assert_eq!(batch.status(), 400);
        assert_eq!(batch.json().await["error"]["code"], -32600);
    }
}

async fn an_unsupported_version_is_rejected_with_the_expected_message(env: ScenarioEnv) {
    let client = env.raw_client(&hanging_server()).await.open().await;
    let unknown = if env.is_modern() {
        "2031-01-01"
    } else {
        "1999-01-01"
    };
    let meta = json!({"io.modelcontextprotocol/protocolVersion": unknown});
    let params = if env.is_modern() {
        json!({"_meta": meta})
    } else {
        json!({})
    };
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params});

    let refused = client
        .post(&list)
        .header("mcp-protocol-version", unknown)
        .await;

    assert_eq!(refused.status(), 400);
    let message = refused.json().await["error"]["message"].to_string();
    assert!(
        message.contains("Unsupported protocol version"),
        "{message}"
    );
}

async fn a_layer_around_the_service_sees_rejected_requests(env: ScenarioEnv) {
    let mut service = hanging_server().http();
    let request = |host: &str| {
        http::Request::post("/mcp")
            .header("host", host)
            .header("content-type", "application/json")
            .header("mcp-protocol-version", env.version())
            .body(Full::<bytes::Bytes>::from("{"))
            .unwrap()
    };

    // A layer calls the service like this.
    let foreign_host = service.call(request("evil.example")).await.unwrap();
    let malformed = service.call(request("localhost")).await.unwrap();

    assert_eq!(foreign_host.status(), 403);
    assert_eq!(malformed.status(), 400);
    let body = malformed.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["error"]["code"], -32700);
}

async fn a_response_is_sent_on_the_stream_of_its_request_and_ends_it(env: ScenarioEnv) {
    let client = env.raw_client(&waiting_server()).await.open().await;
    let mut one = client.call_with_progress(1, "wait").await;
    let mut other = client.call_with_progress(2, "wait").await;
    let (of_one, of_other) = (one.message().await, other.message().await);

    client.call(3, "release").await.answer().await;
    client.call(4, "release").await.answer().await;
    let (one, other) = (one.messages().await, other.messages().await);

    assert_eq!(of_one["params"]["progressToken"], 1);
    assert_eq!(of_other["params"]["progressToken"], 2);
    assert_eq!((one.len(), &one[0]["id"]), (1, &json!(1)));
    assert_eq!((other.len(), &other[0]["id"]), (1, &json!(2)));
}

async fn an_immediate_response_is_json(env: ScenarioEnv) {
    let server = Server::new("s", "1").tool(echo("echo"));
    let json = |http: HttpService| http.legacy(Legacy::sessions().json_responses());
    let client = env.raw_client_with(&server, json).await.open().await;

    let response = client.call(1, "echo").await;

    assert_eq!(response.status(), 200);
    assert_eq!(response.json().await["id"], 1);
}

async fn a_client_that_accepts_only_json_gets_json_from_a_slow_handler(env: ScenarioEnv) {
    let at_once = |http: HttpService| http.stream_after(Duration::ZERO);
    let client = env.raw_client_with(&waiting_server(), at_once).await;
    let client = client.open().await;
    let call = client.call_with_progress(1, "wait");
    let slow = call.header("accept", "application/json").into_future();

    let (response, _) = tokio::join!(slow, async { client.call(2, "release").await });

    let answer = response.json().await;
    assert_eq!(answer["id"], 1);
    assert_eq!(answer["result"]["content"][0]["text"], "released");
}

async fn a_modern_call_has_no_session_id(env: ScenarioEnv) {
    let client = env.raw_client(&hanging_server()).await;

    let first = client.call(1, "echo").await;
    let again = client
        .call(1, "echo")
        .header("mcp-session-id", "made-up")
        .await;

    assert_eq!(first.header("mcp-session-id"), None);
    assert_eq!(first.json().await["result"]["resultType"], "complete");
    assert_eq!(again.header("mcp-session-id"), None);
    assert_eq!(
        again.json().await["id"],
        1,
        "the server keeps no state, so the id can be reused"
    );
}

async fn removed_methods_are_not_found(env: ScenarioEnv) {
    let client = env.raw_client(&hanging_server()).await;

    for gone in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
    ] {
        let response = client.request(1, gone, json!({})).await;

        assert_eq!(response.status(), 404, "{gone}");
        assert_eq!(response.json().await["error"]["code"], -32601, "{gone}");
    }
}

async fn the_same_url_serves_legacy_clients(env: ScenarioEnv) {
    let client = env.raw_client(&hanging_server()).await;

    for dialect in Dialects::legacy().iter() {
        let older = client.with_dialect(dialect).open().await;
        let answer = older.call(1, "echo").await.answer().await;

        assert_eq!(answer["result"]["content"][0]["text"], "{}", "{dialect}");
        assert_eq!(answer["result"].get("resultType"), None, "{dialect}");
    }
    assert_eq!(client.call(1, "echo").await.status(), 200);
}

async fn a_panicking_handler_is_an_internal_error_without_details(env: ScenarioEnv) {
    let panics = Tool::raw("panics", any_object(), async |_, _| {
        let none: Vec<CallToolResult> = Vec::new();
        Ok(none[7].clone())
    });
    let client = env.raw_client(&Server::new("s", "1").tool(panics)).await;

    let response = client.call(1, "panics").await;

    assert_eq!(response.status(), 200);
    let error = response.json().await["error"].clone();
    assert_eq!(error["code"], -32603);
    assert!(!error.to_string().contains("index"), "{error}");
}

async fn the_discover_result_has_the_server_info_only_in_its_meta(env: ScenarioEnv) {
    let client = env.raw_client(&hanging_server()).await;

    let response = client.request(1, "server/discover", json!({})).await;

    let result = response.json().await["result"].clone();
    let name = &result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"];
    assert_eq!(*name, "hanging");
    assert_eq!(result.get("serverInfo"), None);
    assert_eq!(result["supportedVersions"][0], Dialect::LATEST.version);
    assert!(result["capabilities"]["tools"].is_object(), "{result}");
}

async fn a_request_without_its_envelope_is_rejected(env: ScenarioEnv) {
    let client = env.raw_client(&hanging_server()).await;
    let meta = json!({"io.modelcontextprotocol/protocolVersion": env.version()});

    for meta in [json!({}), meta] {
        let params = json!({"_meta": meta});
        let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params});
        let response = client.post(&list).header("mcp-method", "tools/list").await;

        assert_eq!(response.status(), 400);
        assert_eq!(response.json().await["error"]["code"], -32602);
    }
}

async fn handler_errors_have_the_http_status_of_their_code(env: ScenarioEnv) {
    let codes = Arc::new(Mutex::new(Vec::<i64>::new()));
    let next = codes.clone();
    let fails = Tool::raw("fails", any_object(), move |_, _| {
        let code = next.lock().unwrap().pop().unwrap();
        async move { Err(RpcError::new(ErrorCode(code), "no").into()) }
    });
    let client = env.raw_client(&Server::new("s", "1").tool(fails)).await;

    for (code, status) in [
        (-32601, 404),
        (-32600, 400),
        (-32021, 400),
        (-32603, 200),
        (-32602, 200),
        (7, 200),
    ] {
        codes.lock().unwrap().push(code);
        let response = client.call(1, "fails").await;

        assert_eq!(response.status(), status, "{code}");
        assert_eq!(response.json().await["error"]["code"], code);
    }
}

async fn a_posted_notification_is_accepted_and_a_response_is_rejected(env: ScenarioEnv) {
    let client = env.raw_client(&hanging_server()).await;

    let accepted = client.cancel(1).await;
    let answer = json!({"jsonrpc": "2.0", "id": 1, "result": {}});
    let answered = client.post(&answer).await;

    assert_eq!(accepted.status(), 202);
    assert_eq!(accepted.text().await, "");
    assert_eq!(answered.status(), 400);
    let refused = answered.json().await;
    assert_eq!(refused["error"]["code"], -32600);
    assert_eq!(refused.get("id").unwrap_or(&Value::Null), &Value::Null);
}

async fn a_lost_connection_cancels_only_its_own_request(env: ScenarioEnv) {
    let client = env.raw_client(&hanging_server()).await;
    let mut lost = client.call_with_progress(1, "hang").await;
    let mut kept = client.call_with_progress(2, "hang").await;
    lost.message().await;
    kept.message().await;

    drop(lost);

    wait_for_handlers_raw(&client, 2, 1).await;
    drop(kept);
    wait_for_handlers_raw(&client, 2, 2).await;
}
