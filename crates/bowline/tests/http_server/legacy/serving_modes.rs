//! Other modes of the legacy era: JSON responses, batches, no sessions, HTTP+SSE.

use bowline::http::legacy::Legacy;
use serde_json::Value;

use super::*;

#[tokio::test(start_paused = true)]
async fn with_json_answers_a_server_request_fails_immediately() {
    let fixture = ServerFixture::new();
    let service = with_roots_tool(fixture.server)
        .http()
        .legacy(Legacy::sessions().json_responses());
    let mut client = SessionClient::open(&service, "2025-11-25").await;

    let progress = client
        .send(client.call_with_progress(1, "missing_capability_after_progress", "a"))
        .await;
    let roots = client.send(client.call(2, "list_roots", "a")).await;

    assert_eq!(progress.json().await["error"]["code"], -32602);
    let roots = roots.json().await;
    assert!(
        roots["error"]["message"]
            .as_str()
            .unwrap()
            .contains("cannot send a request to the client"),
        "{roots}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_answered_with_an_array_in_2025_03_26_only() {
    let fixture = ServerFixture::new();
    let service = fixture.server.http();
    let mut client = SessionClient::open(&service, "2025-03-26").await;
    let batch = json!([
        tool_call(&json!(1), "echo", &json!({"name": "a"}), &json!({})),
        {"jsonrpc": "2.0", "method": "notifications/unknown"},
        tool_call(&json!("two"), "echo", &json!({"name": "b"}), &json!({})),
        {"jsonrpc": "1.0", "id": 3, "method": "tools/list"},
    ]);

    let answers = client.send(client.post(&batch)).await.json().await;

    let mut ids: Vec<_> = answers
        .as_array()
        .unwrap()
        .iter()
        .map(|answer| answer["id"].clone())
        .collect();
    ids.sort_by_key(Value::to_string);
    assert_eq!(ids, [json!("two"), json!(1), json!(3)]);
    let notifications = json!([{"jsonrpc": "2.0", "method": "notifications/unknown"}]);
    assert_eq!(client.send(client.post(&notifications)).await.status(), 202);
    let newer = SessionClient::open(&service, "2025-06-18").await;
    assert_eq!(client.send(newer.post(&batch)).await.status(), 400);
    let mut unnamed = newer.post(&batch);
    unnamed.headers_mut().remove("mcp-protocol-version");
    assert_eq!(client.send(unnamed).await.status(), 400);
}

#[tokio::test(start_paused = true)]
async fn without_sessions_each_request_is_answered_by_itself() {
    let mut fixture = ServerFixture::new();
    let service = fixture.server.http().legacy(Legacy::stateless());
    let with_version = |request| with_header(request, "mcp-protocol-version", "2025-06-18");
    let request = |id: i64, tool: &str| {
        with_version(post(&tool_call(
            &json!(id),
            tool,
            &json!({"name": "a"}),
            &json!({}),
        )))
    };

    let opened = PlainConnection::http1(&service)
        .await
        .send(post(&initialize("2025-06-18")))
        .await;
    let called = PlainConnection::http1(&service)
        .await
        .send(request(1, "echo"))
        .await;
    let pinged = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});
    let pinged = PlainConnection::http1(&service)
        .await
        .send(with_version(post(&pinged)))
        .await;
    let unknown = json!({"jsonrpc": "2.0", "id": 3, "method": "prompts/list"});
    let unknown = PlainConnection::http1(&service)
        .await
        .send(with_version(post(&unknown)))
        .await;
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    let cancelled = PlainConnection::http1(&service)
        .await
        .send(with_version(post(&cancel)))
        .await;

    assert_eq!(opened.header("mcp-session-id"), None);
    assert_eq!(
        opened.json().await["result"]["protocolVersion"],
        "2025-06-18"
    );
    assert_eq!(
        called.json().await["result"]["content"][0]["text"],
        r#"{"name":"a"}"#
    );
    assert_eq!(pinged.json().await["result"], json!({}));
    assert_eq!(
        (unknown.status().as_u16(), cancelled.status().as_u16()),
        (200, 202)
    );
    assert_eq!(unknown.json().await["error"]["code"], -32601);
    let mut connection = PlainConnection::http1(&service).await;
    let running = connection.send(request(4, "progress")).await;
    fixture.handler_started("a").await;
    drop((running, connection));
    fixture.release.notify_one();
    fixture.handler_finished("a").await;
}

