//! Structured output, and what its tool promised.

use bowline::client::OutputCheck;
use bowline::testing::Scripted;
use bowline::{Client, Reply, Result};
use serde_json::{Value, json};

use super::{breach, modern, modern_with, tool};

fn promising(name: &str) -> Value {
    let schema =
        json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    json!({"name": name, "inputSchema": {"type": "object"}, "outputSchema": schema})
}

/// Lists the tools, so that the client knows what they promise.
async fn list(client: &Client, server: &mut Scripted, tools: Value) {
    let listing = client.list_tools().into_future();
    let script = async {
        server
            .expect("tools/list")
            .await
            .answer(json!({"tools": tools}))
    };
    let (tools, ()) = tokio::join!(listing, script);
    tools.unwrap();
}

/// Calls the tool `t`, which answers with `result`, and nothing else is said.
async fn call(client: &Client, server: &mut Scripted, result: Value) -> Result<Reply> {
    let calling = client.call_tool("t", ()).into_future();
    let script = async {
        server.expect("tools/call").await.answer(result);
        server.expect_nothing().await;
    };
    tokio::join!(calling, script).0
}

#[tokio::test(start_paused = true)]
async fn structured_output_that_breaks_its_schema_is_the_servers_mistake() {
    let (client, mut server) = modern().await;
    list(&client, &mut server, json!([promising("t")])).await;

    let good = json!({"content": [], "structuredContent": {"n": 1}});
    let good = call(&client, &mut server, good).await.unwrap();
    let bad = json!({"content": [], "structuredContent": {"n": "one"}});
    let bad = call(&client, &mut server, bad).await.unwrap_err();
    let missing = call(&client, &mut server, json!({"content": []}))
        .await
        .unwrap_err();

    assert_eq!(good.structured::<Value>().unwrap(), json!({"n": 1}));
    assert!(breach(&bad).contains("`t`"));
    assert!(breach(&missing).contains("gave none"));
}

#[tokio::test(start_paused = true)]
async fn a_failed_tool_owes_no_structured_output() {
    let (client, mut server) = modern().await;
    list(&client, &mut server, json!([promising("t")])).await;

    let failure = json!({"content": [{"type": "text", "text": "no"}], "isError": true});
    let reply = call(&client, &mut server, failure).await.unwrap();

    assert!(reply.is_error());
}

#[tokio::test(start_paused = true)]
async fn the_first_structured_output_of_an_unlisted_tool_makes_the_client_list_once() {
    let (client, mut server) = modern().await;

    let calling = client.call_tool("t", ()).into_future();
    let script = async {
        let bad = json!({"content": [], "structuredContent": {"n": "one"}});
        server.expect("tools/call").await.answer(bad);
        let tools = json!({"tools": [promising("t")]});
        server.expect("tools/list").await.answer(tools);
    };
    let (first, ()) = tokio::join!(calling, script);
    let unlisted = client.call_tool("other", ()).start();
    let odd = json!({"content": [], "structuredContent": 5});
    server.expect("tools/call").await.answer(odd);

    assert!(breach(&first.unwrap_err()).contains("schema"));
    unlisted.await.unwrap();
    server.expect_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn text_of_an_unlisted_tool_makes_nobody_list() {
    let (client, mut server) = modern().await;

    let result = json!({"content": [{"type": "text", "text": "hello"}]});
    let reply = call(&client, &mut server, result).await.unwrap();

    assert_eq!(reply.text(), "hello");
}

#[tokio::test(start_paused = true)]
async fn a_tool_without_a_schema_may_say_anything() {
    let (client, mut server) = modern().await;
    list(&client, &mut server, json!([tool("t")])).await;

    let result = json!({"content": [], "structuredContent": [1, "two"]});
    let reply = call(&client, &mut server, result).await.unwrap();

    assert_eq!(reply.structured::<Value>().unwrap(), json!([1, "two"]));
}

#[tokio::test(start_paused = true)]
async fn checking_can_be_switched_off() {
    let (client, mut server) = modern_with(|it| it.output_check(OutputCheck::Off)).await;
    list(&client, &mut server, json!([promising("t")])).await;

    let bad = json!({"content": [], "structuredContent": {"n": "one"}});
    let reply = call(&client, &mut server, bad).await;

    reply.unwrap();
}

#[tokio::test(start_paused = true)]
async fn tools_that_changed_are_not_held_to_what_they_promised() {
    let (client, mut server) = modern_with(|it| it.output_check(OutputCheck::Listed)).await;
    list(&client, &mut server, json!([promising("t")])).await;

    server.notify("notifications/tools/list_changed", json!({}));
    let other = json!({"content": [], "structuredContent": {"m": 1}});
    let reply = call(&client, &mut server, other).await;

    reply.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_schema_that_cannot_be_used_is_an_error_and_not_a_licence() {
    for (schema, why) in [
        (
            json!({"$ref": "https://else.where/schema"}),
            "it has a `$ref` to another document",
        ),
        (json!({"type": "no such type"}), "cannot be used"),
        (
            json!({"description": "x".repeat(300_000)}),
            "it exceeds the limit of 262144 bytes",
        ),
    ] {
        let (client, mut server) = modern().await;
        let mut unusable = tool("t");
        unusable["outputSchema"] = schema;
        list(&client, &mut server, json!([unusable])).await;

        let result = json!({"content": [], "structuredContent": {"n": 1}});
        let error = call(&client, &mut server, result).await.unwrap_err();

        let said = breach(&error);
        assert!(
            said.contains("the output schema of the tool `t`") && said.contains(why),
            "{said}"
        );
    }
}
