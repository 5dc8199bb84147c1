//! The HTTP client against a scripted server: features of the legacy versions.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bowline::testing::eventually;
use bowline::types::RequestId;
use scenarios::http::{ReceivedRequest, ScriptedHttpServer, ScriptedResponse, default_response};
use scenarios::{Scenario, ScenarioEnv, scenario};
use serde_json::{Value, json};

use crate::support::hanging_server;

pub(crate) fn scenarios() -> Vec<Scenario> {
    let all = vec![
        scenario!(
            later_requests_carry_the_session_id_and_the_version,
            "client-transport:http:session-stored",
            "client-transport:http:protocol-version-stored",
            "client-transport:http:protocol-version-header",
            "client-transport:http:accept-header-get",
        ),
        scenario!(
            a_405_to_get_and_delete_is_tolerated,
            "client-transport:http:sse-405-tolerated",
            "client-transport:http:terminate-405-ok",
        ),
        scenario!(
            a_lost_session_is_initialized_again,
            "client-transport:http:session-404-reinitialize",
        ),
        scenario!(
            dropping_a_call_posts_one_cancel,
            "client-transport:http:cancel-posts-frame",
        ),
        scenario!(
            after_close_no_stream_is_resumed,
            "client-transport:http:no-reconnect-after-close",
        ),
        scenario!(
            the_get_stream_is_resumed,
            "client-transport:http:reconnect-get",
        ),
        scenario!(
            a_request_stream_with_an_event_id_is_resumed,
            "client-transport:http:reconnect-post-priming",
            "client-transport:http:reconnect-retry-value",
            "flow:resume:tool-call-resumption-token",
        ),
        scenario!(
            a_stream_without_an_event_id_is_not_resumed,
            "client-transport:http:reconnect-post-priming",
        ),
        scenario!(
            after_close_a_new_connection_starts_a_new_session,
            "flow:session:terminate-then-reconnect",
        ),
    ];
    let all = all.into_iter().map(Scenario::legacy);
    all.map(|scenario| scenario.since("2025-03-26").over_http())
        .collect()
}

/// An event with a `list_changed` notification.
fn changed() -> String {
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    format!("id: g1\nretry: 1\ndata: {changed}\n\n")
}

async fn later_requests_carry_the_session_id_and_the_version(env: ScenarioEnv) {
    let mut server = ScriptedHttpServer::start(default_response).await;
    let client = env.connect_to(&server.url).await.unwrap();

    let stream = server.request("GET").await;
    client.call_tool("x", ()).await.unwrap();
    let call = server.request("POST tools/call").await;
    client.close().await.unwrap();
    let end = server.request("DELETE").await;

    assert_eq!(stream.header("accept"), Some("text/event-stream"));
    for received in [stream, call, end] {
        let label = received.label();
        assert_eq!(received.header("mcp-session-id"), Some("s1"), "{label}");
        let version = received.header("mcp-protocol-version");
        if let Some(version) = version {
            assert_eq!(version, env.version(), "{label}");
        }
        let is_named = env.dialect().http.version_header != bowline_core::era::VersionHeader::Never;
        assert_eq!(version.is_some(), is_named, "{label}");
    }
}

async fn a_405_to_get_and_delete_is_tolerated(env: ScenarioEnv) {
    let mut server = ScriptedHttpServer::start(|request| match &*request.label() {
        "GET" | "DELETE" => ScriptedResponse::status(405),
        _ => default_response(request),
    })
    .await;
    let client = env.connect_to(&server.url).await.unwrap();

    server.request("GET").await;
    let reply = client.call_tool("x", ()).await.unwrap();
    let closed = client.close().await;

    assert_eq!(reply.text(), "done");
    assert!(closed.is_ok(), "{closed:?}");
    server.request("DELETE").await;
}

async fn a_lost_session_is_initialized_again(env: ScenarioEnv) {
    let mut begun = 0;
    let mut server = ScriptedHttpServer::start(move |request: &ReceivedRequest| {
        if request.label() == "POST initialize" {
            begun += 1;
            let name = format!("s{begun}");
            return default_response(request).header("mcp-session-id", &name);
        }
        match (&*request.label(), request.header("mcp-session-id")) {
            ("POST tools/call", Some("s1")) => ScriptedResponse::status(404),
            _ => default_response(request),
        }
    })
    .await;
    let client = env.connect_to(&server.url).await.unwrap();

    let reply = client.call_tool("x", ()).await.unwrap();

    assert_eq!(reply.text(), "done");
    let posted: Vec<(String, Option<String>)> = server
        .take_received()
        .iter()
        .filter(|received| received.label() != "GET")
        .map(|received| {
            (
                received.label(),
                received.header("mcp-session-id").map(str::to_owned),
            )
        })
        .collect();
    let named = |label: &str, name: Option<&str>| (label.to_owned(), name.map(str::to_owned));
    assert_eq!(
        posted,
        [
            named("POST initialize", None),
            named("POST notifications/initialized", Some("s1")),
            named("POST tools/call", Some("s1")),
            named("POST initialize", None),
            named("POST notifications/initialized", Some("s2")),
            named("POST tools/call", Some("s2")),
        ]
    );
}

