//! Validation of structured output against the output schema of its tool.

use std::time::Duration;

use bowline::client::OutputValidation;
use bowline::testing::ScriptedPeer;
use bowline::types::ErrorCode;
use bowline::{Client, Reply, Result};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{modern, modern_with, protocol_error, tool};

fn tool_with_output_schema(name: &str) -> Value {
    let schema =
        json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    json!({"name": name, "inputSchema": {"type": "object"}, "outputSchema": schema})
}

/// Lists the tools, so that the client knows their output schemas.
async fn list(client: &Client, server: &mut ScriptedPeer, tools: Value) {
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

/// Calls the tool `t`, which returns `result`, and expects no other message.
async fn call(client: &Client, server: &mut ScriptedPeer, result: Value) -> Result<Reply> {
    let calling = client.call_tool("t", ()).into_future();
    let script = async {
        server.expect("tools/call").await.answer(result);
        server.expect_nothing().await;
    };
    tokio::join!(calling, script).0
}

#[tokio::test(start_paused = true)]
async fn structured_output_that_violates_its_schema_is_a_protocol_error() {
    let (client, mut server) = modern().await;
    list(&client, &mut server, json!([tool_with_output_schema("t")])).await;

    let good = json!({"content": [], "structuredContent": {"n": 1}});
    let good = call(&client, &mut server, good).await.unwrap();
    let bad = json!({"content": [], "structuredContent": {"n": "one"}});
    let bad = call(&client, &mut server, bad).await.unwrap_err();
    let missing = call(&client, &mut server, json!({"content": []}))
        .await
        .unwrap_err();

    assert_eq!(good.structured::<Value>().unwrap(), json!({"n": 1}));
    assert!(protocol_error(&bad).contains("`t`"));
    assert!(protocol_error(&missing).contains("returned no `structuredContent`"));
}

#[tokio::test(start_paused = true)]
async fn a_tool_error_needs_no_structured_output() {
    let (client, mut server) = modern().await;
    list(&client, &mut server, json!([tool_with_output_schema("t")])).await;

    let failure = json!({"content": [{"type": "text", "text": "no"}], "isError": true});
    let reply = call(&client, &mut server, failure).await.unwrap();

    assert!(reply.is_error());
}

#[tokio::test(start_paused = true)]
async fn structured_output_of_an_unlisted_tool_lists_the_tools_once() {
    let (client, mut server) = modern().await;

    let calling = client.call_tool("t", ()).into_future();
    let script = async {
        let bad = json!({"content": [], "structuredContent": {"n": "one"}});
        server.expect("tools/call").await.answer(bad);
        let tools = json!({"tools": [tool_with_output_schema("t")]});
        server.expect("tools/list").await.answer(tools);
    };
    let (first, ()) = tokio::join!(calling, script);
    let unlisted = client.call_tool("other", ()).start();
    let odd = json!({"content": [], "structuredContent": 5});
    server.expect("tools/call").await.answer(odd);

    assert!(protocol_error(&first.unwrap_err()).contains("schema"));
    unlisted.await.unwrap();
    server.expect_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn concurrent_calls_of_unlisted_tools_share_one_list() {
    let (client, mut server) = modern().await;

    let (first, second) = (client.call_tool("a", ()), client.call_tool("b", ()));
    let script = async {
        for _ in 0..2 {
            let bad = json!({"content": [], "structuredContent": {"n": "one"}});
            server.expect("tools/call").await.answer(bad);
        }
        let tools = ["a", "b"].map(tool_with_output_schema);
        server
            .expect("tools/list")
            .await
            .answer(json!({"tools": tools}));
        server.expect_nothing().await;
    };
    let (first, second, ()) = tokio::join!(first.into_future(), second.into_future(), script);

    for (result, tool) in [(first, "`a`"), (second, "`b`")] {
        assert!(protocol_error(&result.unwrap_err()).contains(tool));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_does_not_wait_long_for_the_list_of_another_one_and_sends_no_second_list() {
    let (client, mut server) = modern().await;
    let calls = ["a", "b", "c"].map(|tool| tokio::spawn(client.call_tool(tool, ()).into_future()));
    for _ in 0..3 {
        let output = json!({"content": [], "structuredContent": {"n": "one"}});
        server.expect("tools/call").await.answer(output);
    }
    let listing = server.expect("tools/list").await.hold();
    let begun = Instant::now();

    let [first, second, third] = calls;
    for waiting in [second, third] {
        waiting.await.unwrap().unwrap();
    }
    let waited = begun.elapsed();
    let tools = ["a", "b", "c"].map(tool_with_output_schema);
    server.answer(listing, json!({"tools": tools}));

    assert_eq!(waited, Duration::from_secs(1));
    let error = first.await.unwrap().unwrap_err();
    assert!(protocol_error(&error).contains("`a`"));
    server.expect_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn the_idle_timeout_of_a_call_limits_the_whole_list_that_it_causes() {
    let (client, mut server) = modern().await;
    let limit = Duration::from_secs(100);
    let call = client.call_tool("t", ()).idle_timeout(limit).into_future();
    let script = async {
        let output = json!({"content": [], "structuredContent": {"n": 1}});
        server.expect("tools/call").await.answer(output);
        for page in 0.. {
            let id = server.expect("tools/list").await.hold();
            sleep(Duration::from_secs(30)).await;
            server.answer(id, json!({"tools": [], "nextCursor": page.to_string()}));
        }
    };
    let begun = Instant::now();

    let reply = tokio::select! {
        reply = call => reply,
        () = script => unreachable!(),
    };

    reply.unwrap();
    assert_eq!(begun.elapsed(), limit);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_failed_is_not_repeated_by_the_next_call() {
    let (client, mut server) = modern().await;
    let output = json!({"content": [], "structuredContent": {"n": 1}});
    let script = async {
        server.expect("tools/call").await.answer(output.clone());
        let list = server.expect("tools/list").await;
        list.answer_error(ErrorCode::INTERNAL_ERROR, "not now");
    };

    let (first, ()) = tokio::join!(client.call_tool("t", ()).into_future(), script);
    let second = call(&client, &mut server, output).await;

    first.unwrap();
    second.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_while_it_lists_the_tools_leaves_that_to_the_next() {
    let (client, mut server) = modern().await;
    let mut first = client.call_tool("t", ()).start();
    let mut second = client.call_tool("t", ()).start();
    for _ in 0..2 {
        let bad = json!({"content": [], "structuredContent": {"n": "one"}});
        server.expect("tools/call").await.answer(bad);
    }

    let listing = tokio::select! {
        biased;
        _ = &mut first => panic!("the output is not validated yet"),
        _ = &mut second => panic!("the output is not validated yet"),
        listing = server.expect("tools/list") => listing.hold(),
    };
    drop(first);
    server.expect_cancel(&listing).await;
    let script = async {
        let tools = json!({"tools": [tool_with_output_schema("t")]});
        server.expect("tools/list").await.answer(tools);
    };
    let (second, ()) = tokio::join!(second, script);

    assert!(protocol_error(&second.unwrap_err()).contains("schema"));
}

/// The first call has the turn to list the tools, and is not polled while the second one is awaited.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_not_polled_does_not_block_another() {
    let (client, mut server) = modern().await;
    let result = || json!({"content": [], "structuredContent": {"n": 1}});
    let mut first = client.call_tool("first", ()).start();
    let listing = async {
        server.expect("tools/call").await.answer(result());
        server.expect("tools/list").await.hold()
    };
    tokio::select! {
        biased;
        reply = &mut first => panic!("expected a pending call, got {reply:?}"),
        _ = listing => {}
    }

    let second = client.call_tool("second", ()).into_future();
    let script = async {
        server.expect("tools/call").await.answer(result());
        server.expect_nothing().await; // it does not list the tools a second time
    };
    let (second, ()) = tokio::join!(second, script);

    assert!(second.is_ok(), "{second:?}");
}

#[tokio::test(start_paused = true)]
async fn text_output_of_an_unlisted_tool_does_not_list_the_tools() {
    let (client, mut server) = modern().await;

    let result = json!({"content": [{"type": "text", "text": "hello"}]});
    let reply = call(&client, &mut server, result).await.unwrap();

    assert_eq!(reply.text(), "hello");
}

#[tokio::test(start_paused = true)]
async fn output_of_a_tool_without_an_output_schema_is_not_validated() {
    let (client, mut server) = modern().await;
    list(&client, &mut server, json!([tool("t")])).await;

    let result = json!({"content": [], "structuredContent": [1, "two"]});
    let reply = call(&client, &mut server, result).await.unwrap();

    assert_eq!(reply.structured::<Value>().unwrap(), json!([1, "two"]));
}

#[tokio::test(start_paused = true)]
async fn output_validation_can_be_disabled() {
    let (client, mut server) = modern_with(|it| it.output_validation(OutputValidation::Off)).await;
    list(&client, &mut server, json!([tool_with_output_schema("t")])).await;

    let bad = json!({"content": [], "structuredContent": {"n": "one"}});
    let reply = call(&client, &mut server, bad).await;

    reply.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_tool_list_change_discards_the_known_output_schemas() {
    let (client, mut server) =
        modern_with(|it| it.output_validation(OutputValidation::Listed)).await;
    list(&client, &mut server, json!([tool_with_output_schema("t")])).await;

    server.notify("notifications/tools/list_changed", json!({}));
    let other = json!({"content": [], "structuredContent": {"m": 1}});
    let reply = call(&client, &mut server, other).await;

    reply.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_unusable_output_schema_is_a_protocol_error() {
    for (schema, why) in [
        (
            json!({"$ref": "https://else.where/schema"}),
            "it has a `$ref` to another document",
        ),
        (json!({"type": "no such type"}), "unusable"),
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

        let text = protocol_error(&error);
        assert!(
            text.contains("unusable output schema of tool `t`") && text.contains(why),
            "{text}"
        );
    }
}
