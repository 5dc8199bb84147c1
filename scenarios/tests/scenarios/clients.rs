//! What a client does by itself: what it does not send, what it checks, what it remembers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::client::{Changes, Verdict};
use bowline::testing::{Scripted, Tap};
use bowline::types::{
    CacheScope, ClientCapabilities, ElicitationCompleteNotification,
    ElicitationCompleteNotificationParams,
};
use bowline::{
    CallToolResult, Client, Context, Error, ErrorCode, Reply, Result, Server, Tool, wire,
};
use scenarios::{Scenario, World, scenario};
use serde_json::{Value, json};

use crate::support::{answering, anything, echo, refusal, value, with_change};

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario!(
            what_the_server_does_not_offer_is_not_asked_for,
            "lifecycle:capability:server-not-advertised",
        )
        .in_memory(),
        scenario!(
            an_error_about_no_request_in_particular_reaches_the_application,
            "protocol:error:null-id",
        )
        .in_memory(),
        scenario!(
            what_was_found_out_before_connects_without_a_word,
            "lifecycle:mode:prior-discover-zero-rtt",
        )
        .modern()
        .in_memory(),
        scenario!(
            a_client_asks_whether_the_server_is_there,
            "lifecycle:ping",
            "ping:client-to-server",
        ),
        scenario!(
            output_that_breaks_the_promise_of_its_tool_is_refused,
            "client:output-schema:validate",
            "client:output-schema:missing-structured",
            "client:output-schema:skip-on-error",
        )
        .since("2025-06-18")
        .in_memory(),
        scenario!(
            the_promise_of_a_tool_that_was_not_listed_is_looked_up_once,
            "client:output-schema:auto-list",
        )
        .since("2025-06-18")
        .in_memory(),
        scenario!(
            a_list_that_changed_is_fetched_anew,
            "client:list-changed:auto-refresh",
        )
        .modern()
        .in_memory(),
        scenario!(
            the_client_hears_that_a_visit_is_over,
            "elicitation:url:complete-notification",
        )
        .since("2025-11-25")
        .legacy(),
        scenario!(
            a_kind_of_result_that_nobody_claims_breaks_the_protocol,
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

async fn an_error_about_no_request_in_particular_reaches_the_application(world: World) {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let (client, mut server) = world
        .scripted_server(json!({"tools": {}}), |connect| {
            connect.on_error(move |error| tell.send(error.to_string()).unwrap())
        })
        .await;

    let confused = json!({"code": -32700, "message": "what was that?"});
    server.say(&json!({"jsonrpc": "2.0", "id": null, "error": confused}));
    assert_eq!(told.recv().await.unwrap(), "what was that? (-32700)");
    server.say_text("no message at all");
    assert!(told.recv().await.unwrap().contains("no message"));
    // Nobody's call is hurt by it.
    let listing = tokio::spawn(client.list_tools().into_future());
    server
        .expect("tools/list")
        .await
        .answer(json!({"tools": []}));
    assert_eq!(listing.await.unwrap().unwrap(), []);
}

async fn what_the_server_does_not_offer_is_not_asked_for(world: World) {
    let (near, far) = wire::memory();
    let (tap, tapped) = Tap::new(near);
    tokio::spawn(Server::new("s", "1").tool(echo("echo")).serve(far));
    // Without being told the version, a client asks first what there is.
    let connect = Client::over(tap);
    let connect = if world.is_modern() {
        connect
    } else {
        connect.speaking(world.version())
    };
    let client = connect.await.unwrap();
    client.list_tools().await.unwrap();
    tapped.clear();

    let prompts = client.list_prompts().await.unwrap_err();
    let resource = client.read_resource("docs://a").await.unwrap_err();

    assert_eq!(client.dialect().version, world.version());
    assert!(matches!(prompts, Error::Misuse { .. }), "{prompts:?}");
    assert!(matches!(resource, Error::Misuse { .. }), "{resource:?}");
    assert_eq!(tapped.frames(), []);
}

async fn what_was_found_out_before_connects_without_a_word(world: World) {
    let server = Server::new("s", "1").tool(echo("echo"));
    let (near, far) = wire::memory();
    tokio::spawn(server.clone().serve(far));
    let first = Client::over(near).await.unwrap();
    let note = serde_json::to_string(&first.verdict()).unwrap();

    let verdict: Verdict = serde_json::from_str(&note).unwrap();
    let again = world
        .connect_with(&server, |connect| connect.remembered(verdict))
        .await;

    assert_eq!(world.tapped().unwrap().frames(), []);
    assert!(again.capabilities().unwrap().tools.is_some());
    assert_eq!(again.call_tool("echo", ()).await.unwrap().text(), "{}");
}

async fn a_client_asks_whether_the_server_is_there(world: World) {
    let client = world.connect(&Server::new("s", "1")).await;

    client.ping().await.unwrap();
}

fn promising() -> Value {
    let output =
        json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    json!({"name": "t", "inputSchema": {"type": "object"}, "outputSchema": output})
}

/// Has `t` called by a client, and answers with this.
async fn answered(client: &Client, server: &mut Scripted, mut result: Value) -> Result<Reply> {
    result["resultType"] = json!("complete");
    let call = tokio::spawn(client.call_tool("t", ()).into_future());
    server.expect("tools/call").await.answer(result);
    call.await.unwrap()
}

async fn output_that_breaks_the_promise_of_its_tool_is_refused(world: World) {
    let (client, mut server) = world
        .scripted_server(json!({"tools": {}}), |connect| connect)
        .await;
    let listing = tokio::spawn(client.list_tools().into_future());
    let page = json!({"tools": [promising()], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"});
    server.expect("tools/list").await.answer(page);
    listing.await.unwrap().unwrap();

    let kept = answered(
        &client,
        &mut server,
        json!({"content": [], "structuredContent": {"n": 1}}),
    )
    .await;
    let broken = answered(
        &client,
        &mut server,
        json!({"content": [], "structuredContent": {"n": "1"}}),
    )
    .await;
    let missing = answered(&client, &mut server, json!({"content": []})).await;
    let failed = answered(
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

async fn the_promise_of_a_tool_that_was_not_listed_is_looked_up_once(world: World) {
    let (client, mut server) = world
        .scripted_server(json!({"tools": {}}), |connect| connect)
        .await;
    let result = json!({"content": [], "structuredContent": {"n": "1"}, "resultType": "complete"});
    let page = json!({"tools": [promising()], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"});

    let first = tokio::spawn(client.call_tool("t", ()).into_future());
    server.expect("tools/call").await.answer(result.clone());
    server.expect("tools/list").await.answer(page);
    let first = first.await.unwrap();
    let second = answered(&client, &mut server, result).await;

    assert!(matches!(first, Err(Error::Protocol { .. })), "{first:?}");
    assert!(matches!(second, Err(Error::Protocol { .. })), "{second:?}");
    server.expect_nothing().await;
}

async fn a_list_that_changed_is_fetched_anew(world: World) {
    let server = Server::new("s", "1").cache(Duration::from_secs(3600), CacheScope::PUBLIC);
    let server = with_change(server, |server| {
        server.tools().add(echo("second")).unwrap();
    });
    let client = world.connect(&server).await;
    let mut changes = client.subscribe(Changes::new().tools()).await.unwrap();

    client.list_tools().await.unwrap();
    let tapped = world.tapped().unwrap();
    tapped.clear();
    let from_cache = client.list_tools().await.unwrap();
    assert_eq!(tapped.frames(), []);
    client.call_tool("change", ()).await.unwrap();
    changes.next().await.unwrap();
    tapped.clear();
    let anew = client.list_tools().await.unwrap();

    assert_eq!(tapped.sent()[0]["method"], "tools/list");
    assert_eq!((from_cache.len(), anew.len()), (1, 2));
    assert_eq!(anew[1].name, "second");
}

async fn the_client_hears_that_a_visit_is_over(world: World) {
    let finish = Tool::raw("finish", anything(), async |_, cx: Context| {
        let visit = ElicitationCompleteNotificationParams::new("visit-7");
        cx.notify::<ElicitationCompleteNotification>(&visit);
        Ok(CallToolResult::text("done"))
    });
    let heard = Arc::new(Mutex::new(Vec::new()));
    let ears = heard.clone();
    let server = Server::new("s", "1").tool(finish);
    let client = world
        .connect_with(&server, |connect| {
            connect.on_notification(move |told| {
                let params = told.params.as_ref().map(ToString::to_string);
                ears.lock().unwrap().push((told.method.to_string(), params));
            })
        })
        .await;

    client.call_tool("finish", ()).await.unwrap();

    let (method, params) = heard.lock().unwrap().remove(0);
    assert_eq!(method, "notifications/elicitation/complete");
    assert_eq!(params.as_deref(), Some(r#"{"elicitationId":"visit-7"}"#));
}

async fn a_kind_of_result_that_nobody_claims_breaks_the_protocol(world: World) {
    let (client, mut server) = world.scripted_server(json!({}), |connect| connect).await;
    let call = tokio::spawn(client.call_tool("t", ()).into_future());

    let odd = json!({"resultType": "com.example/later", "ticket": 7});
    server.expect("tools/call").await.answer(odd);

    let error = call.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Protocol { .. }), "{error:?}");
}

async fn an_extension_is_used_only_with_clients_that_declare_it(world: World) {
    let draw = answering(
        "draw",
        json!({"content": [{"type": "text", "text": "a drawing"}]}),
    );
    let draw = draw.extension("com.example/drawing");
    let server = Server::new("s", "1").tool(draw);
    let declared = json!({"extensions": {"com.example/drawing": {}}});
    let declared: ClientCapabilities = serde_json::from_value(declared).unwrap();
    let able = world
        .connect_with(&server, |connect| connect.capabilities(declared))
        .await;
    let unable = world.connect(&server).await;

    let drawn = able.call_tool("draw", ()).await.unwrap();
    let refused = refusal(unable.call_tool("draw", ()).await);

    assert_eq!(drawn.text(), "a drawing");
    assert_eq!(refused.code, ErrorCode::MISSING_CLIENT_CAPABILITY);
    let required = json!({"requiredCapabilities": {"extensions": {"com.example/drawing": {}}}});
    assert_eq!(value(&refused.data.unwrap()), required);
}
