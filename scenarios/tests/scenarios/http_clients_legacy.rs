//! A client of ours over HTTP, before a server that follows a script: what only versions with a handshake have.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bowline::types::RequestId;
use scenarios::http::{Arrived, Say, Script, manners};
use scenarios::{Scenario, World, scenario};
use serde_json::{Value, json};

use crate::support::hanging;

pub(crate) fn scenarios() -> Vec<Scenario> {
    let all = vec![
        scenario!(
            the_name_of_the_conversation_and_its_version_are_remembered,
            "client-transport:http:session-stored",
            "client-transport:http:protocol-version-stored",
            "client-transport:http:protocol-version-header",
            "client-transport:http:accept-header-get",
        ),
        scenario!(
            a_server_need_not_have_a_stream_nor_let_clients_end_a_conversation,
            "client-transport:http:sse-405-tolerated",
            "client-transport:http:terminate-405-ok",
        ),
        scenario!(
            a_conversation_that_is_gone_is_begun_anew,
            "client-transport:http:session-404-reinitialize",
        ),
        scenario!(
            dropping_a_call_posts_one_cancel,
            "client-transport:http:cancel-posts-frame",
        ),
        scenario!(
            after_the_end_nothing_is_taken_up_again,
            "client-transport:http:no-reconnect-after-close",
        ),
        scenario!(
            the_stream_for_what_belongs_to_no_request_is_taken_up_again,
            "client-transport:http:reconnect-get",
        ),
        scenario!(
            the_stream_of_a_request_is_taken_up_again_if_it_had_an_id,
            "client-transport:http:reconnect-post-priming",
            "client-transport:http:reconnect-retry-value",
            "flow:resume:tool-call-resumption-token",
        ),
        scenario!(
            a_stream_that_had_no_id_is_not_taken_up_again,
            "client-transport:http:reconnect-post-priming",
        ),
        scenario!(
            after_the_end_a_new_conversation_begins,
            "flow:session:terminate-then-reconnect",
        ),
    ];
    let all = all.into_iter().map(Scenario::legacy);
    all.map(|scenario| scenario.since("2025-03-26").over_http())
        .collect()
}

/// What an event says unasked.
fn changed() -> String {
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    format!("id: g1\nretry: 1\ndata: {changed}\n\n")
}

async fn the_name_of_the_conversation_and_its_version_are_remembered(world: World) {
    let mut script = Script::start(manners).await;
    let client = world.connect_to(&script.url).await.unwrap();

    let stream = script.request("GET").await;
    client.call_tool("x", ()).await.unwrap();
    let call = script.request("POST tools/call").await;
    client.close().await.unwrap();
    let end = script.request("DELETE").await;

    assert_eq!(stream.header("accept"), Some("text/event-stream"));
    for arrived in [stream, call, end] {
        let what = arrived.what();
        assert_eq!(arrived.header("mcp-session-id"), Some("s1"), "{what}");
        let version = arrived.header("mcp-protocol-version");
        if let Some(version) = version {
            assert_eq!(version, world.version(), "{what}");
        }
        let is_named =
            world.dialect().http.version_header != bowline_core::era::VersionHeader::Never;
        assert_eq!(version.is_some(), is_named, "{what}");
    }
}

async fn a_server_need_not_have_a_stream_nor_let_clients_end_a_conversation(world: World) {
    let mut script = Script::start(|request| match &*request.what() {
        "GET" | "DELETE" => Say::status(405),
        _ => manners(request),
    })
    .await;
    let client = world.connect_to(&script.url).await.unwrap();

    script.request("GET").await;
    let reply = client.call_tool("x", ()).await.unwrap();
    let closed = client.close().await;

    assert_eq!(reply.text(), "done");
    assert!(closed.is_ok(), "{closed:?}");
    script.request("DELETE").await;
}