async fn dropping_a_call_posts_one_cancel(env: ScenarioEnv) {
    let (stream_sender, mut stream_receiver) = tokio::sync::mpsc::unbounded_channel();
    let mut server = ScriptedHttpServer::start(move |request| {
        if request.body["params"]["name"] != "slow" {
            return default_response(request);
        }
        let (stream, response) = ScriptedResponse::stream();
        stream_sender.send(stream).unwrap();
        response
    })
    .await;
    let client = env.connect_to(&server.url).await.unwrap();
    let slow = tokio::spawn(
        client
            .call_tool("slow", ())
            .id(RequestId::from("7"))
            .start(),
    );
    let stream = stream_receiver.recv().await.unwrap();

    slow.abort();
    let cancel = server.request("POST notifications/cancelled").await;

    assert_eq!(cancel.body["params"]["requestId"], "7");
    assert_eq!(cancel.header("mcp-session-id"), Some("s1"));
    assert!(!stream.is_closed(), "the response was closed");
    client.call_tool("quick", ()).await.unwrap();
    let rest = server.take_received();
    let cancels = rest.iter().filter(|one| one.label().contains("cancelled"));
    assert_eq!(cancels.count(), 0);
}

async fn after_close_no_stream_is_resumed(env: ScenarioEnv) {
    let (stream_sender, mut stream_receiver) = tokio::sync::mpsc::unbounded_channel();
    let mut server = ScriptedHttpServer::start(move |request| match &*request.label() {
        "GET" => {
            let (stream, response) = ScriptedResponse::stream();
            stream.send(changed()).unwrap();
            stream_sender.send(stream).unwrap();
            response
        }
        _ => default_response(request),
    })
    .await;
    let client = env.connect_to(&server.url).await.unwrap();
    let stream = stream_receiver.recv().await.unwrap();

    client.close().await.unwrap();
    stream.closed().await;

    let after: Vec<String> = server
        .take_received()
        .iter()
        .map(|one| one.label())
        .collect();
    let gets = after.iter().filter(|label| *label == "GET").count();
    assert_eq!(
        (gets, after.last().map(String::as_str)),
        (1, Some("DELETE"))
    );
}

async fn the_get_stream_is_resumed(env: ScenarioEnv) {
    let (stream_sender, mut stream_receiver) = tokio::sync::mpsc::unbounded_channel();
    let mut server = ScriptedHttpServer::start(move |request| match &*request.label() {
        "GET" if request.header("last-event-id").is_none() => ScriptedResponse::events(&changed()),
        "GET" => {
            let (stream, response) = ScriptedResponse::stream();
            stream.send(changed()).unwrap();
            stream_sender.send(stream).unwrap();
            response
        }
        _ => default_response(request),
    })
    .await;
    let _client = env.connect_to(&server.url).await.unwrap();

    server.request("GET").await;
    let again = server.request("GET").await;

    assert_eq!(again.header("last-event-id"), Some("g1"));
    drop(stream_receiver.recv().await);
}

async fn a_request_stream_with_an_event_id_is_resumed(env: ScenarioEnv) {
    let mut request_id = Value::Null;
    let (cut, waited) = (Mutex::new(None), Arc::new(Mutex::new(Duration::ZERO)));
    let has_waited = waited.clone();
    let mut server = ScriptedHttpServer::start(move |request| {
        match (&*request.label(), request.header("last-event-id")) {
            ("POST tools/call", _) => {
                request_id = request.body["id"].clone();
                *cut.lock().unwrap() = Some(Instant::now());
                ScriptedResponse::events("id: e1\nretry: 700\ndata:\n\n")
            }
            ("GET", Some("e1")) => {
                let cut = cut.lock().unwrap().unwrap();
                *waited.lock().unwrap() = cut.elapsed();
                let text = json!([{"type": "text", "text": "late"}]);
                let answer =
                    json!({"jsonrpc": "2.0", "id": request_id, "result": {"content": text}});
                ScriptedResponse::events(&format!("id: e2\ndata: {answer}\n\n"))
            }
            _ => default_response(request),
        }
    })
    .await;
    let client = env.connect_to(&server.url).await.unwrap();

    let reply = client.call_tool("x", ()).await.unwrap();

    assert_eq!(reply.text(), "late");
    // The default delay is a quarter of this.
    let waited = *has_waited.lock().unwrap();
    assert!(waited >= Duration::from_millis(700), "{waited:?}");
    let all = server.take_received();
    let posts = all.iter().filter(|one| one.label() == "POST tools/call");
    assert_eq!(posts.count(), 1, "the call was posted again");
}

async fn a_stream_without_an_event_id_is_not_resumed(env: ScenarioEnv) {
    let mut server = ScriptedHttpServer::start(|request| match &*request.label() {
        "POST tools/call" => ScriptedResponse::events(": nothing\n\n"),
        _ => default_response(request),
    })
    .await;
    let client = env.connect_to(&server.url).await.unwrap();

    let outcome = client.call_tool("x", ()).await;

    assert!(
        matches!(outcome, Err(bowline::Error::Transport { .. })),
        "{outcome:?}"
    );
    let all = server.take_received();
    assert!(all.iter().all(|one| one.header("last-event-id").is_none()));
}

async fn after_close_a_new_connection_starts_a_new_session(env: ScenarioEnv) {
    let service = hanging_server().http();
    let url = env.serve(service.clone()).await;
    let first = env.connect_to(&url).await.unwrap();
    first.call_tool("echo", ()).await.unwrap();
    assert_eq!(service.sessions(), 1);

    first.clone().close().await.unwrap();
    let after = first.call_tool("echo", ()).await;
    // The client does not wait for a slow answer to its DELETE.
    assert!(eventually(|| service.sessions() == 0).await);
    let second = env.connect_to(&url).await.unwrap();
    let reply = second.call_tool("echo", ()).await.unwrap();

    assert!(matches!(after, Err(bowline::Error::Closed)), "{after:?}");
    assert_eq!(reply.text(), "{}");
    assert_eq!(service.sessions(), 1);
}
