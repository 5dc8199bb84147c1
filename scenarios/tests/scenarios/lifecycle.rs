//! Connecting: handshake, discovery, capabilities and version negotiation.

use std::time::Duration;

use bowline::client::Host;
use bowline::exchange::Dialects;
use bowline::testing::{self, RecordingWire};
use bowline::types::{CacheScope, DiscoverRequest, LoggingLevel, Meta, RequestParams, meta_key};
use bowline::{CallToolResult, Client, Context, Error, ErrorCode, Json, Server, Tool, wire};
use scenarios::{Scenario, ScenarioEnv, scenario};
use serde_json::{Value, json};

use crate::support::{any_object, echo, hanging_server, start_hang, tools, wait_for_handlers};

pub(crate) fn scenarios() -> Vec<Scenario> {
    [introductions(), handshakes(), envelopes()].concat()
}

fn introductions() -> Vec<Scenario> {
    vec![
        scenario!(
            initialize_returns_the_server_info_and_the_instructions,
            "lifecycle:initialize:basic",
            "lifecycle:initialize:server-info",
            "lifecycle:initialize:instructions",
            "lifecycle:version:match",
            "lifecycle:mode:legacy-never-probes",
        )
        .legacy(),
        scenario!(
            only_registered_features_are_advertised,
            "lifecycle:initialize:capabilities:from-handlers",
            "lifecycle:initialize:capabilities:minimal",
            "tools:capability:declared",
        ),
        scenario!(
            a_handler_receives_the_client_info_and_the_request_id,
            "lifecycle:initialize:client-info",
            "mcpserver:tool:extra",
        ),
    ]
}

fn handshakes() -> Vec<Scenario> {
    vec![
        scenario!(
            initialized_is_sent_before_the_first_request,
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
            before_initialize_only_ping_is_answered,
            "lifecycle:requests-before-initialized",
        )
        .legacy()
        .in_memory(),
        scenario!(
            neither_side_sends_other_messages_during_the_handshake,
            "lifecycle:pre-initialization-ordering",
        )
        .legacy()
        .in_memory(),
        scenario!(
            after_a_legacy_fallback_no_modern_message_is_sent,
            "lifecycle:stateless:unpinned-legacy-wire",
        )
        .legacy()
        .in_memory(),
        scenario!(
            a_server_without_discover_is_initialized,
            "lifecycle:discover:fallback-method-not-found",
            "lifecycle:version:downgrade",
        )
        .legacy()
        .in_memory(),
        scenario!(
            an_unsupported_client_version_is_answered_with_a_supported_one,
            "lifecycle:version:server-fallback-latest",
        )
        .legacy()
        .in_memory(),
        scenario!(
            a_client_rejects_an_unsupported_server_version,
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
            caller_meta_is_sent_unless_it_contradicts_the_envelope,
            "lifecycle:stateless:caller-meta-preserved",
        )
        .modern()
        .in_memory(),
        scenario!(
            discover_returns_versions_capabilities_and_server_info,
            "lifecycle:discover:basic"
        )
        .modern(),
        scenario!(
            a_rejected_version_is_retried_with_a_common_one_if_there_is_one,
            "lifecycle:discover:retry-on-32022",
        )
        .in_memory(),
        scenario!(
            a_wire_failure_during_the_probe_fails_the_connection,
            "lifecycle:discover:network-error-raises",
        )
        .modern()
        .in_memory(),
        scenario!(
            a_timed_out_initialize_is_not_cancelled,
            "protocol:cancel:initialize-not-cancellable",
        )
        .legacy()
        .in_memory(),
    ]
}

async fn initialize_returns_the_server_info_and_the_instructions(env: ScenarioEnv) {
    let server = Server::new("librarian", "1.2.3").instructions("Ask for books.");

    let client = env.connect(&server).await;

    let discover_result = client.server().unwrap();
    let identity = client.server_info().unwrap();
    assert_eq!(client.dialect().version, env.version());
    assert_eq!(
        discover_result.instructions.as_deref(),
        Some("Ask for books.")
    );
    assert_eq!(
        (&*identity.name, &*identity.version),
        ("librarian", "1.2.3")
    );
    if let Some(record) = env.wire_record() {
        let (sent, received) = (&record.sent()[0], &record.received()[0]);
        assert_eq!(sent["method"], "initialize");
        assert_eq!(sent["params"]["protocolVersion"], env.version());
        assert_eq!(received["result"]["protocolVersion"], env.version());
    }
}

