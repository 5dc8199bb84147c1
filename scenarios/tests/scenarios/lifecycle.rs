//! How a connection opens: who each side is, what it can do, and which version is spoken.

use std::time::Duration;

use bowline::client::Host;
use bowline::exchange::Dialects;
use bowline::testing::{self, Tap};
use bowline::types::{CacheScope, DiscoverRequest, LoggingLevel, Meta, RequestParams, meta_key};
use bowline::{CallToolResult, Client, Context, Error, ErrorCode, Json, Server, Tool, wire};
use scenarios::{Scenario, World, scenario};
use serde_json::{Value, json};

use crate::support::{anything, echo, hang, hanging, tally, tools};

pub(crate) fn scenarios() -> Vec<Scenario> {
    [introductions(), handshakes(), envelopes()].concat()
}

fn introductions() -> Vec<Scenario> {
    vec![
        scenario!(
            the_server_introduces_itself_when_the_connection_opens,
            "lifecycle:initialize:basic",
            "lifecycle:initialize:server-info",
            "lifecycle:initialize:instructions",
            "lifecycle:version:match",
            "lifecycle:mode:legacy-never-probes",
        )
        .legacy(),
        scenario!(
            what_is_offered_is_advertised_and_nothing_else,
            "lifecycle:initialize:capabilities:from-handlers",
            "lifecycle:initialize:capabilities:minimal",
            "tools:capability:declared",
        ),
        scenario!(
            a_handler_knows_who_calls,
            "lifecycle:initialize:client-info",
            "mcpserver:tool:extra",
        ),
    ]
}

fn handshakes() -> Vec<Scenario> {
    vec![
        scenario!(
            one_notice_ends_the_handshake_before_anything_is_asked,
            "lifecycle:initialized-notification",
        )
        .legacy()
        .in_memory(),
        scenario!(
            a_server_answers_a_ping,
            "lifecycle:ping",
            "ping:client-to-server"
        )
        .legacy(),
        scenario!(
            a_client_answers_a_ping,
            "lifecycle:ping",
            "ping:server-to-client"
        )
        .legacy()
        .in_memory(),
        scenario!(
            before_the_handshake_only_a_ping_is_answered,
            "lifecycle:requests-before-initialized",
        )
        .legacy()
        .in_memory(),
        scenario!(
            until_the_handshake_is_over_neither_side_says_more,
            "lifecycle:pre-initialization-ordering",
        )
        .legacy()
        .in_memory(),
        scenario!(
            after_falling_back_to_a_handshake_nothing_modern_is_said,
            "lifecycle:stateless:unpinned-legacy-wire",
        )
        .legacy()
        .in_memory(),
        scenario!(
            a_server_that_does_not_know_the_question_is_greeted_by_a_handshake,
            "lifecycle:discover:fallback-method-not-found",
            "lifecycle:version:downgrade",
        )
        .legacy()
        .in_memory(),
        scenario!(
            an_offer_that_the_server_does_not_speak_is_answered_by_one_that_it_does,
            "lifecycle:version:server-fallback-latest",
        )
        .legacy()
        .in_memory(),
        scenario!(
            a_client_does_not_go_along_with_a_version_that_it_does_not_speak,
            "lifecycle:version:reject-unsupported",
        )
        .legacy()
        .in_memory(),
    ]
}

fn envelopes() -> Vec<Scenario> {
    vec![
        scenario!(
            every_request_carries_its_envelope_and_no_notification_does,
            "lifecycle:stateless:request-envelope",
            "lifecycle:stateless:no-initialize",
            "lifecycle:envelope:stamped-on-every-request",
            "lifecycle:mode:pin-never-handshakes",
        )
        .modern()
        .in_memory(),
        scenario!(
            what_a_caller_adds_to_the_envelope_is_kept_unless_it_contradicts_it,
            "lifecycle:stateless:caller-meta-preserved",
        )
        .modern()
        .in_memory(),
        scenario!(
            a_server_that_is_asked_introduces_itself,
            "lifecycle:discover:basic"
        )
        .modern(),
        scenario!(
            a_refused_version_is_followed_by_one_that_both_speak_or_by_none,
            "lifecycle:discover:retry-on-32022",
        )
        .in_memory(),
        scenario!(
            a_wire_that_fails_is_no_verdict_on_the_server,
            "lifecycle:discover:network-error-raises",
        )
        .modern()
        .in_memory(),
        scenario!(
            a_handshake_that_takes_too_long_is_given_up_and_not_cancelled,
            "protocol:cancel:initialize-not-cancellable",
        )
        .legacy()
        .in_memory(),
    ]
}

