//! Tools: what they say of themselves, what they are given and what they answer.

use bowline::{CallToolResult, ErrorCode, RpcError, Server, Tool};
use scenarios::{Scenario, World, scenario};
use serde_json::{Value, json};

use crate::support::{answering, anything, echo, refusal, tools, value};

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario!(
            a_tool_is_listed_with_what_it_says_of_itself,
            "tools:list:basic",
            "tools:input-schema:preserve-additional-properties",
            "tools:input-schema:preserve-defs",
            "tools:input-schema:preserve-schema-dialect",
            "tools:input-schema:json-schema-2020-12",
        ),
        scenario!(
            arguments_go_in_and_text_comes_out,
            "tools:call:content:text"
        ),
        scenario!(
            content_of_the_first_kinds_keeps_its_order,
            "tools:call:content:image",
            "tools:call:content:embedded-resource",
            "tools:call:content:mixed",
        ),
        scenario!(a_tool_answers_with_sound, "tools:call:content:audio").since("2025-03-26"),
        scenario!(
            a_tool_answers_with_a_link,
            "tools:call:content:resource-link"
        )
        .since("2025-06-18"),
        scenario!(
            structured_output_stands_beside_the_content,
            "tools:call:structured-content",
        )
        .since("2025-06-18"),
        scenario!(
            a_tool_that_fails_says_so_in_its_result,
            "tools:call:is-error",
        ),
        scenario!(
            a_tool_that_is_not_there_is_an_error_of_the_protocol,
            "tools:call:unknown-name",
            "mcpserver:tool:unknown-name",
        ),
        scenario!(
            calls_run_side_by_side_and_are_not_confused,
            "tools:call:concurrent"
        ),
    ]
}

async fn a_tool_is_listed_with_what_it_says_of_itself(world: World) {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"where": {"$ref": "#/$defs/place"}, "tags": {"type": "array", "items": {"type": "string"}}},
        "required": ["where"],
        "additionalProperties": false,
        "$defs": {"place": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}},
    });
    let weather = Tool::raw(
        "weather",
        schema.clone(),
        async |arguments: bowline::Json, _| Ok(CallToolResult::text(arguments.to_string())),
    );
    let server = Server::new("s", "1").tool(weather.description("Tells the weather."));
    let client = world.connect(&server).await;

    let listed = tools(&client).await;
    let called = client
        .call_tool("weather", json!({"where": {"city": "Oslo"}}))
        .await
        .unwrap();

    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].name, "weather");
    assert_eq!(listed[0].description.as_deref(), Some("Tells the weather."));
    assert_eq!(value(&listed[0].input_schema), schema);
    assert_eq!(called.text(), r#"{"where":{"city":"Oslo"}}"#);
}

async fn arguments_go_in_and_text_comes_out(world: World) {
    let client = world
        .connect(&Server::new("s", "1").tool(echo("echo")))
        .await;

    let reply = client
        .call_tool("echo", json!({"a": [1, {"b": "ü"}]}))
        .await
        .unwrap();

    assert_eq!(reply.text(), r#"{"a":[1,{"b":"ü"}]}"#);
    assert!(!reply.is_error());
}

async fn comes_back(world: World, content: Value) {
    let tool = answering("show", json!({"content": content}));
    let client = world.connect(&Server::new("s", "1").tool(tool)).await;

    let reply = client.call_tool("show", ()).await.unwrap();

    assert_eq!(value(reply.json())["content"], content);
}

async fn content_of_the_first_kinds_keeps_its_order(world: World) {
    let content = json!([
        {"type": "text", "text": "look"},
        {"type": "image", "data": "AAEC", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "file:///a.txt", "mimeType": "text/plain", "text": "a"}},
        {"type": "resource", "resource": {"uri": "file:///a.bin", "blob": "AAEC"}},
        {"type": "text", "text": "listen"},
    ]);
    comes_back(world, content).await;
}

async fn a_tool_answers_with_sound(world: World) {
    comes_back(
        world,
        json!([{"type": "audio", "data": "AAEC", "mimeType": "audio/wav"}]),
    )
    .await;
}

async fn a_tool_answers_with_a_link(world: World) {
    let link = json!({"type": "resource_link", "uri": "file:///a.txt", "name": "a", "mimeType": "text/plain"});
    comes_back(world, json!([link])).await;
}

async fn structured_output_stands_beside_the_content(world: World) {
    let result = json!({"content": [{"type": "text", "text": "17 degrees"}], "structuredContent": {"degrees": 17}});
    let client = world
        .connect(&Server::new("s", "1").tool(answering("weather", result)))
        .await;

    let reply = client.call_tool("weather", ()).await.unwrap();

    assert_eq!(reply.text(), "17 degrees");
    assert_eq!(reply.structured::<Value>().unwrap(), json!({"degrees": 17}));
}

async fn a_tool_that_fails_says_so_in_its_result(world: World) {
    let fails = Tool::raw("fails", anything(), async |_, _| {
        Ok(CallToolResult::error("out of paper"))
    });
    let refuses = Tool::raw("refuses", anything(), async |_, _| {
        Err(RpcError::new(ErrorCode::INVALID_PARAMS, "not today"))
    });
    let client = world
        .connect(&Server::new("s", "1").tool(fails).tool(refuses))
        .await;

    let failed = client.call_tool("fails", ()).await.unwrap();
    let refused = refusal(client.call_tool("refuses", ()).await);

    assert!(failed.is_error());
    assert_eq!(failed.text(), "out of paper");
    assert_eq!(
        (refused.code, &*refused.message),
        (ErrorCode::INVALID_PARAMS, "not today")
    );
}

async fn a_tool_that_is_not_there_is_an_error_of_the_protocol(world: World) {
    let client = world
        .connect(&Server::new("s", "1").tool(echo("echo")))
        .await;

    let error = refusal(client.call_tool("ech", ()).await);

    assert_eq!(error.code, ErrorCode::INVALID_PARAMS);
}

async fn calls_run_side_by_side_and_are_not_confused(world: World) {
    // Each of the two ends only after the other has begun.
    let meet = std::sync::Arc::new(tokio::sync::Barrier::new(2));
    let tool = Tool::raw("meet", anything(), move |arguments: bowline::Json, _| {
        let meet = meet.clone();
        async move {
            meet.wait().await;
            Ok(CallToolResult::text(arguments.to_string()))
        }
    });
    let client = world.connect(&Server::new("s", "1").tool(tool)).await;

    let one = client.call_tool("meet", json!({"is": "one"}));
    let other = client.call_tool("meet", json!({"is": "other"}));
    let (one, other) = tokio::join!(one, other);

    assert_eq!(one.unwrap().text(), r#"{"is":"one"}"#);
    assert_eq!(other.unwrap().text(), r#"{"is":"other"}"#);
}
