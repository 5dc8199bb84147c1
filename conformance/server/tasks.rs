//! Tools whose calls become tasks, and one whose calls never do.

use std::time::Duration;

use bowline::prelude::*;
use bowline::schemars::{self, JsonSchema};
use bowline::{ErrorCode, RpcError};
use bowline_tasks::Tasks;
use serde::Deserialize;

pub(crate) fn register(server: Server) -> Server {
    server
        .tool(greet)
        .tool(slow_compute)
        .tool(failing_job)
        .tool(protocol_error_job)
        .tool(confirm_delete)
        .tool(multi_input)
        .tool(test_tool_with_task)
        .extension(Tasks::in_memory().poll_interval(Duration::from_millis(200)))
}

/// Greets.
#[tool]
async fn greet(name: String) -> String {
    format!("Hello, {name}!")
}

/// Computes for a while.
#[tool(task)]
async fn slow_compute(seconds: f64, label: Option<String>) -> String {
    tokio::time::sleep(Duration::from_secs_f64(seconds.clamp(0.0, 3600.0))).await;
    format!("computed {}", label.unwrap_or_default())
}

/// Fails after a second, with an error result.
#[tool(task(required))]
async fn failing_job() -> Result<String, ToolError> {
    tokio::time::sleep(Duration::from_secs(1)).await;
    Err(ToolError::new("the job failed, as it always does"))
}

/// Fails with a JSON-RPC error.
#[tool(task)]
async fn protocol_error_job() -> Result<String, RpcError> {
    Err(RpcError::new(ErrorCode::INTERNAL_ERROR, "the job broke"))
}

/// Asks before it deletes.
#[tool(task(required))]
async fn confirm_delete(filename: String, cx: Context) -> Result<String, ToolError> {
    let Confirmation { confirm } = cx.elicit("confirm", format!("Delete {filename}?")).await?;
    Ok(match confirm {
        true => format!("deleted {filename}"),
        false => format!("kept {filename}"),
    })
}

/// Asks two questions at the same time.
#[tool(task(required))]
async fn multi_input(cx: Context) -> Result<String, ToolError> {
    let (first, second) = tokio::try_join!(
        cx.elicit::<Confirmation>("first", "Really?"),
        cx.elicit::<Confirmation>("second", "Are you sure?"),
    )?;
    Ok(format!(
        "first: {}, second: {}",
        first.confirm, second.confirm
    ))
}

/// Asks for a name in a round of the call, and becomes a task when it then waits for something else.
#[tool(task(required, after = "0s"))]
async fn test_tool_with_task(cx: Context) -> Result<String, ToolError> {
    let Name { name } = cx.elicit("user_name", "What is your name?").await?;
    tokio::time::sleep(Duration::from_millis(50)).await;
    Ok(format!("Hello, {name}!"))
}

#[derive(Deserialize, JsonSchema)]
struct Confirmation {
    confirm: bool,
}

#[derive(Deserialize, JsonSchema)]
struct Name {
    name: String,
}
