//! A client of ours over HTTP, before a server that follows a script: what it posts, and what it makes of answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bowline::exchange::BoxFuture;
use bowline::http::client::{HttpSend, HyperSend, RequestBody, ResponseBody};
use bowline::{Client, Error, Result, Server};
use http::{HeaderName, HeaderValue, Request, Response};
use scenarios::http::{Say, Script, manners};
use scenarios::{Scenario, World, scenario};
use serde_json::{Value, json};

use crate::support::{echo, hanging};

pub(crate) fn scenarios() -> Vec<Scenario> {
    let everywhere = vec![
        scenario!(
            an_endpoint_that_is_not_there_is_an_error,
            "client-transport:http:404-surfaces",
        ),
        scenario!(
            a_client_says_that_it_reads_streams_and_json,
            "client-transport:http:accept-header-post",
            "client-transport:http:json-response-parsed",
        ),
        scenario!(
            headers_of_ones_own_are_on_everything,
            "client-transport:http:custom-headers",
        ),
        scenario!(
            a_client_of_ones_own_carries_everything,
            "client-transport:http:custom-client",
        ),
        scenario!(
            after_the_answer_nothing_is_taken_up_again,
            "client-transport:http:no-reconnect-after-response",
        ),
        scenario!(
            streams_side_by_side_are_not_confused,
            "client-transport:http:concurrent-streams",
        ),
    ];
    let modern = vec![
        scenario!(
            headers_repeat_what_the_body_says,
            "lifecycle:envelope:header-matches-meta",
            "client-transport:http:body-derived-headers",
            "client-transport:http:protocol-version-header",
        ),
        scenario!(
            headers_repeat_the_arguments_that_a_schema_marks,
            "client-transport:http:custom-param-headers",
        ),
        scenario!(
            dropping_a_call_ends_its_stream_and_posts_nothing,
            "client-transport:http:cancel-closes-stream",
        ),
        scenario!(
            without_a_handshake_no_conversation_is_named,
            "client-transport:http:stateless-ignores-session-id",
        ),
    ];
    let modern = modern.into_iter().map(Scenario::modern);
    let all = everywhere.into_iter().chain(modern);
    let fallback = scenario!(
        a_client_falls_back_to_the_older_endpoints,
        "flow:compat:streamable-then-sse-fallback",
    );
    all.map(Scenario::over_http)
        .chain([fallback.over_two_endpoints()])
        .collect()
}

async fn an_endpoint_that_is_not_there_is_an_error(world: World) {
    let script = Script::start(|_| Say::status(404)).await;

    let outcome = match world.connect_to(&script.url).await {
        Ok(client) => client.call_tool("x", ()).await.map(drop),
        Err(error) => Err(error),
    };

    let error = outcome.unwrap_err();
    assert!(matches!(error, Error::Transport { .. }), "{error:?}");
    assert!(error.to_string().contains("404"), "{error}");
}

async fn a_client_says_that_it_reads_streams_and_json(world: World) {
    let mut script = Script::start(manners).await;
    let client = world.connect_to(&script.url).await.unwrap();

    let reply = client.call_tool("x", ()).await.unwrap();

    let posted = script.request("POST tools/call").await;
    let accepts = posted.header("accept").unwrap();
    assert!(accepts.contains("application/json"), "{accepts}");
    assert!(accepts.contains("text/event-stream"), "{accepts}");
    assert_eq!(posted.header("content-type"), Some("application/json"));
    assert_eq!(reply.text(), "done");
}

async fn headers_of_ones_own_are_on_everything(world: World) {
    let mut script = Script::start(manners).await;
    let name = HeaderName::from_static("x-own");
    let connect = world.connect_to(&script.url);
    let connect = connect.header(name, HeaderValue::from_static("mine"));
    let client = connect.await.unwrap();

    client.call_tool("x", ()).await.unwrap();
    client.close().await.unwrap();

    let all = script.so_far();
    assert!(!all.is_empty());
    for arrived in all {
        assert_eq!(arrived.header("x-own"), Some("mine"), "{}", arrived.what());
    }
}

/// Counts what it carries.
#[derive(Clone)]
struct Counting {
    inner: Arc<dyn HttpSend>,
    carried: Arc<AtomicUsize>,
}

impl HttpSend for Counting {
    fn send(
        &self,
        request: Request<RequestBody>,
    ) -> BoxFuture<'static, Result<Response<ResponseBody>>> {
        self.carried.fetch_add(1, Ordering::SeqCst);
        self.inner.send(request)
    }
}

async fn a_client_of_ones_own_carries_everything(world: World) {
    let mut script = Script::start(manners).await;
    let own = Counting {
        inner: Arc::new(HyperSend::plain()),
        carried: Arc::default(),
    };
    let carried = own.carried.clone();
    let client = world.connect_to(&script.url).http(own).await.unwrap();

    client.call_tool("x", ()).await.unwrap();
    client.close().await.unwrap();

    let arrived = script.so_far().len();
    assert!(arrived > 0);
    assert_eq!(carried.load(Ordering::SeqCst), arrived);
}

