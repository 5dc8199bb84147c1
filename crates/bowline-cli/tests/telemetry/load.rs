//! Calls of every kind that a metric or an attribute tells apart.

use bowline::client::Host;
use bowline::prelude::*;
use bowline::schemars::{self, JsonSchema};
use bowline::types::ElicitResult;
use bowline::{Client, RpcError};
use bowline_cli::SlowCallCounts;
use bowline_cli::telemetry::Exporters;
use bowline_tasks::{TaskClient, Tasks};
use serde::Deserialize;

/// Calls the fixture in both eras: results, errors of tools and of the protocol, a question, and a dropped call.
pub(crate) async fn on_server(url: &str) {
    for version in ["2026-07-28", "2025-11-25"] {
        let client = Client::connect(url).protocol_version(version);
        let client = client.await.unwrap();
        call_everything(&client).await;
        client.close().await.unwrap();
    }
    // The client that is asked answers `input_required` with a second request.
    let asked = Client::connect(url).host(answering()).await.unwrap();
    let reply = asked.call_tool("ask", json!({})).await.unwrap();
    assert_eq!(reply.text(), "accepted:Ada");
    asked.close().await.unwrap();
}

pub(crate) async fn on_bridge(url: &str) {
    for version in ["2026-07-28", "2025-11-25"] {
        let client = Client::connect(url).protocol_version(version);
        let client = client.await.unwrap();
        call_everything(&client).await;
        client.close().await.unwrap();
    }
}

async fn call_everything(client: &Client) {
    let sum = client.call_tool("add", json!({"a": 1, "b": 2})).await;
    assert_eq!(sum.unwrap().text(), "3");
    let failed = client.call_tool("fail", json!({"message": "no"})).await;
    assert!(failed.unwrap().is_error());
    assert!(client.call_tool("boom", json!({})).await.is_err());
    assert!(client.call_tool("missing", json!({})).await.is_err());
    assert!(client.list_tools().await.is_ok());
    drop_while_it_runs(client).await;
}

/// Drops a call of `slow` once its handler runs, and waits until the handler has stopped.
async fn drop_while_it_runs(client: &Client) {
    let counts = async || {
        let counts = client.call_tool("stats", json!({})).await.unwrap();
        let counts: SlowCallCounts = serde_json::from_str(&counts.text()).unwrap();
        (counts.started, counts.cancelled)
    };
    let (started, cancelled) = counts().await;
    {
        let mut slow = Box::pin(
            client
                .call_tool("slow", json!({"seconds": 600}))
                .into_future(),
        );
        let has_started = async { while counts().await.0 == started {} };
        tokio::select! {
            biased; // polls the call, so that it is sent
            _ = &mut slow => panic!("it takes longer"),
            () = has_started => {}
        }
    }
    while counts().await.1 == cancelled {}
}

/// Runs tasks that complete and fail, a call that asks for input, and a legacy client of `url`, and exports the metrics of
/// this process.
pub(crate) async fn in_process(otlp: &str, url: &str) {
    let exporters = Exporters::otlp(otlp, "test").await.unwrap();
    let server = Server::new("tasks", "1.0.0")
        .telemetry(exporters.telemetry())
        .tool(count)
        .tool(broken)
        .tool(greet)
        .extension(Tasks::in_memory());
    let client = Client::in_process(&server)
        .telemetry(exporters.telemetry())
        .extension(TaskClient::new())
        .host(answering())
        .await
        .unwrap();
    let counted = client.call_tool("count", json!({"text": "a b"})).await;
    assert_eq!(counted.unwrap().text(), "2");
    assert!(client.call_tool("broken", json!({})).await.is_err());
    let greeted = client.call_tool("greet", json!({})).await;
    assert_eq!(greeted.unwrap().text(), "Hello, Ada!");
    client.close().await.unwrap();
    let legacy = Client::connect(url).protocol_version("2025-11-25");
    let legacy = legacy.telemetry(exporters.telemetry()).await.unwrap();
    legacy.close().await.unwrap();
    exporters.shut_down().await;
}

/// Counts words.
#[tool(task)]
async fn count(text: String) -> usize {
    text.split_whitespace().count()
}

/// Fails with a JSON-RPC error, which fails the task.
#[tool(task)]
async fn broken() -> Result<String, RpcError> {
    Err(RpcError::internal("broken"))
}

/// The form of `greet`.
#[derive(Deserialize, JsonSchema)]
struct Name {
    name: String,
}

/// Asks for a name.
#[tool]
async fn greet(cx: Context) -> Result<String, ToolError> {
    let Name { name } = cx.elicit("name", "Your name?").await?;
    Ok(format!("Hello, {name}!"))
}

/// Answers every question with a name.
fn answering() -> Host {
    Host::new().elicitation(async |_| ElicitResult::accept(json!({"name": "Ada"})))
}
