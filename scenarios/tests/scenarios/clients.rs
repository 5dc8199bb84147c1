//! Automatic behaviour of the client: capability checks, output validation, caching.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::client::{ChangeFilter, KnownServer};
use bowline::testing::{RecordingWire, ScriptedPeer};
use bowline::types::{
    CacheScope, ClientCapabilities, ElicitationCompleteNotification,
    ElicitationCompleteNotificationParams,
};
use bowline::{
    CallToolResult, Client, Context, Error, ErrorCode, Reply, Result, Server, Tool, wire,
};
use scenarios::{Scenario, ScenarioEnv, scenario};
use serde_json::{Value, json};

use crate::support::{any_object, echo, fixed_result, peer_error, value, with_change};

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario!(
            requests_for_missing_server_capabilities_are_not_sent,
            "lifecycle:capability:server-not-advertised",
        )
        .in_memory(),
        scenario!(
            an_error_with_a_null_id_reaches_the_application,
            "protocol:error:null-id",
        )
        .in_memory(),
        scenario!(
            a_known_server_is_connected_without_a_message,
            "lifecycle:mode:prior-discover-zero-rtt",
        )
        .modern()
        .in_memory(),
        scenario!(
            a_client_pings_the_server,
            "lifecycle:ping",
            "ping:client-to-server",
        ),
        scenario!(
            output_that_violates_the_output_schema_is_rejected,
            "client:output-schema:validate",
            "client:output-schema:missing-structured",
            "client:output-schema:skip-on-error",
        )
        .since("2025-06-18")
        .in_memory(),
        scenario!(
            the_output_schema_of_an_unlisted_tool_is_fetched_once,
            "client:output-schema:auto-list",
        )
        .since("2025-06-18")
        .in_memory(),
        scenario!(
            a_list_changed_notification_invalidates_the_cached_list,
            "client:list-changed:auto-refresh",
        )
        .modern()
        .in_memory(),
        scenario!(
            a_client_receives_the_completion_of_a_url_elicitation,
            "elicitation:url:complete-notification",
        )
        .since("2025-11-25")
        .legacy(),
        scenario!(
            an_unknown_result_type_is_a_protocol_error,
            "extensions:client:claimed-result-undeclared-invalid",
        )
        .modern()
        .in_memory(),
        scenario!(
            an_extension_is_used_only_with_clients_that_declare_it,
            "extensions:client:capability-ad:gates-server-behaviour",
        )
        .modern(),
    ]
}

async fn an_error_with_a_null_id_reaches_the_application(env: ScenarioEnv) {
    let (error_sender, mut errors) = tokio::sync::mpsc::unbounded_channel();
    let (client, mut server) = env
        .scripted_server(|connect| {
            connect.on_error(move |error| error_sender.send(error.to_string()).unwrap())
        })
        .await;

    let error = json!({"code": -32700, "message": "parse error"});
    server.send_json(&json!({"jsonrpc": "2.0", "id": null, "error": error}));
    assert_eq!(errors.recv().await.unwrap(), "parse error (-32700)");
    server.send_text("not JSON");
    assert!(errors.recv().await.unwrap().contains("malformed message"));
    // Calls are not affected.
    let listing = tokio::spawn(client.list_tools().into_future());
    server
        .expect("tools/list")
        .await
        .answer(json!({"tools": []}));
    assert_eq!(listing.await.unwrap().unwrap(), []);
}

async fn requests_for_missing_server_capabilities_are_not_sent(env: ScenarioEnv) {
    let (near, far) = wire::memory();
    let (recording, record) = RecordingWire::new(near);
    tokio::spawn(Server::new("s", "1").tool(echo("echo")).serve(far));
    // Without a fixed version, a client sends `server/discover` first.
    let connect = Client::from_wire(recording);
    let connect = if env.is_modern() {
        connect
    } else {
        connect.protocol_version(env.version())
    };
    let client = connect.await.unwrap();
    client.list_tools().await.unwrap();
    record.clear();

    let listed = client.list_prompts().await.unwrap();
    let prompts = client.get_prompt("hello", ()).await.unwrap_err();
    let resource = client.read_resource("docs://a").await.unwrap_err();

    assert_eq!(listed, []);
    assert_eq!(client.dialect().version, env.version());
    assert!(matches!(prompts, Error::Misuse { .. }), "{prompts:?}");
    assert!(matches!(resource, Error::Misuse { .. }), "{resource:?}");
    assert_eq!(record.frames(), []);
}

async fn a_known_server_is_connected_without_a_message(env: ScenarioEnv) {
    let server = Server::new("s", "1").tool(echo("echo"));
    let (near, far) = wire::memory();
    tokio::spawn(server.clone().serve(far));
    let first = Client::from_wire(near).await.unwrap();
    let note = serde_json::to_string(&first.known_server()).unwrap();

    let known: KnownServer = serde_json::from_str(&note).unwrap();
    let again = env
        .connect_with(&server, |connect| connect.known_server(known))
        .await;

    assert_eq!(env.wire_record().unwrap().frames(), []);
    assert!(again.server_capabilities().unwrap().tools.is_some());
    assert_eq!(again.call_tool("echo", ()).await.unwrap().text(), "{}");
}

async fn a_client_pings_the_server(env: ScenarioEnv) {
    let client = env.connect(&Server::new("s", "1")).await;

    client.ping().await.unwrap();
}

fn tool_with_output_schema() -> Value {
    let output =
        json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    json!({"name": "t", "inputSchema": {"type": "object"}, "outputSchema": output})
}

/// Calls the tool `t`, and answers with this result.
async fn call_and_answer(
    client: &Client,
    server: &mut ScriptedPeer,
    mut result: Value,
) -> Result<Reply> {
    result["resultType"] = json!("complete");
    let call = tokio::spawn(client.call_tool("t", ()).into_future());
    server.expect("tools/call").await.answer(result);
    call.await.unwrap()
}