async fn only_registered_features_are_advertised(env: ScenarioEnv) {
    let (empty, full) = (
        Server::new("empty", "1"),
        Server::new("full", "1").tool(echo("echo")),
    );

    let of_empty = env.discover_result(&env.connect(&empty).await).await;
    let of_full = env.discover_result(&env.connect(&full).await).await;

    let of_empty = serde_json::to_value(of_empty.capabilities).unwrap();
    let of_full = serde_json::to_value(of_full.capabilities).unwrap();
    assert_eq!(of_empty, json!({}));
    assert_eq!(of_full, json!({"tools": {"listChanged": true}}));
}

async fn a_handler_receives_the_client_info_and_the_request_id(env: ScenarioEnv) {
    let who = Tool::raw("who", any_object(), async |_, cx: Context| {
        let caller = cx.caller().implementation.clone().unwrap();
        let text = format!("{} {} as {}", caller.name, caller.version, cx.request_id());
        Ok(CallToolResult::text(text))
    });
    let server = Server::new("curious", "1").tool(who);
    let client = env
        .connect_with(&server, |connect| connect.client_info("editor", "2.1"))
        .await;

    let reply = client.call_tool("who", ()).id("mine").await.unwrap();

    assert_eq!(reply.text(), r#"editor 2.1 as "mine""#);
}

async fn initialized_is_sent_before_the_first_request(env: ScenarioEnv) {
    let client = env.connect(&Server::new("s", "1").tool(echo("echo"))).await;

    tools(&client).await;

    let sent = env.wire_record().unwrap().sent();
    let methods: Vec<&str> = sent
        .iter()
        .filter_map(|frame| frame["method"].as_str())
        .collect();
    assert_eq!(
        methods,
        ["initialize", "notifications/initialized", "tools/list"]
    );
}

async fn a_server_answers_a_ping(env: ScenarioEnv) {
    let client = env.connect(&Server::new("s", "1")).await;

    let pong = client.request_raw("ping", ()).await.unwrap();

    assert_eq!(pong.json().as_str(), "{}");
}

async fn a_client_answers_a_ping(env: ScenarioEnv) {
    let (client, mut server) = env.scripted_server(|connect| connect).await;

    let pong = server.call("p", "ping", json!({})).await;

    assert_eq!(pong, json!({"jsonrpc": "2.0", "id": "p", "result": {}}));
    drop(client);
}

async fn before_initialize_only_ping_is_answered(env: ScenarioEnv) {
    let mut client = testing::scripted_client(&Server::new("s", "1").tool(echo("echo")));

    let early = client.call("early", "tools/list", json!({})).await;
    let pong = client.call("ping", "ping", json!({})).await;
    client.perform_handshake(env.dialect(), json!({})).await;
    let late = client.call("late", "tools/list", json!({})).await;

    assert!(early["error"]["code"].is_i64(), "{early}");
    assert_eq!(pong["result"], json!({}));
    assert_eq!(late["result"]["tools"][0]["name"], "echo");
}

async fn neither_side_sends_other_messages_during_the_handshake(env: ScenarioEnv) {
    // A client waits for the result of `initialize`.
    let (wire, mut server) = testing::scripted_peer();
    let client = Client::from_wire(wire)
        .protocol_version(env.version())
        .connect_timeout(Duration::MAX);
    let connecting = tokio::spawn(client.into_future());
    let id = server.expect("initialize").await.hold();
    server.expect_nothing().await;
    let named = json!({"name": "s", "version": "1"});
    let answer = json!({"protocolVersion": env.version(), "capabilities": {}, "serverInfo": named});
    server.answer(id, answer);
    server
        .expect_notification("notifications/initialized")
        .await;
    connecting.await.unwrap().unwrap();

    // A server waits for `notifications/initialized`.
    let server = Server::new("s", "1").tool(echo("echo")).logging();
    let mut client = testing::scripted_client(&server);
    let named = json!({"name": "c", "version": "1"});
    let opening = json!({"protocolVersion": env.version(), "capabilities": {"roots": {}}, "clientInfo": named});
    let opened = client.call("i", "initialize", opening).await;
    server.tools().add(echo("second")).unwrap();
    client.expect_nothing().await;
    client.notify("notifications/initialized", json!({}));
    let pong = client.call("ping", "ping", json!({})).await;
    server.tools().add(echo("third")).unwrap();

    let changed = "notifications/tools/list_changed";
    assert_eq!(opened["result"]["protocolVersion"], env.version());
    assert_eq!(pong["result"], json!({}));
    client.expect_notification(changed).await;
}

async fn a_server_without_discover_is_initialized(env: ScenarioEnv) {
    let (wire, mut server) = testing::scripted_peer();
    let connecting = tokio::spawn(Client::from_wire(wire).into_future());

    let unknown = server.expect("server/discover").await;
    unknown.answer_error(ErrorCode::METHOD_NOT_FOUND, "method not found");
    server
        .accept_handshake(env.version(), json!({"tools": {}}))
        .await;
    let client = connecting.await.unwrap().unwrap();
    let listing = tokio::spawn(client.request_raw("tools/list", ()).into_future());
    let request = server.expect("tools/list").await;
    let params = request.params().clone();
    request.answer(json!({"tools": []}));

    listing.await.unwrap().unwrap();
    assert_eq!(client.dialect().version, env.version());
    assert!(params["_meta"].is_null(), "{params}");
}

async fn after_a_legacy_fallback_no_modern_message_is_sent(env: ScenarioEnv) {
    let (near, far) = wire::memory();
    let (recording, record) = RecordingWire::new(near);
    let old = Dialects::from(env.dialect());
    tokio::spawn(hanging_server().logging().versions(old).serve(far));
    let host = Host::new().roots(async || vec![]).roots_list_changed();
    let client = Client::from_wire(recording).host(host).await.unwrap();

    client.list_tools().await.unwrap();
    client
        .call_tool("echo", json!({"a": 1}))
        .on_progress(drop)
        .await
        .unwrap();
    client.set_log_level(LoggingLevel::Info).await.unwrap();
    client.roots_changed().unwrap();
    client.ping().await.unwrap();
    let call = start_hang(&client).await;
    call.abort();
    wait_for_handlers(&client, 1, 1).await;

    let mut sent = record.sent().into_iter();
    assert_eq!(sent.next().unwrap()["method"], "server/discover");
    let mut methods = Vec::new();
    for frame in sent {
        assert!(
            !frame.to_string().contains("io.modelcontextprotocol/"),
            "{frame}"
        );
        methods.extend(frame["method"].as_str().map(str::to_owned));
    }
    let known = &env.dialect().methods;
    for method in &methods {
        let is_known = known.client_requests.contains(&&**method)
            || known.client_notifications.contains(&&**method);
        assert!(is_known, "{method}");
    }
    for method_name in ["initialize", "tools/list", "notifications/cancelled"] {
        assert!(
            methods.iter().any(|method| method == method_name),
            "{methods:?}"
        );
    }
}

async fn an_unsupported_client_version_is_answered_with_a_supported_one(_: ScenarioEnv) {
    let mut client = testing::scripted_client(&Server::new("s", "1"));
    let offer = json!({
        "protocolVersion": "1999-12-31",
        "capabilities": {},
        "clientInfo": {"name": "old", "version": "1"},
    });

    let answer = client.call("1", "initialize", offer).await;

    assert_eq!(answer["result"]["protocolVersion"], "2025-11-25");
}

async fn a_client_rejects_an_unsupported_server_version(env: ScenarioEnv) {
    let (wire, mut server) = testing::scripted_peer();
    let connecting = tokio::spawn(
        Client::from_wire(wire)
            .protocol_version(env.version())
            .into_future(),
    );

    server.expect("initialize").await.answer(json!({
        "protocolVersion": "1999-12-31",
        "capabilities": {},
        "serverInfo": {"name": "old", "version": "1"},
    }));

    let error = connecting.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Protocol { .. }), "{error:?}");
    server.expect_nothing().await;
}