async fn a_conversation_that_is_gone_is_begun_anew(world: World) {
    let mut begun = 0;
    let mut script = Script::start(move |request: &Arrived| {
        if request.what() == "POST initialize" {
            begun += 1;
            let name = format!("s{begun}");
            return manners(request).header("mcp-session-id", &name);
        }
        match (&*request.what(), request.header("mcp-session-id")) {
            ("POST tools/call", Some("s1")) => Say::status(404),
            _ => manners(request),
        }
    })
    .await;
    let client = world.connect_to(&script.url).await.unwrap();

    let reply = client.call_tool("x", ()).await.unwrap();

    assert_eq!(reply.text(), "done");
    let posted: Vec<(String, Option<String>)> = script
        .so_far()
        .iter()
        .filter(|arrived| arrived.what() != "GET")
        .map(|arrived| {
            (
                arrived.what(),
                arrived.header("mcp-session-id").map(str::to_owned),
            )
        })
        .collect();
    let named = |what: &str, name: Option<&str>| (what.to_owned(), name.map(str::to_owned));
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

async fn dropping_a_call_posts_one_cancel(world: World) {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let mut script = Script::start(move |request| {
        if request.body["params"]["name"] != "slow" {
            return manners(request);
        }
        let (more, say) = Say::stream();
        tell.send(more).unwrap();
        say
    })
    .await;
    let client = world.connect_to(&script.url).await.unwrap();
    let slow = tokio::spawn(
        client
            .call_tool("slow", ())
            .id(RequestId::from("7"))
            .start(),
    );
    let stream = told.recv().await.unwrap();

    slow.abort();
    let cancel = script.request("POST notifications/cancelled").await;

    assert_eq!(cancel.body["params"]["requestId"], "7");
    assert_eq!(cancel.header("mcp-session-id"), Some("s1"));
    assert!(!stream.is_closed(), "the response is not cut");
    client.call_tool("quick", ()).await.unwrap();
    let more = script.so_far();
    let cancels = more.iter().filter(|one| one.what().contains("cancelled"));
    assert_eq!(cancels.count(), 0);
}

async fn after_the_end_nothing_is_taken_up_again(world: World) {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let mut script = Script::start(move |request| match &*request.what() {
        "GET" => {
            let (more, say) = Say::stream();
            more.send(changed()).unwrap();
            tell.send(more).unwrap();
            say
        }
        _ => manners(request),
    })
    .await;
    let client = world.connect_to(&script.url).await.unwrap();
    let stream = told.recv().await.unwrap();

    client.close().await.unwrap();
    stream.closed().await;

    let after: Vec<String> = script.so_far().iter().map(|one| one.what()).collect();
    let gets = after.iter().filter(|what| *what == "GET").count();
    assert_eq!(
        (gets, after.last().map(String::as_str)),
        (1, Some("DELETE"))
    );
}

async fn the_stream_for_what_belongs_to_no_request_is_taken_up_again(world: World) {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let mut script = Script::start(move |request| match &*request.what() {
        "GET" if request.header("last-event-id").is_none() => Say::events(&changed()),
        "GET" => {
            let (more, say) = Say::stream();
            more.send(changed()).unwrap();
            tell.send(more).unwrap();
            say
        }
        _ => manners(request),
    })
    .await;
    let _client = world.connect_to(&script.url).await.unwrap();

    script.request("GET").await;
    let again = script.request("GET").await;

    assert_eq!(again.header("last-event-id"), Some("g1"));
    drop(told.recv().await);
}

async fn the_stream_of_a_request_is_taken_up_again_if_it_had_an_id(world: World) {
    let mut asked = Value::Null;
    let (cut, waited) = (Mutex::new(None), Arc::new(Mutex::new(Duration::ZERO)));
    let has_waited = waited.clone();
    let mut script =
        Script::start(
            move |request| match (&*request.what(), request.header("last-event-id")) {
                ("POST tools/call", _) => {
                    asked = request.body["id"].clone();
                    *cut.lock().unwrap() = Some(Instant::now());
                    Say::events("id: e1\nretry: 700\ndata:\n\n")
                }
                ("GET", Some("e1")) => {
                    let cut = cut.lock().unwrap().unwrap();
                    *waited.lock().unwrap() = cut.elapsed();
                    let text = json!([{"type": "text", "text": "late"}]);
                    let answer =
                        json!({"jsonrpc": "2.0", "id": asked, "result": {"content": text}});
                    Say::events(&format!("id: e2\ndata: {answer}\n\n"))
                }
                _ => manners(request),
            },
        )
        .await;
    let client = world.connect_to(&script.url).await.unwrap();

    let reply = client.call_tool("x", ()).await.unwrap();

    assert_eq!(reply.text(), "late");
    // Without being told, a client waits a quarter of that.
    let waited = *has_waited.lock().unwrap();
    assert!(waited >= Duration::from_millis(700), "{waited:?}");
    let all = script.so_far();
    let posts = all.iter().filter(|one| one.what() == "POST tools/call");
    assert_eq!(posts.count(), 1, "it is not asked again");
}

async fn a_stream_that_had_no_id_is_not_taken_up_again(world: World) {
    let mut script = Script::start(|request| match &*request.what() {
        "POST tools/call" => Say::events(": nothing\n\n"),
        _ => manners(request),
    })
    .await;
    let client = world.connect_to(&script.url).await.unwrap();

    let outcome = client.call_tool("x", ()).await;

    assert!(
        matches!(outcome, Err(bowline::Error::Transport { .. })),
        "{outcome:?}"
    );
    let all = script.so_far();
    assert!(all.iter().all(|one| one.header("last-event-id").is_none()));
}

async fn after_the_end_a_new_conversation_begins(world: World) {
    let service = hanging().http();
    let url = world.serve(service.clone()).await;
    let first = world.connect_to(&url).await.unwrap();
    first.call_tool("echo", ()).await.unwrap();
    assert_eq!(service.sessions(), 1);

    first.clone().close().await.unwrap();
    let after = first.call_tool("echo", ()).await;
    assert_eq!(service.sessions(), 0);
    let second = world.connect_to(&url).await.unwrap();
    let reply = second.call_tool("echo", ()).await.unwrap();

    assert!(matches!(after, Err(bowline::Error::Closed)), "{after:?}");
    assert_eq!(reply.text(), "{}");
    assert_eq!(service.sessions(), 1);
}