async fn output_that_violates_the_output_schema_is_rejected(env: ScenarioEnv) {
    let (client, mut server) = env.scripted_server(|connect| connect).await;
    let listing = tokio::spawn(client.list_tools().into_future());
    let page = json!({"tools": [tool_with_output_schema()], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"});
    server.expect("tools/list").await.answer(page);
    listing.await.unwrap().unwrap();

    let kept = call_and_answer(
        &client,
        &mut server,
        json!({"content": [], "structuredContent": {"n": 1}}),
    )
    .await;
    let broken = call_and_answer(
        &client,
        &mut server,
        json!({"content": [], "structuredContent": {"n": "1"}}),
    )
    .await;
    let missing = call_and_answer(&client, &mut server, json!({"content": []})).await;
    let failed = call_and_answer(
        &client,
        &mut server,
        json!({"content": [], "isError": true}),
    )
    .await;

    assert_eq!(
        kept.unwrap().structured::<Value>().unwrap(),
        json!({"n": 1})
    );
    assert!(matches!(broken, Err(Error::Protocol { .. })), "{broken:?}");
    assert!(
        matches!(missing, Err(Error::Protocol { .. })),
        "{missing:?}"
    );
    assert!(failed.unwrap().is_error());
}

async fn the_output_schema_of_an_unlisted_tool_is_fetched_once(env: ScenarioEnv) {
    let (client, mut server) = env.scripted_server(|connect| connect).await;
    let result = json!({"content": [], "structuredContent": {"n": "1"}, "resultType": "complete"});
    let page = json!({"tools": [tool_with_output_schema()], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"});

    let first = tokio::spawn(client.call_tool("t", ()).into_future());
    server.expect("tools/call").await.answer(result.clone());
    server.expect("tools/list").await.answer(page);
    let first = first.await.unwrap();
    let second = call_and_answer(&client, &mut server, result).await;

    assert!(matches!(first, Err(Error::Protocol { .. })), "{first:?}");
    assert!(matches!(second, Err(Error::Protocol { .. })), "{second:?}");
    server.expect_nothing().await;
}

async fn a_list_changed_notification_invalidates_the_cached_list(env: ScenarioEnv) {
    let server = Server::new("s", "1").cache(Duration::from_secs(3600), CacheScope::PUBLIC);
    let server = with_change(server, |server| {
        server.tools().add(echo("second")).unwrap();
    });
    let client = env.connect(&server).await;
    let mut changes = client.subscribe(ChangeFilter::new().tools()).await.unwrap();

    client.list_tools().await.unwrap();
    let record = env.wire_record().unwrap();
    record.clear();
    let from_cache = client.list_tools().await.unwrap();
    assert_eq!(record.frames(), []);
    client.call_tool("change", ()).await.unwrap();
    changes.next().await.unwrap();
    record.clear();
    let anew = client.list_tools().await.unwrap();

    assert_eq!(record.sent()[0]["method"], "tools/list");
    assert_eq!((from_cache.len(), anew.len()), (1, 2));
    assert_eq!(anew[1].name, "second");
}

async fn a_client_receives_the_completion_of_a_url_elicitation(env: ScenarioEnv) {
    let finish = Tool::raw("finish", any_object(), async |_, cx: Context| {
        let completed = ElicitationCompleteNotificationParams::new("visit-7");
        cx.notify::<ElicitationCompleteNotification>(&completed);
        Ok(CallToolResult::text("done"))
    });
    let received = Arc::new(Mutex::new(Vec::new()));
    let recorder = received.clone();
    let server = Server::new("s", "1").tool(finish);
    let client = env
        .connect_with(&server, |connect| {
            connect.on_notification(move |notification| {
                let params = notification.params.as_ref().map(ToString::to_string);
                recorder
                    .lock()
                    .unwrap()
                    .push((notification.method.to_string(), params));
            })
        })
        .await;

    client.call_tool("finish", ()).await.unwrap();

    let (method, params) = received.lock().unwrap().remove(0);
    assert_eq!(method, "notifications/elicitation/complete");
    assert_eq!(params.as_deref(), Some(r#"{"elicitationId":"visit-7"}"#));
}

async fn an_unknown_result_type_is_a_protocol_error(env: ScenarioEnv) {
    let (client, mut server) = env.scripted_server(|connect| connect).await;
    let call = tokio::spawn(client.call_tool("t", ()).into_future());

    let odd = json!({"resultType": "com.example/later", "ticket": 7});
    server.expect("tools/call").await.answer(odd);

    let error = call.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Protocol { .. }), "{error:?}");
}

async fn an_extension_is_used_only_with_clients_that_declare_it(env: ScenarioEnv) {
    let draw = fixed_result(
        "draw",
        json!({"content": [{"type": "text", "text": "a drawing"}]}),
    );
    let draw = draw.requires_extension("com.example/drawing");
    let server = Server::new("s", "1").tool(draw);
    let declared = json!({"extensions": {"com.example/drawing": {}}});
    let declared: ClientCapabilities = serde_json::from_value(declared).unwrap();
    let able = env
        .connect_with(&server, |connect| connect.capabilities(declared))
        .await;
    let unable = env.connect(&server).await;

    let drawn = able.call_tool("draw", ()).await.unwrap();
    let refused = peer_error(unable.call_tool("draw", ()).await);

    assert_eq!(drawn.text(), "a drawing");
    assert_eq!(refused.code, ErrorCode::MISSING_CLIENT_CAPABILITY);
    let required = json!({"requiredCapabilities": {"extensions": {"com.example/drawing": {}}}});
    assert_eq!(value(&refused.data.unwrap()), required);
}
