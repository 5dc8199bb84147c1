//! The tasks fixture on tower-mcp, whose tasks live in memory and notify subscribers.
//!
//! ```text
//! task-server --transport stdio
//! task-server --transport http --port 3000
//! ```

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use tower_mcp::protocol::{ElicitAction, InputResponse};
use tower_mcp::schemars::JsonSchema;
use tower_mcp::{
    CallToolResult, HttpTransport, JsonRpcError, McpRouter, StdioTransport, TaskContext,
    TaskOutcome, Tool, ToolBuilder,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let after = |flag: &str| {
        let at = words.iter().position(|word| word == flag)?;
        words.get(at + 1).map(String::as_str)
    };
    if after("--transport") == Some("http") {
        let port: u16 = after("--port").unwrap_or("0").parse()?;
        let app = HttpTransport::new(router()).into_router_at("/mcp");
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
        println!("READY http://{}/mcp", listener.local_addr()?);
        axum::serve(listener, app).await?;
        return Ok(());
    }
    Ok(StdioTransport::new(router()).run().await?)
}

fn router() -> McpRouter {
    let counters = Counters::default();
    let boom = live("task_boom", |_, Nothing {}| async {
        let mut error = JsonRpcError::internal_error("boom, as asked");
        error.code = -32000;
        error.data = Some(json!({"why": "fixture"}));
        Ok(TaskOutcome::Failed(error))
    });
    let fail = live("task_fail", |_, Message { message }| async {
        Ok(TaskOutcome::Completed(CallToolResult::error(message)))
    });
    let echo = live("task_echo", |_, Text { text }| async {
        Ok(TaskOutcome::Completed(CallToolResult::text(text)))
    });
    McpRouter::new()
        .server_info("tower-mcp-tasks", "1")
        .tool(echo)
        .tool(slow(counters.clone()))
        .tool(stats(counters))
        .tool(live("task_ask", ask))
        .tool(fail)
        .tool(boom)
        .with_tasks()
}

/// A tool whose handler runs in a task and stays alive while it asks.
fn live<I, F, Fut>(name: &str, handler: F) -> Tool
where
    I: JsonSchema + serde::de::DeserializeOwned + Send + Sync + 'static,
    F: Fn(TaskContext, I) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = tower_mcp::Result<TaskOutcome>> + Send + 'static,
{
    ToolBuilder::new(name).live_task_handler(handler).build()
}

async fn ask(task: TaskContext, Nothing {}: Nothing) -> tower_mcp::Result<TaskOutcome> {
    let question = json!({"name": {"method": "elicitation/create", "params": {
        "mode": "form",
        "message": "What is your name?",
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    }}});
    let answers = task
        .require_input(serde_json::from_value(question)?)
        .await?;
    let Some(InputResponse::Elicit(answer)) = answers.get("name") else {
        return Ok(TaskOutcome::Failed(JsonRpcError::internal_error(
            "no answer",
        )));
    };
    let text = match answer.action {
        ElicitAction::Accept => {
            let content = serde_json::to_value(&answer.content)?;
            format!("accepted:{}", content["name"].as_str().unwrap_or_default())
        }
        ElicitAction::Decline => "declined".to_owned(),
        _ => "cancelled".to_owned(),
    };
    Ok(TaskOutcome::Completed(CallToolResult::text(text)))
}

/// Cancellation is cooperative: the handler must wait for it.
fn slow(counters: Counters) -> Tool {
    live(
        "task_slow",
        move |task: TaskContext, Seconds { seconds }| {
            let counters = counters.clone();
            async move {
                counters.count(|[started, ..]| *started += 1);
                tokio::select! {
                    () = task.cancelled() => {
                        counters.count(|[.., cancelled]| *cancelled += 1);
                        Ok(TaskOutcome::Cancelled { message: None })
                    }
                    () = tokio::time::sleep(Duration::from_secs_f64(seconds)) => {
                        counters.count(|[_, finished, _]| *finished += 1);
                        Ok(TaskOutcome::Completed(CallToolResult::text("slept")))
                    }
                }
            }
        },
    )
}

/// An ordinary tool.
fn stats(counters: Counters) -> Tool {
    let tool = ToolBuilder::new("task_stats");
    let tool = tool.handler(move |Nothing {}: Nothing| {
        let [started, finished, cancelled] = counters.count(|_| ());
        let stats = json!({"started": started, "finished": finished, "cancelled": cancelled});
        async move { Ok(CallToolResult::text(stats.to_string())) }
    });
    tool.build()
}

/// How many handlers of `task_slow` were started, finished and cancelled.
#[derive(Clone, Default)]
struct Counters(Arc<Mutex<[u64; 3]>>);

impl Counters {
    fn count(&self, change: impl FnOnce(&mut [u64; 3])) -> [u64; 3] {
        let mut counters = self.0.lock().expect("the lock is not poisoned");
        change(&mut counters);
        *counters
    }
}

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

#[derive(Deserialize, JsonSchema)]
struct Text {
    text: String,
}

#[derive(Deserialize, JsonSchema)]
struct Message {
    message: String,
}

#[derive(Deserialize, JsonSchema)]
struct Seconds {
    seconds: f64,
}
