//! Scenarios that combine features: several clients, a server that calls itself, cursors, tool names.

use bowline::types::{ListToolsRequest, PaginatedRequestParams};
use bowline::{CallToolResult, Client, Context, Resource, Server, Tool};
use scenarios::{Scenario, ScenarioEnv, scenario};
use serde_json::json;

use crate::support::{
    any_object, contents, echo, hanging_server, start_hang, tools, wait_for_handlers,
};

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario!(
            two_clients_of_one_server_are_isolated,
            "flow:multi-client:stateful-isolation",
        )
        .with_shared_state(),
        scenario!(
            a_tool_reads_a_resource_of_its_own_server,
            "mcpserver:context:read-resource"
        ),
        scenario!(
            a_client_returns_a_cursor_unchanged,
            "pagination:client:cursor-handling"
        )
        .in_memory(),
        scenario!(
            a_duplicate_tool_name_is_rejected,
            "mcpserver:tool:duplicate-name"
        ),
        scenario!(
            a_tool_may_have_an_unusual_name,
            "mcpserver:tool:naming-validation"
        ),
    ]
}

async fn two_clients_of_one_server_are_isolated(env: ScenarioEnv) {
    let server = hanging_server();
    let one = env.connect(&server).await;
    let other = env.connect(&server).await;
    let (of_one, of_other) = (start_hang(&one).await, start_hang(&other).await);

    of_one.abort();
    wait_for_handlers(&other, 2, 1).await;
    one.close().await.unwrap();

    assert!(!of_other.is_finished());
    let reply = other.call_tool("echo", json!({"a": 1})).await.unwrap();
    assert_eq!(reply.text(), r#"{"a":1}"#);
}

async fn a_tool_reads_a_resource_of_its_own_server(env: ScenarioEnv) {
    let read = Tool::raw("read", any_object(), async |_, cx: Context| {
        let client = Client::in_process(&cx.server()).await.unwrap();
        let contents = contents(&client, "docs://readme").await;
        Ok(CallToolResult::text(contents[0]["text"].as_str().unwrap()))
    });
    let readme = Resource::text("docs://readme", "readme", "Read me.");
    let server = Server::new("reader", "1").resource(readme).tool(read);
    let client = env.connect(&server).await;

    let reply = client.call_tool("read", ()).await.unwrap();

    assert_eq!(reply.text(), "Read me.");
}

async fn a_client_returns_a_cursor_unchanged(env: ScenarioEnv) {
    let (client, mut server) = env.scripted_server(|connect| connect).await;
    let cursor = "  ü/+=\u{1f600} {\"not\":\"json\"} ";
    let mut params = PaginatedRequestParams::default();
    params.cursor = Some(cursor.into());

    let listing = tokio::spawn(client.request::<ListToolsRequest>(&params).into_future());
    let request = server.expect("tools/list").await;
    let sent = request.params()["cursor"].clone();
    request.answer(json!({"tools": [], "nextCursor": cursor, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}));

    assert_eq!(sent, cursor);
    assert_eq!(
        listing.await.unwrap().unwrap().next_cursor,
        Some(cursor.into())
    );
}

async fn a_duplicate_tool_name_is_rejected(env: ScenarioEnv) {
    let refused = Server::new("s", "1").tool(echo("echo")).tool(echo("echo"));
    let error = refused.check().unwrap_err();
    assert_eq!(error.to_string(), "duplicate tool name `echo`");

    let server = Server::new("s", "1").tool(echo("echo"));
    let client = env.connect(&server).await;
    assert_eq!(tools(&client).await.len(), 1);
    let _server = server.tool(echo("echo"));

    // A server that is served logs the error, and keeps its tool.
    assert_eq!(tools(&client).await.len(), 1);
}

async fn a_tool_may_have_an_unusual_name(env: ScenarioEnv) {
    let name = "weather (now) für / ☂";
    let client = env.connect(&Server::new("s", "1").tool(echo(name))).await;

    let called = client.call_tool(name, ()).await.unwrap();

    assert_eq!(tools(&client).await[0].name, name);
    assert_eq!(called.text(), "{}");
}