async fn the_server_introduces_itself_when_the_connection_opens(world: World) {
    let server = Server::new("librarian", "1.2.3").instructions("Ask for books.");

    let client = world.connect(&server).await;

    let introduction = client.server().unwrap();
    let identity = client.server_implementation().unwrap();
    assert_eq!(client.dialect().version, world.version());
    assert_eq!(introduction.instructions.as_deref(), Some("Ask for books."));
    assert_eq!(
        (&*identity.name, &*identity.version),
        ("librarian", "1.2.3")
    );
    if let Some(tapped) = world.tapped() {
        let (sent, received) = (&tapped.sent()[0], &tapped.received()[0]);
        assert_eq!(sent["method"], "initialize");
        assert_eq!(sent["params"]["protocolVersion"], world.version());
        assert_eq!(received["result"]["protocolVersion"], world.version());
    }
}

async fn what_is_offered_is_advertised_and_nothing_else(world: World) {
    let (empty, full) = (
        Server::new("empty", "1"),
        Server::new("full", "1").tool(echo("echo")),
    );

    let of_empty = world.introduction(&world.connect(&empty).await).await;
    let of_full = world.introduction(&world.connect(&full).await).await;

    let of_empty = serde_json::to_value(of_empty.capabilities).unwrap();
    let of_full = serde_json::to_value(of_full.capabilities).unwrap();
    assert_eq!(of_empty, json!({}));
    assert_eq!(of_full, json!({"tools": {"listChanged": true}}));
}