async fn every_request_carries_its_envelope_and_no_notification_does(env: ScenarioEnv) {
    let client = env.connect(&hanging_server()).await;
    let record = env.wire_record().unwrap();
    assert_eq!(record.frames(), [], "connecting sent a frame");

    tools(&client).await;
    start_hang(&client).await.abort();
    wait_for_handlers(&client, 1, 1).await;

    let sent = record.sent();
    let is_request = |frame: &&Value| frame["id"] != Value::Null;
    assert!(
        sent.iter().any(|frame| !is_request(&frame)),
        "no cancel was sent"
    );
    for frame in sent.iter().filter(is_request) {
        let meta = &frame["params"]["_meta"];
        assert_eq!(meta[meta_key::PROTOCOL_VERSION], env.version(), "{frame}");
        assert!(meta[meta_key::CLIENT_CAPABILITIES].is_object(), "{frame}");
    }
    for frame in sent.iter().filter(|frame| !is_request(frame)) {
        assert!(frame["params"]["_meta"].is_null(), "{frame}");
    }
}

async fn caller_meta_is_sent_unless_it_contradicts_the_envelope(env: ScenarioEnv) {
    let client = env.connect(&Server::new("s", "1").tool(echo("echo"))).await;
    let mut meta = Meta::default();
    meta.insert("example.com/note", Json::from(json!("keep me")));
    meta.insert(meta_key::PROTOCOL_VERSION, Json::from(json!("1999-12-31")));

    client.call_tool("echo", ()).meta(meta).await.unwrap();

    let sent = &env.wire_record().unwrap().sent()[0]["params"]["_meta"];
    assert_eq!(sent["example.com/note"], "keep me");
    assert_eq!(sent[meta_key::PROTOCOL_VERSION], env.version());
}

