//! Tools that send progress and log messages before they return.

use std::time::Duration;

use bowline::Progress;
use bowline::prelude::*;
use bowline::types::LoggingLevel;
use serde_json::json;
use tokio::time::sleep;

pub(crate) fn register(server: Server) -> Server {
    server
        .tool(test_tool_with_progress)
        .tool(test_tool_with_logging)
        .tool(test_logging_tool)
        .tool(test_streaming_elicitation)
        .tool(test_reconnection)
}

/// Reports progress three times.
#[tool]
async fn test_tool_with_progress(cx: Context) -> &'static str {
    for percent in [0.0, 50.0, 100.0] {
        cx.progress(Progress::new(percent).total(100.0));
        sleep(PAUSE).await;
    }
    "Progress was reported."
}

/// Logs three times.
#[tool]
async fn test_tool_with_logging(cx: Context) -> &'static str {
    cx.log(LoggingLevel::Info, json!("Tool execution started"));
    sleep(PAUSE).await;
    cx.log(LoggingLevel::Info, json!("Tool processing data"));
    sleep(PAUSE).await;
    cx.log(LoggingLevel::Info, json!("Tool execution completed"));
    "Three messages were logged."
}

/// Logs once.
#[tool]
async fn test_logging_tool(cx: Context) -> &'static str {
    cx.log(LoggingLevel::Info, json!("The tool runs."));
    "One message was logged."
}

/// Reports progress, without an elicitation.
#[tool]
async fn test_streaming_elicitation(cx: Context) -> &'static str {
    cx.progress(1.0);
    "Streaming complete"
}

/// Takes long enough for a stream to be interrupted.
#[tool]
async fn test_reconnection() -> &'static str {
    sleep(2 * PAUSE).await;
    "The result came through."
}

const PAUSE: Duration = Duration::from_millis(50);
