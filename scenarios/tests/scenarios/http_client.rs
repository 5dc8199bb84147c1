//! The HTTP client against a scripted server: its requests, and how it handles responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bowline::exchange::BoxFuture;
use bowline::http::client::{HttpClient, HyperClient, RequestBody, ResponseBody};
use bowline::{Client, Error, Result, Server};
use http::{HeaderName, HeaderValue, Request, Response};
use scenarios::http::{ScriptedHttpServer, ScriptedResponse, default_response};
use scenarios::{Scenario, ScenarioEnv, scenario};
use serde_json::{Value, json};

use crate::support::{echo, hanging_server};

pub(crate) fn scenarios() -> Vec<Scenario> {
    let everywhere = vec![
        scenario!(
            an_endpoint_that_returns_404_is_a_transport_error,
            "client-transport:http:404-surfaces",
        ),
        scenario!(
            a_post_accepts_streams_and_json,
            "client-transport:http:accept-header-post",
            "client-transport:http:json-response-parsed",
        ),
        scenario!(
            custom_headers_are_sent_with_every_request,
            "client-transport:http:custom-headers",
        ),
        scenario!(
            a_custom_http_client_sends_every_request,
            "client-transport:http:custom-client",
        ),
        scenario!(
            a_stream_is_not_resumed_after_its_response,
            "client-transport:http:no-reconnect-after-response",
        ),
        scenario!(
            concurrent_streams_deliver_to_their_own_calls,
            "client-transport:http:concurrent-streams",
        ),
    ];
    let modern = vec![
        scenario!(
            headers_mirror_the_body,
            "lifecycle:envelope:header-matches-meta",
            "client-transport:http:body-derived-headers",
            "client-transport:http:protocol-version-header",
        ),
        scenario!(
            headers_mirror_the_arguments_marked_in_the_schema,
            "client-transport:http:custom-param-headers",
        ),
        scenario!(
            dropping_a_call_closes_its_stream_and_posts_nothing,
            "client-transport:http:cancel-closes-stream",
        ),
        scenario!(
            a_modern_client_ignores_session_ids,
            "client-transport:http:stateless-ignores-session-id",
        ),
    ];
    let modern = modern.into_iter().map(Scenario::modern);
    let all = everywhere.into_iter().chain(modern);
    let fallback = scenario!(
        a_client_falls_back_to_http_sse,
        "flow:compat:streamable-then-sse-fallback",
    );
    all.map(Scenario::over_http)
        .chain([fallback.over_http_sse()])
        .collect()
}

async fn an_endpoint_that_returns_404_is_a_transport_error(env: ScenarioEnv) {
    let server = ScriptedHttpServer::start(|_| ScriptedResponse::status(404)).await;

    let outcome = match env.connect_to(&server.url).await {
        Ok(client) => client.call_tool("x", ()).await.map(drop),
        Err(error) => Err(error),
    };

    let error = outcome.unwrap_err();
    assert!(matches!(error, Error::Transport { .. }), "{error:?}");
    assert!(error.to_string().contains("404"), "{error}");
}

async fn a_post_accepts_streams_and_json(env: ScenarioEnv) {
    let mut server = ScriptedHttpServer::start(default_response).await;
    let client = env.connect_to(&server.url).await.unwrap();

    let reply = client.call_tool("x", ()).await.unwrap();

    let posted = server.request("POST tools/call").await;
    let accepts = posted.header("accept").unwrap();
    assert!(accepts.contains("application/json"), "{accepts}");
    assert!(accepts.contains("text/event-stream"), "{accepts}");
    assert_eq!(posted.header("content-type"), Some("application/json"));
    assert_eq!(reply.text(), "done");
}