#[tokio::test(start_paused = true)]
async fn without_sessions_the_requests_of_a_batch_run_concurrently() {
    let mut fixture = ServerFixture::new();
    let service = fixture.server.http().legacy(Legacy::stateless());
    let call = |id: i64, tool: &str| {
        let name = json!({"name": format!("{tool} {id}")});
        tool_call(&json!(id), tool, &name, &json!({}))
    };
    let notification = json!({"jsonrpc": "2.0", "method": "notifications/unknown"});
    let malformed = json!({"jsonrpc": "1.0", "id": 3, "method": "tools/list"});
    let batch = json!([
        call(1, "wait"),
        notification,
        call(2, "wait"),
        malformed,
        call(4, "unknown")
    ]);
    let mut connection = PlainConnection::http1(&service).await;

    let answering = tokio::spawn(async move { connection.send(post(&batch)).await.json().await });
    fixture.handler_started("wait 1").await;
    fixture.handler_started("wait 2").await;
    fixture.release.notify_waiters();
    let answers = answering.await.unwrap();
    let notifications = PlainConnection::http1(&service)
        .await
        .send(post(&json!([notification])))
        .await;

    let mut ids: Vec<_> = answers
        .as_array()
        .unwrap()
        .iter()
        .map(|answer| (answer["id"].as_i64(), answer["error"].is_object()))
        .collect();
    ids.sort_unstable();
    let expected = [(1, false), (2, false), (3, true), (4, true)];
    assert_eq!(ids, expected.map(|(id, refused)| (Some(id), refused)));
    assert_eq!(notifications.status(), 202);
    assert_eq!(service.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn http_sse_is_served_to_clients_of_2024_11_05() {
    let mut fixture = ServerFixture::new();
    let service = fixture.server.http().legacy(Legacy::sessions().http_sse());
    let mut client = HttpSseClient::open(&service, "/mcp").await;

    client.post(&initialize("2024-11-05")).await;
    let opened = client.stream.chunk().await.unwrap();
    client
        .post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        .await;
    client
        .post(&tool_call(&json!(0), "principal", &json!({}), &json!({})))
        .await;
    let principal = messages(&client.stream.chunk().await.unwrap()).remove(0);
    let call = tool_call(&json!(1), "progress", &json!({"name": "a"}), &json!({}));
    client.post(&call).await;
    fixture.handler_started("a").await;

    assert!(opened.starts_with("event: message\n"));
    let seen = &principal["result"]["content"][0]["text"];
    assert_eq!(seen, r#"Principal(anonymous) at Some("localhost")"#);
    assert_eq!(
        messages(&opened)[0]["result"]["protocolVersion"],
        "2024-11-05"
    );
    // Closing the stream ends the session.
    drop(client);
    fixture.handler_dropped("a").await;
    assert_eq!(service.sessions(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_probe_over_http_sse_is_refused_on_the_stream_and_initialize_succeeds() {
    let fixture = ServerFixture::new();
    let service = fixture.server.http().legacy(Legacy::sessions().http_sse());
    let mut prober = HttpSseClient::open(&service, "/mcp").await;
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let modern = |id: i64, method: &str, params: Value| {
        let mut params = params;
        params["_meta"] = meta.clone();
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    };

    prober.post(&modern(1, "server/discover", json!({}))).await;
    let probed = prober.message().await;
    let call = modern(2, "tools/call", json!({"name": "echo", "arguments": {}}));
    prober.post(&call).await;
    let called = prober.message().await;
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": 1, "_meta": meta}});
    prober.post(&cancel).await;
    prober.post(&initialize("2025-11-25")).await;
    let opened = prober.message().await;
    prober
        .post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        .await;
    prober
        .post(&tool_call(&json!(3), "echo", &json!({}), &json!({})))
        .await;
    let echoed = prober.message().await;

    assert_eq!((&probed["id"], &called["id"]), (&json!(1), &json!(2)));
    for refused in [&probed, &called] {
        assert_eq!(refused["error"]["code"], -32022, "{refused}");
        let supported = refused["error"]["data"]["supported"].as_array().unwrap();
        assert!(supported.contains(&json!("2025-11-25")), "{refused}");
        assert!(!supported.contains(&json!("2026-07-28")), "{refused}");
    }
    assert_eq!(opened["result"]["protocolVersion"], "2025-11-25");
    assert_eq!(echoed["result"]["content"][0]["text"], "{}");
    assert_eq!(service.sessions(), 1);
}

#[tokio::test(start_paused = true)]
async fn posts_to_an_http_sse_endpoint_are_admitted_as_elsewhere() {
    let fixture = ServerFixture::new();
    let service = fixture.server.http().legacy(Legacy::sessions().http_sse());
    let prober = HttpSseClient::open(&service, "/mcp").await;

    let opening = || initialize("2024-11-05");
    for (what, status, endpoint, request) in [
        (
            "unknown session",
            404,
            "/mcp?session=unknown",
            post(&opening()),
        ),
        (
            "modern request",
            200,
            "/mcp?session=unknown",
            call(1, "echo", "a"),
        ),
        ("batch", 400, &prober.endpoint, post(&json!([opening()]))),
        (
            "not a message",
            400,
            &prober.endpoint,
            post(&json!({"id": 1})),
        ),
    ] {
        let mut request = request;
        *request.uri_mut() = endpoint.parse().unwrap();
        let response = PlainConnection::http1(&service).await.send(request).await;

        assert_eq!(response.status(), status, "{what}");
    }
}

/// A client of HTTP+SSE: its stream, and the endpoint for its POSTs.
struct HttpSseClient {
    service: HttpService,
    stream: PlainResponse,
    endpoint: String,
    connections: Vec<PlainConnection>,
}

impl HttpSseClient {
    async fn open(service: &HttpService, path: &str) -> Self {
        let get = Request::get(path)
            .header("host", "localhost")
            .header("accept", "text/event-stream");
        let mut connection = PlainConnection::http1(service).await;
        let mut stream = connection.send(get.body(Full::default()).unwrap()).await;
        assert_eq!(stream.status(), 200);
        let first = stream.chunk().await.unwrap();
        let endpoint = first.strip_prefix("event: endpoint\ndata: ").unwrap();
        Self {
            service: service.clone(),
            stream,
            endpoint: endpoint.trim().to_owned(),
            connections: vec![connection],
        }
    }

    /// Posts a message, which must be accepted.
    async fn post(&mut self, body: &Value) {
        let mut request = post(body);
        *request.uri_mut() = self.endpoint.parse().unwrap();
        let mut connection = PlainConnection::http1(&self.service).await;
        assert_eq!(connection.send(request).await.status(), 202, "{body}");
        self.connections.push(connection);
    }

    /// The next message on the stream.
    async fn message(&mut self) -> Value {
        messages(&self.stream.chunk().await.unwrap()).remove(0)
    }
}
