//! Tools: their metadata, their arguments and their results.

use bowline::{CallToolResult, ErrorCode, RpcError, Server, Tool};
use scenarios::{Scenario, ScenarioEnv, scenario};
use serde_json::{Value, json};

use crate::support::{any_object, echo, fixed_result, peer_error, tools, value};

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario!(
            a_tool_is_listed_with_its_name_description_and_schema,
            "tools:list:basic",
            "tools:input-schema:preserve-additional-properties",
            "tools:input-schema:preserve-defs",
            "tools:input-schema:preserve-schema-dialect",
            "tools:input-schema:json-schema-2020-12",
        ),
        scenario!(
            a_tool_receives_arguments_and_returns_text,
            "tools:call:content:text"
        ),
        scenario!(
            text_image_and_resource_content_keeps_its_order,
            "tools:call:content:image",
            "tools:call:content:embedded-resource",
            "tools:call:content:mixed",
        ),
        scenario!(a_tool_returns_audio, "tools:call:content:audio").since("2025-03-26"),
        scenario!(
            a_tool_returns_a_resource_link,
            "tools:call:content:resource-link"
        )
        .since("2025-06-18"),
        scenario!(
            structured_output_is_returned_with_the_content,
            "tools:call:structured-content",
        )
        .since("2025-06-18"),
        scenario!(a_failed_tool_returns_an_error_result, "tools:call:is-error",),
        scenario!(
            an_unknown_tool_is_a_protocol_error,
            "tools:call:unknown-name",
            "mcpserver:tool:unknown-name",
        ),
        scenario!(
            concurrent_calls_get_their_own_results,
            "tools:call:concurrent"
        ),
    ]
}

async fn a_tool_is_listed_with_its_name_description_and_schema(env: ScenarioEnv) {
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
    let client = env.connect(&server).await;

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

async fn a_tool_receives_arguments_and_returns_text(env: ScenarioEnv) {
    let client = env.connect(&Server::new("s", "1").tool(echo("echo"))).await;

    let reply = client
        .call_tool("echo", json!({"a": [1, {"b": "ü"}]}))
        .await
        .unwrap();

    assert_eq!(reply.text(), r#"{"a":[1,{"b":"ü"}]}"#);
    assert!(!reply.is_error());
}

async fn expect_content(env: ScenarioEnv, content: Value) {
    let tool = fixed_result("show", json!({"content": content}));
    let client = env.connect(&Server::new("s", "1").tool(tool)).await;

    let reply = client.call_tool("show", ()).await.unwrap();

    assert_eq!(value(reply.json())["content"], content);
}

async fn text_image_and_resource_content_keeps_its_order(env: ScenarioEnv) {
    let content = json!([
        {"type": "text", "text": "look"},
        {"type": "image", "data": "AAEC", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "file:///a.txt", "mimeType": "text/plain", "text": "a"}},
        {"type": "resource", "resource": {"uri": "file:///a.bin", "blob": "AAEC"}},
        {"type": "text", "text": "listen"},
    ]);
    expect_content(env, content).await;
}

async fn a_tool_returns_audio(env: ScenarioEnv) {
    expect_content(
        env,
        json!([{"type": "audio", "data": "AAEC", "mimeType": "audio/wav"}]),
    )
    .await;
}

async fn a_tool_returns_a_resource_link(env: ScenarioEnv) {
    let link = json!({"type": "resource_link", "uri": "file:///a.txt", "name": "a", "mimeType": "text/plain"});
    expect_content(env, json!([link])).await;
}

async fn structured_output_is_returned_with_the_content(env: ScenarioEnv) {
    let result = json!({"content": [{"type": "text", "text": "17 degrees"}], "structuredContent": {"degrees": 17}});
    let client = env
        .connect(&Server::new("s", "1").tool(fixed_result("weather", result)))
        .await;

    let reply = client.call_tool("weather", ()).await.unwrap();

    assert_eq!(reply.text(), "17 degrees");
    assert_eq!(reply.structured::<Value>().unwrap(), json!({"degrees": 17}));
}

async fn a_failed_tool_returns_an_error_result(env: ScenarioEnv) {
    let fails = Tool::raw("fails", any_object(), async |_, _| {
        Ok(CallToolResult::error("out of paper"))
    });
    let refuses = Tool::raw("refuses", any_object(), async |_, _| {
        Err(RpcError::new(ErrorCode::INVALID_PARAMS, "not today").into())
    });
    let client = env
        .connect(&Server::new("s", "1").tool(fails).tool(refuses))
        .await;

    let failed = client.call_tool("fails", ()).await.unwrap();
    let refused = peer_error(client.call_tool("refuses", ()).await);

    assert!(failed.is_error());
    assert_eq!(failed.text(), "out of paper");
    assert_eq!(
        (refused.code, &*refused.message),
        (ErrorCode::INVALID_PARAMS, "not today")
    );
}

async fn an_unknown_tool_is_a_protocol_error(env: ScenarioEnv) {
    let client = env.connect(&Server::new("s", "1").tool(echo("echo"))).await;

    let error = peer_error(client.call_tool("ech", ()).await);

    assert_eq!(error.code, ErrorCode::INVALID_PARAMS);
}

async fn concurrent_calls_get_their_own_results(env: ScenarioEnv) {
    // Each call completes only after the other has started.
    let meet = std::sync::Arc::new(tokio::sync::Barrier::new(2));
    let tool = Tool::raw("meet", any_object(), move |arguments: bowline::Json, _| {
        let meet = meet.clone();
        async move {
            meet.wait().await;
            Ok(CallToolResult::text(arguments.to_string()))
        }
    });
    let client = env.connect(&Server::new("s", "1").tool(tool)).await;

    let one = client.call_tool("meet", json!({"is": "one"}));
    let other = client.call_tool("meet", json!({"is": "other"}));
    let (one, other) = tokio::join!(one, other);

    assert_eq!(one.unwrap().text(), r#"{"is":"one"}"#);
    assert_eq!(other.unwrap().text(), r#"{"is":"other"}"#);
}
