//! Other ways to serve the legacy era: as JSON, in batches, without sessions, over two endpoints.

use bowline::http::legacy::Legacy;
use serde_json::Value;

use super::*;

#[tokio::test(start_paused = true)]
async fn json_answers_fail_at_once_where_the_client_would_have_to_be_asked() {
    let stage = Stage::new();
    let service = asks(stage.server)
        .http()
        .legacy(Legacy::sessions().json_answers());
    let mut client = Conversation::open(&service, "2025-11-25").await;

    let talked = client
        .send(client.call_with_progress(1, "needs_late", "a"))
        .await;
    let asked = client.send(client.call(2, "asks", "a")).await;

    assert_eq!(talked.json().await["error"]["code"], -32602);
    let asked = asked.json().await;
    assert!(
        asked["error"]["message"]
            .as_str()
            .unwrap()
            .contains("cannot be asked"),
        "{asked}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_answered_as_an_array_in_the_one_version_that_has_them() {
    let stage = Stage::new();
    let service = stage.server.http();
    let mut client = Conversation::open(&service, "2025-03-26").await;
    let batch = json!([
        tool_call(&json!(1), "echo", &json!({"name": "a"}), &json!({})),
        {"jsonrpc": "2.0", "method": "notifications/whatever"},
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
    let only_told = json!([{"jsonrpc": "2.0", "method": "notifications/whatever"}]);
    assert_eq!(client.send(client.post(&only_told)).await.status(), 202);
    let newer = Conversation::open(&service, "2025-06-18").await;
    assert_eq!(client.send(newer.post(&batch)).await.status(), 400);
    let mut unnamed = newer.post(&batch);
    unnamed.headers_mut().remove("mcp-protocol-version");
    assert_eq!(client.send(unnamed).await.status(), 400);
}

#[tokio::test(start_paused = true)]
async fn without_sessions_each_request_is_answered_by_itself() {
    let mut stage = Stage::new();
    let service = stage.server.http().legacy(Legacy::stateless());
    let speaking = |request| with(request, "mcp-protocol-version", "2025-06-18");
    let request = |id: i64, tool: &str| {
        speaking(post(&tool_call(
            &json!(id),
            tool,
            &json!({"name": "a"}),
            &json!({}),
        )))
    };

    let opened = Link::to(&service)
        .await
        .send(post(&initialize("2025-06-18")))
        .await;
    let called = Link::to(&service).await.send(request(1, "echo")).await;
    let pinged = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});
    let pinged = Link::to(&service).await.send(speaking(post(&pinged))).await;
    let unknown = json!({"jsonrpc": "2.0", "id": 3, "method": "prompts/list"});
    let unknown = Link::to(&service)
        .await
        .send(speaking(post(&unknown)))
        .await;
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    let cancelled = Link::to(&service).await.send(speaking(post(&cancel))).await;

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
    let mut link = Link::to(&service).await;
    let running = link.send(request(4, "talk")).await;
    stage.started("a").await;
    drop((running, link));
    stage.release.notify_one();
    stage.finished("a").await;
}

#[tokio::test(start_paused = true)]
async fn without_sessions_a_batch_is_answered_side_by_side() {
    let mut stage = Stage::new();
    let service = stage.server.http().legacy(Legacy::stateless());
    let call = |id: i64, tool: &str| {
        let name = json!({"name": format!("{tool} {id}")});
        tool_call(&json!(id), tool, &name, &json!({}))
    };
    let told = json!({"jsonrpc": "2.0", "method": "notifications/whatever"});
    let malformed = json!({"jsonrpc": "1.0", "id": 3, "method": "tools/list"});
    let batch = json!([
        call(1, "wait"),
        told,
        call(2, "wait"),
        malformed,
        call(4, "nobody")
    ]);
    let mut link = Link::to(&service).await;

    let answering = tokio::spawn(async move { link.send(post(&batch)).await.json().await });
    stage.started("wait 1").await;
    stage.started("wait 2").await;
    stage.release.notify_waiters();
    let answers = answering.await.unwrap();
    let only_told = Link::to(&service).await.send(post(&json!([told]))).await;

    let mut ids: Vec<_> = answers
        .as_array()
        .unwrap()
        .iter()
        .map(|answer| (answer["id"].as_i64(), answer["error"].is_object()))
        .collect();
    ids.sort_unstable();
    let expected = [(1, false), (2, false), (3, true), (4, true)];
    assert_eq!(ids, expected.map(|(id, refused)| (Some(id), refused)));
    assert_eq!(only_told.status(), 202);
    assert_eq!(service.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn two_endpoints_are_served_to_the_oldest_clients() {
    let mut stage = Stage::new();
    let service = stage.server.http().legacy(Legacy::sessions().http_sse());
    let mut oldest = TwoEndpoints::open(&service, "/mcp").await;

    oldest.post(&initialize("2024-11-05")).await;
    let opened = oldest.stream.chunk().await.unwrap();
    oldest
        .post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        .await;
    oldest
        .post(&tool_call(&json!(0), "whose", &json!({}), &json!({})))
        .await;
    let whose = messages(&oldest.stream.chunk().await.unwrap()).remove(0);
    let talk = tool_call(&json!(1), "talk", &json!({"name": "a"}), &json!({}));
    oldest.post(&talk).await;
    stage.started("a").await;

    assert!(opened.starts_with("event: message\n"));
    let seen = &whose["result"]["content"][0]["text"];
    assert_eq!(seen, r#"Principal(anonymous) at Some("localhost")"#);
    assert_eq!(
        messages(&opened)[0]["result"]["protocolVersion"],
        "2024-11-05"
    );
    // The end of the stream is the end of the wire.
    drop(oldest);
    stage.dropped("a").await;
    assert_eq!(service.sessions(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_probes_over_two_endpoints_is_answered_there_and_shakes_hands() {
    let stage = Stage::new();
    let service = stage.server.http().legacy(Legacy::sessions().http_sse());
    let mut prober = TwoEndpoints::open(&service, "/mcp").await;
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
    let told = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": 1, "_meta": meta}});
    prober.post(&told).await;
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
async fn what_is_posted_to_a_url_that_names_no_session_is_judged_as_elsewhere() {
    let stage = Stage::new();
    let service = stage.server.http().legacy(Legacy::sessions().http_sse());
    let prober = TwoEndpoints::open(&service, "/mcp").await;

    let hello = || initialize("2024-11-05");
    for (what, status, endpoint, request) in [
        ("unknown", 404, "/mcp?session=nobody", post(&hello())),
        ("modern", 200, "/mcp?session=nobody", call(1, "echo", "a")),
        ("a batch", 400, &prober.endpoint, post(&json!([hello()]))),
        ("no message", 400, &prober.endpoint, post(&json!({"id": 1}))),
    ] {
        let mut request = request;
        *request.uri_mut() = endpoint.parse().unwrap();
        let reply = Link::to(&service).await.send(request).await;

        assert_eq!(reply.status(), status, "{what}");
    }
}

/// A client of HTTP+SSE: the stream, and where it was told to post.
struct TwoEndpoints {
    service: HttpService,
    stream: Reply,
    endpoint: String,
    links: Vec<Link>,
}

impl TwoEndpoints {
    async fn open(service: &HttpService, path: &str) -> Self {
        let get = Request::get(path)
            .header("host", "localhost")
            .header("accept", "text/event-stream");
        let mut link = Link::to(service).await;
        let mut stream = link.send(get.body(Full::default()).unwrap()).await;
        assert_eq!(stream.status(), 200);
        let first = stream.chunk().await.unwrap();
        let endpoint = first.strip_prefix("event: endpoint\ndata: ").unwrap();
        Self {
            service: service.clone(),
            stream,
            endpoint: endpoint.trim().to_owned(),
            links: vec![link],
        }
    }

    /// Posts a message, which must be accepted.
    async fn post(&mut self, body: &Value) {
        let mut request = post(body);
        *request.uri_mut() = self.endpoint.parse().unwrap();
        let mut link = Link::to(&self.service).await;
        assert_eq!(link.send(request).await.status(), 202, "{body}");
        self.links.push(link);
    }

    /// The next message on the stream.
    async fn message(&mut self) -> Value {
        messages(&self.stream.chunk().await.unwrap()).remove(0)
    }
}