async fn discover_returns_versions_capabilities_and_server_info(env: ScenarioEnv) {
    let server = Server::new("librarian", "1.2.3")
        .instructions("Ask for books.")
        .cache(Duration::from_secs(90), CacheScope::PUBLIC)
        .tool(echo("echo"));
    let client = env.connect(&server).await;

    let params = RequestParams::default();
    let discovered = client.request::<DiscoverRequest>(&params).await.unwrap();

    let versions: Vec<&str> = discovered
        .supported_versions
        .iter()
        .map(|version| version.as_str())
        .collect();
    let identity = discovered.meta.unwrap().server_info().unwrap().unwrap();
    let all: Vec<&str> = Dialects::all().iter().map(|it| it.version).collect();
    assert_eq!(versions, all);
    let offered = serde_json::to_value(&discovered.capabilities).unwrap();
    assert_eq!(offered, json!({"tools": {"listChanged": true}}));
    assert_eq!(discovered.ttl_ms, Some(90_000));
    assert_eq!(discovered.cache_scope, Some(CacheScope::PUBLIC));
    assert_eq!(discovered.instructions.as_deref(), Some("Ask for books."));
    assert_eq!(
        (&*identity.name, &*identity.version),
        ("librarian", "1.2.3")
    );
}

async fn a_rejected_version_is_retried_with_a_common_one_if_there_is_one(env: ScenarioEnv) {
    let refusing = |supported: &str| {
        let supported = json!({"supported": [supported], "requested": "2026-07-28"});
        json!({"code": -32022, "message": "Unsupported protocol version", "data": supported})
    };
    let (wire, mut server) = testing::scripted_peer();
    let connecting = tokio::spawn(Client::from_wire(wire).into_future());
    let (incompatible_wire, mut incompatible) = testing::scripted_peer();
    let failing_connect = tokio::spawn(Client::from_wire(incompatible_wire).into_future());

    let id = server.expect("server/discover").await.hold();
    server.send_json(&json!({"jsonrpc": "2.0", "id": id, "error": refusing(env.version())}));
    if env.is_modern() {
        let again = server.expect("server/discover").await;
        let requested = again.params()["_meta"][meta_key::PROTOCOL_VERSION].clone();
        again.answer(json!({
            "supportedVersions": [env.version()],
            "capabilities": {},
            "resultType": "complete",
        }));
        assert_eq!(requested, env.version());
    } else {
        server.accept_handshake(env.version(), json!({})).await;
    }
    let id = incompatible.expect("server/discover").await.hold();
    incompatible.send_json(&json!({"jsonrpc": "2.0", "id": id, "error": refusing("1999-12-31")}));

    let client = connecting.await.unwrap().unwrap();
    assert_eq!(client.dialect().version, env.version());
    assert!(failing_connect.await.unwrap().is_err());
    incompatible.expect_nothing().await;
}

async fn a_wire_failure_during_the_probe_fails_the_connection(_: ScenarioEnv) {
    let (wire, mut server) = testing::scripted_peer();
    let (recording, record) = RecordingWire::new(wire);
    let connecting = tokio::spawn(Client::from_wire(recording).into_future());

    let request = server.expect("server/discover").await;
    let _ = request.hold();
    record.cut();

    let error = connecting.await.unwrap().unwrap_err();
    assert!(
        matches!(error, Error::Transport { .. } | Error::Closed),
        "{error:?}"
    );
    server.expect_nothing().await;
}

async fn a_timed_out_initialize_is_not_cancelled(env: ScenarioEnv) {
    let (wire, mut server) = testing::scripted_peer();
    let connect = Client::from_wire(wire).protocol_version(env.version());
    let connecting = tokio::spawn(connect.idle_timeout(Duration::from_secs(1)).into_future());

    let _ = server.expect("initialize").await.hold();

    let error = connecting.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
    server.expect_nothing().await;
}