async fn custom_headers_are_sent_with_every_request(env: ScenarioEnv) {
    let mut server = ScriptedHttpServer::start(default_response).await;
    let name = HeaderName::from_static("x-own");
    let connect = env.connect_to(&server.url);
    let connect = connect.header(name, HeaderValue::from_static("mine"));
    let client = connect.await.unwrap();

    client.call_tool("x", ()).await.unwrap();
    client.close().await.unwrap();

    let all = server.take_received();
    assert!(!all.is_empty());
    for received in all {
        assert_eq!(
            received.header("x-own"),
            Some("mine"),
            "{}",
            received.label()
        );
    }
}

/// An HTTP client that counts its requests.
#[derive(Clone)]
struct Counting {
    inner: Arc<dyn HttpClient>,
    carried: Arc<AtomicUsize>,
}

impl HttpClient for Counting {
    fn send(
        &self,
        request: Request<RequestBody>,
    ) -> BoxFuture<'static, Result<Response<ResponseBody>>> {
        self.carried.fetch_add(1, Ordering::SeqCst);
        self.inner.send(request)
    }
}

async fn a_custom_http_client_sends_every_request(env: ScenarioEnv) {
    let mut server = ScriptedHttpServer::start(default_response).await;
    let own = Counting {
        inner: Arc::new(HyperClient::plain()),
        carried: Arc::default(),
    };
    let carried = own.carried.clone();
    let client = env.connect_to(&server.url).http_client(own).await.unwrap();

    client.call_tool("x", ()).await.unwrap();
    client.close().await.unwrap();

    let received = server.take_received().len();
    assert!(received > 0);
    assert_eq!(carried.load(Ordering::SeqCst), received);
}

async fn a_stream_is_not_resumed_after_its_response(env: ScenarioEnv) {
    let mut server = ScriptedHttpServer::start(|request| match &*request.label() {
        "POST tools/call" => {
            let answer = request.result(&json!({"content": [], "resultType": "complete"}));
            ScriptedResponse::events(&format!("id: e1\nretry: 1\ndata: {answer}\n\n"))
        }
        _ => default_response(request),
    })
    .await;
    let client = env.connect_to(&server.url).await.unwrap();

    for _ in 0..3 {
        client.call_tool("x", ()).await.unwrap();
    }
    client.close().await.unwrap();

    let all = server.take_received();
    let calls = all.iter().filter(|one| one.label() == "POST tools/call");
    assert_eq!(calls.count(), 3);
    let resumed = all.iter().find(|one| one.header("last-event-id").is_some());
    assert!(resumed.is_none(), "{resumed:?}");
}

async fn concurrent_streams_deliver_to_their_own_calls(env: ScenarioEnv) {
    let (stream_sender, mut stream_receiver) = tokio::sync::mpsc::unbounded_channel();
    let server = ScriptedHttpServer::start(move |request| match &*request.label() {
        "POST tools/call" => {
            let (stream, response) = ScriptedResponse::stream();
            stream_sender.send((request.clone(), stream)).unwrap();
            response
        }
        _ => default_response(request),
    })
    .await;
    let client = env.connect_to(&server.url).await.unwrap();
    let calls: Vec<_> = ["a", "b", "c"]
        .map(|name| client.call_tool(name, ()).start())
        .into_iter()
        .map(tokio::spawn)
        .collect();

    let mut streams = Vec::new();
    while streams.len() < calls.len() {
        streams.push(stream_receiver.recv().await.unwrap());
    }
    // Responds in reverse order.
    for (request, stream) in streams.iter().rev() {
        let text = json!([{"type": "text", "text": request.body["params"]["name"]}]);
        let answer = request.result(&json!({"content": text, "resultType": "complete"}));
        stream.send(format!("data: {answer}\n\n")).unwrap();
    }

    for (call, name) in calls.into_iter().zip(["a", "b", "c"]) {
        assert_eq!(call.await.unwrap().unwrap().text(), name);
    }
}

