//! Tasks over every transport of 2025-11-25.

use bowline::client::Host;
use bowline::testing::{MatrixCase, matrix};
use bowline::types::ElicitResult;
use bowline::{Client, Context, Tool, ToolError};
use bowline_tasks::{TaskSettings, Tasks};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::support::{LEGACY, RELATED_TASK, server, store};

#[derive(Deserialize, JsonSchema)]
struct Name {
    name: String,
}

async fn greet(cx: Context) -> Result<String, ToolError> {
    let name = cx.elicit::<Name>("name", "Who?").await?;
    Ok(format!("Hello, {}!", name.name))
}

fn cases() -> impl Iterator<Item = MatrixCase> {
    matrix().filter(|case| case.dialect.version == LEGACY)
}

async fn request(client: &Client, method: &str, params: Value) -> bowline::Result<Value> {
    let reply = client.request_raw(method, params).await?;
    Ok(reply.json().decode().unwrap())
}

async fn start(client: &Client) -> String {
    let call = json!({"name": "greet", "arguments": {}, "task": {"ttl": 60_000}});
    let created = request(client, "tools/call", call).await.unwrap();
    assert_eq!(created["task"]["status"], "working");
    created["task"]["taskId"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_question_is_answered_while_the_client_waits_over_every_transport() {
    for case in cases() {
        let greet = Tool::new("greet", greet).with_settings(TaskSettings::new());
        let server = server(Tasks::new(store()), [greet]);
        let host = Host::new().elicitation(async |_| ElicitResult::accept(json!({"name": "Ada"})));
        let client = case.serve(&server).connect.host(host).await.unwrap();
        let id = start(&client).await;

        let task = json!({"taskId": id});
        let result = request(&client, "tasks/result", task.clone()).await;

        let result = result.unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_eq!(result["content"][0]["text"], "Hello, Ada!", "{case}");
        assert_eq!(result["_meta"][RELATED_TASK], task, "{case}");
        let done = request(&client, "tasks/get", task).await.unwrap();
        assert_eq!(done["status"], "completed", "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_outlives_the_client_that_created_it_over_every_transport() {
    for case in cases() {
        let greet = Tool::new("greet", greet).with_settings(TaskSettings::new());
        let server = server(Tasks::new(store()), [greet]);
        let silent = Host::new().elicitation(async |_| std::future::pending().await);
        let first = case.serve(&server).connect.host(silent).await.unwrap();
        let id = start(&first).await;
        let task = json!({"taskId": id});
        let wait = tokio::time::timeout(
            std::time::Duration::from_secs(1),
            request(&first, "tasks/result", task.clone()),
        );
        assert!(wait.await.is_err(), "{case}");
        drop(first);
        let second = case.serve(&server).connect.await.unwrap();

        let open = request(&second, "tasks/get", task.clone()).await.unwrap();
        assert_eq!(open["status"], "input_required", "{case}");
        let cancelled = request(&second, "tasks/cancel", task).await.unwrap();
        assert_eq!(cancelled["status"], "cancelled", "{case}");
    }
}
