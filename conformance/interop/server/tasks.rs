//! The tasks fixture: a tool for each way in which a task goes on and ends.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bowline::exchange::ElicitationOutcome;
use bowline::prelude::*;
use bowline::schemars::{self, JsonSchema};
use bowline::{ErrorCode, Json, RpcError};
use bowline_tasks::Tasks;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::replica::FileCounters;

/// Adds the tools and the extension.
pub(crate) fn register(server: Server) -> Server {
    // Clients that do not subscribe poll at this interval.
    let tasks = Tasks::in_memory().poll_interval(POLL_INTERVAL);
    tools(server, TaskCounters::default()).extension(tasks)
}

/// Adds the tools.
pub(crate) fn tools(server: Server, counters: impl Into<SlowTaskCounters>) -> Server {
    server
        .state(counters.into())
        .tool(task_echo)
        .tool(task_slow)
        .tool(task_stats)
        .tool(task_ask)
        .tool(task_fail)
        .tool(task_boom)
        .tool(task_resumed)
}

/// The counters of `task_slow`: of this process, or of all replicas.
#[derive(Clone)]
pub(crate) enum SlowTaskCounters {
    Process(TaskCounters),
    Replicas(FileCounters),
}

impl From<TaskCounters> for SlowTaskCounters {
    fn from(counters: TaskCounters) -> Self {
        Self::Process(counters)
    }
}

impl From<FileCounters> for SlowTaskCounters {
    fn from(counters: FileCounters) -> Self {
        Self::Replicas(counters)
    }
}

/// The counters of this process.
#[derive(Clone, Default)]
pub(crate) struct TaskCounters(Arc<Mutex<TaskCounts>>);

/// How many handlers of `task_slow` were started, finished and cancelled.
#[derive(Clone, Copy, Default, Serialize, JsonSchema)]
struct TaskCounts {
    started: u64,
    finished: u64,
    cancelled: u64,
}

impl TaskCounters {
    fn count(&self, change: impl FnOnce(&mut TaskCounts)) -> TaskCounts {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut counts);
        *counts
    }
}

/// Counts a handler as cancelled if it is dropped before it is finished.
struct RunningHandler(Option<TaskCounters>);

impl RunningHandler {
    fn start(counters: TaskCounters) -> Self {
        counters.count(|counts| counts.started += 1);
        Self(Some(counters))
    }

    fn finish(mut self) {
        if let Some(counters) = self.0.take() {
            counters.count(|counts| counts.finished += 1);
        }
    }
}

impl Drop for RunningHandler {
    fn drop(&mut self) {
        if let Some(counters) = self.0.take() {
            counters.count(|counts| counts.cancelled += 1);
        }
    }
}

/// Returns its argument, from a task.
#[tool(read_only, task(required))]
async fn task_echo(text: String) -> String {
    text
}

/// Sleeps in a task.
#[tool(read_only, task(required))]
async fn task_slow(
    /// how long to sleep
    seconds: f64,
    State(counters): State<SlowTaskCounters>,
) -> Result<&'static str, RpcError> {
    let duration = Duration::try_from_secs_f64(seconds)
        .map_err(|error| RpcError::new(ErrorCode::INVALID_PARAMS, error.to_string()))?;
    match counters {
        SlowTaskCounters::Process(counters) => {
            let running = RunningHandler::start(counters);
            tokio::time::sleep(duration).await;
            running.finish();
        }
        SlowTaskCounters::Replicas(counters) => {
            let running = counters.begin("task");
            tokio::time::sleep(duration).await;
            running.finish();
        }
    }
    Ok("slept")
}

/// Sleeps in a task and returns its argument. Runs again in another process if this one ends.
#[tool(read_only, task(required, resumable))]
async fn task_resumed(text: String, seconds: f64) -> Result<String, RpcError> {
    let duration = Duration::try_from_secs_f64(seconds)
        .map_err(|error| RpcError::new(ErrorCode::INVALID_PARAMS, error.to_string()))?;
    tokio::time::sleep(duration).await;
    Ok(text)
}

/// Returns the counters of `task_slow`; never a task.
#[tool(read_only)]
async fn task_stats(State(counters): State<SlowTaskCounters>) -> Structured<TaskCounts> {
    Structured(match counters {
        SlowTaskCounters::Process(counters) => counters.count(|_| ()),
        SlowTaskCounters::Replicas(counters) => TaskCounts {
            started: counters.count("task-started"),
            finished: counters.count("task-finished"),
            cancelled: counters.count("task-cancelled"),
        },
    })
}

/// Asks the user for a name, inside its task.
#[tool(requires(elicitation), task(required))]
async fn task_ask(cx: Context) -> Result<String, ToolError> {
    Ok(
        match cx.elicit("name", "What is your name?").outcome().await? {
            ElicitationOutcome::Accept(Name { name }) => format!("accepted:{name}"),
            ElicitationOutcome::Decline => "declined".to_owned(),
            ElicitationOutcome::Cancel => "cancelled".to_owned(),
        },
    )
}

/// The form of `task_ask`.
#[derive(Deserialize, JsonSchema)]
struct Name {
    name: String,
}

/// Fails with a tool error, which completes its task.
#[tool(read_only, task(required))]
async fn task_fail(message: String) -> Result<String, ToolError> {
    Err(ToolError::new(message))
}

/// Fails with a JSON-RPC error, which fails its task.
#[tool(read_only, task(required))]
async fn task_boom() -> Result<String, RpcError> {
    let data = Json::encode(&json!({"why": "fixture"})).unwrap_or_else(|_| Json::empty_object());
    Err(RpcError::new(ErrorCode(-32000), "boom, as asked").with_data(data))
}

pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);