async fn after_the_answer_nothing_is_taken_up_again(world: World) {
    let mut script = Script::start(|request| match &*request.what() {
        "POST tools/call" => {
            let answer = request.result(&json!({"content": [], "resultType": "complete"}));
            Say::events(&format!("id: e1\nretry: 1\ndata: {answer}\n\n"))
        }
        _ => manners(request),
    })
    .await;
    let client = world.connect_to(&script.url).await.unwrap();

    for _ in 0..3 {
        client.call_tool("x", ()).await.unwrap();
    }
    client.close().await.unwrap();

    let all = script.so_far();
    let calls = all.iter().filter(|one| one.what() == "POST tools/call");
    assert_eq!(calls.count(), 3);
    let resumed = all.iter().find(|one| one.header("last-event-id").is_some());
    assert!(resumed.is_none(), "{resumed:?}");
}

async fn streams_side_by_side_are_not_confused(world: World) {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let script = Script::start(move |request| match &*request.what() {
        "POST tools/call" => {
            let (more, say) = Say::stream();
            tell.send((request.clone(), more)).unwrap();
            say
        }
        _ => manners(request),
    })
    .await;
    let client = world.connect_to(&script.url).await.unwrap();
    let calls: Vec<_> = ["a", "b", "c"]
        .map(|name| client.call_tool(name, ()).start())
        .into_iter()
        .map(tokio::spawn)
        .collect();

    let mut streams = Vec::new();
    while streams.len() < calls.len() {
        streams.push(told.recv().await.unwrap());
    }
    // The last is answered first.
    for (request, more) in streams.iter().rev() {
        let text = json!([{"type": "text", "text": request.body["params"]["name"]}]);
        let answer = request.result(&json!({"content": text, "resultType": "complete"}));
        more.send(format!("data: {answer}\n\n")).unwrap();
    }

    for (call, name) in calls.into_iter().zip(["a", "b", "c"]) {
        assert_eq!(call.await.unwrap().unwrap().text(), name);
    }
}

async fn headers_repeat_what_the_body_says(world: World) {
    let mut script = Script::start(manners).await;
    let client = world.connect_to(&script.url).await.unwrap();

    client.call_tool("grüß dich", ()).await.unwrap();
    client.call_tool("plain", ()).await.unwrap();

    let (encoded, plain) = (
        script.request("POST tools/call").await,
        script.request("POST tools/call").await,
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
    assert_eq!(version, Some(world.version()));
}

async fn headers_repeat_the_arguments_that_a_schema_marks(world: World) {
    let schema = json!({"type": "object", "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "query": {"type": "string"},
    }});
    let mut script = Script::start(move |request| match &*request.what() {
        "POST tools/list" => {
            let tools = json!([{"name": "sql", "inputSchema": schema}]);
            let page = json!({"tools": tools, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"});
            Say::json(&request.result(&page))
        }
        _ => manners(request),
    })
    .await;
    let client = world.connect_to(&script.url).await.unwrap();

    client.list_tools().await.unwrap();
    let arguments = json!({"region": " us-west1", "query": "select 1"});
    client.call_tool("sql", arguments).await.unwrap();

    let call = script.request("POST tools/call").await;
    let region = call.header("mcp-param-region");
    assert_eq!(region, Some("=?base64?IHVzLXdlc3Qx?="));
    assert_eq!(call.header("mcp-param-query"), None);
}

async fn dropping_a_call_ends_its_stream_and_posts_nothing(world: World) {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let mut script = Script::start(move |request| {
        if request.body["params"]["name"] == "quick" {
            return manners(request);
        }
        let (more, say) = Say::stream();
        tell.send(more).unwrap();
        say
    })
    .await;
    let client = world.connect_to(&script.url).await.unwrap();
    let slow = tokio::spawn(client.call_tool("slow", ()).start());
    let stream = told.recv().await.unwrap();

    slow.abort();
    stream.closed().await;
    client.call_tool("quick", ()).await.unwrap();

    let names: Vec<Value> = script
        .so_far()
        .iter()
        .map(|arrived| arrived.body["params"]["name"].clone())
        .collect();
    assert_eq!(names, ["slow", "quick"]);
}

async fn without_a_handshake_no_conversation_is_named(world: World) {
    let named = |request: &_| manners(request).header("mcp-session-id", "unasked");
    let mut script = Script::start(named).await;
    let client = world.connect_to(&script.url).await.unwrap();

    client.call_tool("x", ()).await.unwrap();
    client.call_tool("x", ()).await.unwrap();
    client.close().await.unwrap();

    let all = script.so_far();
    let methods: Vec<String> = all.iter().map(|arrived| arrived.what()).collect();
    assert_eq!(methods, ["POST tools/call", "POST tools/call"]);
    for arrived in all {
        assert_eq!(arrived.header("mcp-session-id"), None);
    }
}

async fn a_client_falls_back_to_the_older_endpoints(world: World) {
    let url = world.serve_over_two_endpoints(&hanging()).await;

    // Without a word about what the server speaks.
    let client = Client::connect(&url).await.unwrap();
    let reply = client.call_tool("echo", ()).await.unwrap();

    assert_eq!(client.dialect().version, world.version());
    assert_eq!(reply.text(), "{}");
    let server = Server::new("s", "1").tool(echo("echo"));
    let pinned = world.connect(&server).await;
    assert_eq!(pinned.call_tool("echo", ()).await.unwrap().text(), "{}");
}