async fn a_handler_knows_who_calls(world: World) {
    let who = Tool::raw("who", anything(), async |_, cx: Context| {
        let caller = cx.caller().implementation.clone().unwrap();
        let text = format!("{} {} as {}", caller.name, caller.version, cx.request_id());
        Ok(CallToolResult::text(text))
    });
    let server = Server::new("curious", "1").tool(who);
    let client = world
        .connect_with(&server, |connect| connect.named("editor", "2.1"))
        .await;

    let reply = client.call_tool("who", ()).id("mine").await.unwrap();

    assert_eq!(reply.text(), r#"editor 2.1 as "mine""#);
}

async fn one_notice_ends_the_handshake_before_anything_is_asked(world: World) {
    let client = world
        .connect(&Server::new("s", "1").tool(echo("echo")))
        .await;

    tools(&client).await;

    let sent = world.tapped().unwrap().sent();
    let methods: Vec<&str> = sent
        .iter()
        .filter_map(|frame| frame["method"].as_str())
        .collect();
    assert_eq!(
        methods,
        ["initialize", "notifications/initialized", "tools/list"]
    );
}

async fn a_server_answers_a_ping(world: World) {
    let client = world.connect(&Server::new("s", "1")).await;

    let pong = client.raw("ping", ()).await.unwrap();

    assert_eq!(pong.json().as_str(), "{}");
}

async fn a_client_answers_a_ping(world: World) {
    let (client, mut server) = world.scripted_server(json!({}), |connect| connect).await;

    let pong = server.ask("p", "ping", json!({})).await;

    assert_eq!(pong, json!({"jsonrpc": "2.0", "id": "p", "result": {}}));
    drop(client);
}

async fn before_the_handshake_only_a_ping_is_answered(world: World) {
    let mut client = testing::scripted_client(&Server::new("s", "1").tool(echo("echo")));

    let early = client.ask("early", "tools/list", json!({})).await;
    let pong = client.ask("ping", "ping", json!({})).await;
    client.open(world.dialect(), json!({})).await;
    let late = client.ask("late", "tools/list", json!({})).await;

    assert!(early["error"]["code"].is_i64(), "{early}");
    assert_eq!(pong["result"], json!({}));
    assert_eq!(late["result"]["tools"][0]["name"], "echo");
}

async fn until_the_handshake_is_over_neither_side_says_more(world: World) {
    // A client that waits for the answer to its `initialize`.
    let (wire, mut server) = testing::scripted();
    let client = Client::over(wire).speaking(world.version());
    let connecting = tokio::spawn(client.into_future());
    let id = server.expect("initialize").await.hold();
    server.expect_nothing().await;
    let named = json!({"name": "s", "version": "1"});
    let answer =
        json!({"protocolVersion": world.version(), "capabilities": {}, "serverInfo": named});
    server.answer(id, answer);
    server
        .expect_notification("notifications/initialized")
        .await;
    connecting.await.unwrap().unwrap();

    // A server whose client has not said that it is ready.
    let server = Server::new("s", "1").tool(echo("echo")).logging();
    let mut client = testing::scripted_client(&server);
    let named = json!({"name": "c", "version": "1"});
    let opening = json!({"protocolVersion": world.version(), "capabilities": {"roots": {}}, "clientInfo": named});
    let opened = client.ask("i", "initialize", opening).await;
    server.tools().add(echo("second")).unwrap();
    client.expect_nothing().await;
    client.notify("notifications/initialized", json!({}));
    let pong = client.ask("ping", "ping", json!({})).await;
    server.tools().add(echo("third")).unwrap();

    let changed = "notifications/tools/list_changed";
    assert_eq!(opened["result"]["protocolVersion"], world.version());
    assert_eq!(pong["result"], json!({}));
    client.expect_notification(changed).await;
}

async fn a_server_that_does_not_know_the_question_is_greeted_by_a_handshake(world: World) {
    let (wire, mut server) = testing::scripted();
    let connecting = tokio::spawn(Client::over(wire).into_future());

    let unknown = server.expect("server/discover").await;
    unknown.refuse(ErrorCode::METHOD_NOT_FOUND, "what?");
    server
        .shake_hands(world.version(), json!({"tools": {}}))
        .await;
    let client = connecting.await.unwrap().unwrap();
    let listing = tokio::spawn(client.raw("tools/list", ()).into_future());
    let asked = server.expect("tools/list").await;
    let params = asked.params().clone();
    asked.answer(json!({"tools": []}));

    listing.await.unwrap().unwrap();
    assert_eq!(client.dialect().version, world.version());
    assert!(params["_meta"].is_null(), "{params}");
}

async fn after_falling_back_to_a_handshake_nothing_modern_is_said(world: World) {
    let (near, far) = wire::memory();
    let (tap, tapped) = Tap::new(near);
    let old = Dialects::from(world.dialect());
    tokio::spawn(hanging().logging().versions(old).serve(far));
    let host = Host::new().roots(async || vec![]).roots_change();
    let client = Client::over(tap).host(host).await.unwrap();

    client.list_tools().await.unwrap();
    client
        .call_tool("echo", json!({"a": 1}))
        .on_progress(drop)
        .await
        .unwrap();
    client.set_log_level(LoggingLevel::Info).await.unwrap();
    client.roots_changed().unwrap();
    client.ping().await.unwrap();
    let call = hang(&client).await;
    call.abort();
    tally(&client, 1, 1).await;

    let mut sent = tapped.sent().into_iter();
    assert_eq!(sent.next().unwrap()["method"], "server/discover");
    let mut methods = Vec::new();
    for frame in sent {
        assert!(
            !frame.to_string().contains("io.modelcontextprotocol/"),
            "{frame}"
        );
        methods.extend(frame["method"].as_str().map(str::to_owned));
    }
    let known = &world.dialect().methods;
    for method in &methods {
        let is_known = known.client_requests.contains(&&**method)
            || known.client_notifications.contains(&&**method);
        assert!(is_known, "{method}");
    }
    for said in ["initialize", "tools/list", "notifications/cancelled"] {
        assert!(methods.iter().any(|method| method == said), "{methods:?}");
    }
}

async fn an_offer_that_the_server_does_not_speak_is_answered_by_one_that_it_does(_: World) {
    let mut client = testing::scripted_client(&Server::new("s", "1"));
    let offer = json!({
        "protocolVersion": "1999-12-31",
        "capabilities": {},
        "clientInfo": {"name": "old", "version": "1"},
    });

    let answer = client.ask("1", "initialize", offer).await;

    assert_eq!(answer["result"]["protocolVersion"], "2025-11-25");
}

async fn a_client_does_not_go_along_with_a_version_that_it_does_not_speak(world: World) {
    let (wire, mut server) = testing::scripted();
    let connecting = tokio::spawn(Client::over(wire).speaking(world.version()).into_future());

    server.expect("initialize").await.answer(json!({
        "protocolVersion": "1999-12-31",
        "capabilities": {},
        "serverInfo": {"name": "old", "version": "1"},
    }));

    let error = connecting.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Protocol { .. }), "{error:?}");
    server.expect_nothing().await;
}

async fn every_request_carries_its_envelope_and_no_notification_does(world: World) {
    let client = world.connect(&hanging()).await;
    let tapped = world.tapped().unwrap();
    assert_eq!(tapped.frames(), [], "connecting needs no word");

    tools(&client).await;
    hang(&client).await.abort();
    tally(&client, 1, 1).await;

    let sent = tapped.sent();
    let is_request = |frame: &&Value| frame["id"] != Value::Null;
    assert!(
        sent.iter().any(|frame| !is_request(&frame)),
        "something was cancelled"
    );
    for frame in sent.iter().filter(is_request) {
        let meta = &frame["params"]["_meta"];
        assert_eq!(meta[meta_key::PROTOCOL_VERSION], world.version(), "{frame}");
        assert!(meta[meta_key::CLIENT_CAPABILITIES].is_object(), "{frame}");
    }
    for frame in sent.iter().filter(|frame| !is_request(frame)) {
        assert!(frame["params"]["_meta"].is_null(), "{frame}");
    }
}