async fn headers_mirror_the_body(env: ScenarioEnv) {
    let mut server = ScriptedHttpServer::start(default_response).await;
    let client = env.connect_to(&server.url).await.unwrap();

    client.call_tool("grüß dich", ()).await.unwrap();
    client.call_tool("plain", ()).await.unwrap();

    let (encoded, plain) = (
        server.request("POST tools/call").await,
        server.request("POST tools/call").await,
    );
    assert_eq!(
        encoded.header("mcp-name"),
        Some("=?base64?Z3LDvMOfIGRpY2g=?=")
    );
    assert_eq!(plain.header("mcp-name"), Some("plain"));
    assert_eq!(plain.header("mcp-method"), Some("tools/call"));
    let meta = &plain.body["params"]["_meta"];
    let version = meta["io.modelcontextprotocol/protocolVersion"].as_str();
    assert_eq!(plain.header("mcp-protocol-version"), version);
    assert_eq!(version, Some(env.version()));
}

async fn headers_mirror_the_arguments_marked_in_the_schema(env: ScenarioEnv) {
    let schema = json!({"type": "object", "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "query": {"type": "string"},
    }});
    let mut server = ScriptedHttpServer::start(move |request| match &*request.label() {
        "POST tools/list" => {
            let tools = json!([{"name": "sql", "inputSchema": schema}]);
            let page = json!({"tools": tools, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"});
            ScriptedResponse::json(&request.result(&page))
        }
        _ => default_response(request),
    })
    .await;
    let client = env.connect_to(&server.url).await.unwrap();

    client.list_tools().await.unwrap();
    let arguments = json!({"region": " us-west1", "query": "select 1"});
    client.call_tool("sql", arguments).await.unwrap();

    let call = server.request("POST tools/call").await;
    let region = call.header("mcp-param-region");
    assert_eq!(region, Some("=?base64?IHVzLXdlc3Qx?="));
    assert_eq!(call.header("mcp-param-query"), None);
}

async fn dropping_a_call_closes_its_stream_and_posts_nothing(env: ScenarioEnv) {
    let (stream_sender, mut stream_receiver) = tokio::sync::mpsc::unbounded_channel();
    let mut server = ScriptedHttpServer::start(move |request| {
        if request.body["params"]["name"] == "quick" {
            return default_response(request);
        }
        let (stream, response) = ScriptedResponse::stream();
        stream_sender.send(stream).unwrap();
        response
    })
    .await;
    let client = env.connect_to(&server.url).await.unwrap();
    let slow = tokio::spawn(client.call_tool("slow", ()).start());
    let stream = stream_receiver.recv().await.unwrap();

    slow.abort();
    stream.closed().await;
    client.call_tool("quick", ()).await.unwrap();

    let names: Vec<Value> = server
        .take_received()
        .iter()
        .map(|received| received.body["params"]["name"].clone())
        .collect();
    assert_eq!(names, ["slow", "quick"]);
}

async fn a_modern_client_ignores_session_ids(env: ScenarioEnv) {
    let named = |request: &_| default_response(request).header("mcp-session-id", "unasked");
    let mut server = ScriptedHttpServer::start(named).await;
    let client = env.connect_to(&server.url).await.unwrap();

    client.call_tool("x", ()).await.unwrap();
    client.call_tool("x", ()).await.unwrap();
    client.close().await.unwrap();

    let all = server.take_received();
    let methods: Vec<String> = all.iter().map(|received| received.label()).collect();
    assert_eq!(methods, ["POST tools/call", "POST tools/call"]);
    for received in all {
        assert_eq!(received.header("mcp-session-id"), None);
    }
}

async fn a_client_falls_back_to_http_sse(env: ScenarioEnv) {
    let url = env.serve_http_sse(&hanging_server()).await;

    // Without a fixed version.
    let client = Client::connect(&url).await.unwrap();
    let reply = client.call_tool("echo", ()).await.unwrap();

    assert_eq!(client.dialect().version, env.version());
    assert_eq!(reply.text(), "{}");
    let server = Server::new("s", "1").tool(echo("echo"));
    let pinned = env.connect(&server).await;
    assert_eq!(pinned.call_tool("echo", ()).await.unwrap().text(), "{}");
}
