//! What clients of each protocol version see of tasks.

use bowline::exchange::Dialect;
use bowline::{Server, Tool};
use bowline_tasks::{TaskSettings, Tasks};
use serde_json::{Value, json};

use crate::support::{LEGACY, TestClient, server, store};

const EXTENSION: &str = "io.modelcontextprotocol/tasks";
const MODERN: &str = "2026-07-28";

fn working_server() -> Server {
    let tool = |name: &'static str| Tool::new(name, async || "worked");
    server(
        Tasks::new(store()),
        [
            tool("optional").with_settings(TaskSettings::new()),
            tool("plain"),
            tool("required").with_settings(TaskSettings::new().required()),
        ],
    )
}

async fn connect(server: &Server, version: &str) -> TestClient {
    TestClient::of_version(server, version, Some("ada"), json!({})).await
}

/// Returns the member `execution` of each tool that has it, by name.
async fn executions(client: &mut TestClient) -> Value {
    let listed = client.request("tools/list", json!({})).await.unwrap();
    let tools = listed["tools"].as_array().unwrap().iter();
    let executions = tools.filter_map(|tool| {
        let execution = tool.get("execution")?.clone();
        Some((tool["name"].as_str().unwrap().to_owned(), execution))
    });
    Value::Object(executions.collect())
}

#[tokio::test(start_paused = true)]
async fn only_2025_11_25_has_the_capability_and_the_support_of_tools() {
    let server = working_server();
    for dialect in Dialect::ALL {
        let mut client = connect(&server, dialect.version).await;
        let executions = executions(&mut client).await;
        let capabilities = &client.capabilities;

        let has_tasks = capabilities.get("tasks").is_some();
        assert_eq!(has_tasks, dialect.version == LEGACY, "{}", dialect.version);
        let expected = match dialect.version {
            LEGACY => json!({
                "optional": {"taskSupport": "optional"},
                "required": {"taskSupport": "required"},
            }),
            _ => json!({}),
        };
        assert_eq!(executions, expected, "{}", dialect.version);
        let expected = match dialect.version {
            MODERN => json!({EXTENSION: {}}),
            _ => Value::Null,
        };
        assert_eq!(capabilities["extensions"], expected, "{}", dialect.version);
    }
}

#[tokio::test(start_paused = true)]
async fn older_versions_have_no_tasks() {
    let server = working_server();
    for version in ["2025-06-18", "2025-03-26", "2024-11-05"] {
        let mut client = connect(&server, version).await;

        // The member has no meaning there.
        let result = client.call_as_task("optional", json!({})).await.unwrap();
        assert_eq!(result["content"][0]["text"], "worked", "{version}");
        let result = client.call_as_task("plain", json!({})).await.unwrap();
        assert_eq!(result["content"][0]["text"], "worked", "{version}");
        let error = client.call_as_task("required", json!({})).await;
        assert_eq!(error.unwrap_err()["code"], -32602, "{version}");
        for method in [
            "tasks/get",
            "tasks/result",
            "tasks/list",
            "tasks/cancel",
            "tasks/update",
        ] {
            let error = client.request(method, json!({"taskId": "x"})).await;
            assert_eq!(error.unwrap_err()["code"], -32601, "{method} at {version}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn each_of_the_two_forms_has_its_own_methods() {
    let server = working_server();
    let mut modern = connect(&server, MODERN).await;
    let mut legacy = connect(&server, LEGACY).await;

    for method in ["tasks/result", "tasks/list"] {
        let error = modern.request(method, json!({"taskId": "x"})).await;
        assert_eq!(error.unwrap_err()["code"], -32601, "{method}");
    }
    let update = json!({"taskId": "x", "inputResponses": {}});
    let error = legacy.request("tasks/update", update).await;
    assert_eq!(error.unwrap_err()["code"], -32601);
    // The modern server decides whether a call is a task, and not the client.
    let result = modern.call_as_task("plain", json!({})).await.unwrap();
    assert_eq!(result["content"][0]["text"], "worked");
}