async fn what_a_caller_adds_to_the_envelope_is_kept_unless_it_contradicts_it(world: World) {
    let client = world
        .connect(&Server::new("s", "1").tool(echo("echo")))
        .await;
    let mut meta = Meta::default();
    meta.insert("example.com/note", Json::from(json!("keep me")));
    meta.insert(meta_key::PROTOCOL_VERSION, Json::from(json!("1999-12-31")));

    client.call_tool("echo", ()).meta(meta).await.unwrap();

    let sent = &world.tapped().unwrap().sent()[0]["params"]["_meta"];
    assert_eq!(sent["example.com/note"], "keep me");
    assert_eq!(sent[meta_key::PROTOCOL_VERSION], world.version());
}

async fn a_server_that_is_asked_introduces_itself(world: World) {
    let server = Server::new("librarian", "1.2.3")
        .instructions("Ask for books.")
        .cache(Duration::from_secs(90), CacheScope::PUBLIC)
        .tool(echo("echo"));
    let client = world.connect(&server).await;

    let params = RequestParams::default();
    let told = client.request::<DiscoverRequest>(&params).await.unwrap();

    let versions: Vec<&str> = told
        .supported_versions
        .iter()
        .map(|version| version.as_str())
        .collect();
    let identity = told.meta.unwrap().server_info().unwrap().unwrap();
    let all: Vec<&str> = Dialects::all().iter().map(|it| it.version).collect();
    assert_eq!(versions, all);
    let offered = serde_json::to_value(&told.capabilities).unwrap();
    assert_eq!(offered, json!({"tools": {"listChanged": true}}));
    assert_eq!(told.ttl_ms, Some(90_000));
    assert_eq!(told.cache_scope, Some(CacheScope::PUBLIC));
    assert_eq!(told.instructions.as_deref(), Some("Ask for books."));
    assert_eq!(
        (&*identity.name, &*identity.version),
        ("librarian", "1.2.3")
    );
}

async fn a_refused_version_is_followed_by_one_that_both_speak_or_by_none(world: World) {
    let refusing = |supported: &str| {
        let supported = json!({"supported": [supported], "requested": "2026-07-28"});
        json!({"code": -32022, "message": "Unsupported protocol version", "data": supported})
    };
    let (wire, mut server) = testing::scripted();
    let connecting = tokio::spawn(Client::over(wire).into_future());
    let (stranger_wire, mut stranger) = testing::scripted();
    let connecting_in_vain = tokio::spawn(Client::over(stranger_wire).into_future());

    let id = server.expect("server/discover").await.hold();
    server.say(&json!({"jsonrpc": "2.0", "id": id, "error": refusing(world.version())}));
    if world.is_modern() {
        let again = server.expect("server/discover").await;
        let asked = again.params()["_meta"][meta_key::PROTOCOL_VERSION].clone();
        again.answer(json!({
            "supportedVersions": [world.version()],
            "capabilities": {},
            "resultType": "complete",
        }));
        assert_eq!(asked, world.version());
    } else {
        server.shake_hands(world.version(), json!({})).await;
    }
    let id = stranger.expect("server/discover").await.hold();
    stranger.say(&json!({"jsonrpc": "2.0", "id": id, "error": refusing("1999-12-31")}));

    let client = connecting.await.unwrap().unwrap();
    assert_eq!(client.dialect().version, world.version());
    assert!(connecting_in_vain.await.unwrap().is_err());
    stranger.expect_nothing().await;
}

async fn a_wire_that_fails_is_no_verdict_on_the_server(_: World) {
    let (wire, mut server) = testing::scripted();
    let (tap, tapped) = Tap::new(wire);
    let connecting = tokio::spawn(Client::over(tap).into_future());

    let asked = server.expect("server/discover").await;
    let _ = asked.hold();
    tapped.cut();

    let error = connecting.await.unwrap().unwrap_err();
    assert!(
        matches!(error, Error::Transport { .. } | Error::Closed),
        "{error:?}"
    );
    server.expect_nothing().await;
}

async fn a_handshake_that_takes_too_long_is_given_up_and_not_cancelled(world: World) {
    let (wire, mut server) = testing::scripted();
    let connect = Client::over(wire).speaking(world.version());
    let connecting = tokio::spawn(connect.timeout(Duration::from_secs(1)).into_future());

    let _ = server.expect("initialize").await.hold();

    let error = connecting.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
    server.expect_nothing().await;
}
