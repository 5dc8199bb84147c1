//! A6: work that grows faster than the size of the message that causes it.

use std::net::TcpListener;

use serde_json::{Map, Value, json};

use crate::attack::{Attack, on_client};
use crate::hostile_server::{self, HostileResponse};

pub(crate) fn attacks() -> Vec<Attack> {
    on_client![
        "A6" "http-call" a_server_sends_1_400_kilobytes_of_input_requests,
        "A6" "http-call" a_server_repeats_the_same_input_request,
        "A6" "http-list" a_tool_has_a_schema_of_2_100_kilobytes_of_header_annotations,
        "A6" "http-list" a_tool_has_an_output_schema_that_is_slow_to_validate,
        "A6" "http-list" a_list_has_fifty_thousand_tools,
    ]
    .to_vec()
}

async fn a_server_sends_1_400_kilobytes_of_input_requests(
    listener: TcpListener,
) -> Result<String, String> {
    // The shortest input request, 35 bytes with its key.
    send_input_requests(listener, 40_000).await
}

async fn a_server_repeats_the_same_input_request(listener: TcpListener) -> Result<String, String> {
    send_input_requests(listener, 1).await
}

async fn send_input_requests(listener: TcpListener, count: usize) -> Result<String, String> {
    let questions = (0..count).map(|key| (format!("{key:05}"), json!({"method": "roots/list"})));
    let questions = Value::Object(questions.collect::<Map<_, _>>());
    let result = json!({"resultType": "input_required", "inputRequests": questions});
    let reply = move |_: &Value, _: &str, _: &Value| HostileResponse::Result(result.clone());
    hostile_server::serve_http(listener, reply).await
}

async fn a_tool_has_a_schema_of_2_100_kilobytes_of_header_annotations(
    listener: TcpListener,
) -> Result<String, String> {
    let properties = (0..40_000).map(|number| {
        let property = json!({"type": "string", "x-mcp-header": format!("h{number}")});
        (format!("p{number}"), property)
    });
    let properties = Value::Object(properties.collect::<Map<_, _>>());
    let schema = json!({"type": "object", "properties": properties});
    serve_tools(listener, json!([{"name": "tool", "inputSchema": schema}])).await
}

async fn a_tool_has_an_output_schema_that_is_slow_to_validate(
    listener: TcpListener,
) -> Result<String, String> {
    let choices: Vec<Value> = (0..20_000).map(|number| json!({"const": number})).collect();
    let many = json!({"type": "array", "uniqueItems": true, "items": {"anyOf": choices}});
    let output = json!({"type": "object", "properties": {"many": many}});
    let schema = json!({"type": "object"});
    let tool = json!({"name": "tool", "inputSchema": schema, "outputSchema": output});
    serve_tools(listener, json!([tool])).await
}

async fn a_list_has_fifty_thousand_tools(listener: TcpListener) -> Result<String, String> {
    let schema = json!({"type": "object"});
    let tools =
        (0..50_000).map(|number| json!({"name": format!("t{number}"), "inputSchema": schema}));
    serve_tools(listener, tools.collect()).await
}

async fn serve_tools(listener: TcpListener, tools: Value) -> Result<String, String> {
    let many: Vec<Value> = (0..20_000).map(|number| json!(20_000 + number)).collect();
    let called = json!({
        "resultType": "complete",
        "content": [],
        "structuredContent": {"many": many},
    });
    let listed = json!({
        "resultType": "complete",
        "tools": tools,
        "ttlMs": 0,
        "cacheScope": "private",
    });
    let reply = move |_: &Value, method: &str, _: &Value| match method {
        "tools/list" => HostileResponse::Result(listed.clone()),
        _ => HostileResponse::Result(called.clone()),
    };
    hostile_server::serve_http(listener, reply).await
}
