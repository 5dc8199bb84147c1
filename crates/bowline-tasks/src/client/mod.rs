//! The client side of tasks: calls that wait for a task, and handles of tasks.
//!
//! ```text
//! call_tool(..)             ── answered with a task ──▶ Waiter ──▶ the result, as if it were direct
//! call_tool(..).as_task()   ── answered with a task ──▶ TaskHandle ── wait() ──▶ Waiter ──▶ the result
//!
//! Waiter: Listener   subscriptions/listen with `taskIds`, where the server supports it
//!         Poller     tasks/get, by `pollIntervalMs`; slowly while the listener receives notifications
//!         Questions  `inputRequests` to the host, answers to the server with tasks/update
//! ```
//!
//! # Examples
//!
//! A server that answers `tools/call` with a task:
//!
//! ```
//! use bowline::exchange::{Outcome, Request};
//! use bowline::{Client, Context, ErrorCode, RpcError};
//! use bowline_tasks::{TaskCall as _, TaskClient, TaskHandle};
//! use serde_json::{Value, json};
//!
//! async fn server(request: Request, _: Context) -> Outcome {
//!     let task = |status: &str| {
//!         let at = "2026-07-28T12:00:00Z";
//!         json!({"taskId": "A7", "status": status, "createdAt": at, "lastUpdatedAt": at, "ttlMs": null})
//!     };
//!     let mut result = match &*request.method {
//!         "tools/call" => task("working"),
//!         "tasks/get" => task("completed"),
//!         method => return Err(RpcError::new(ErrorCode::METHOD_NOT_FOUND, method)),
//!     };
//!     match &*request.method {
//!         "tools/call" => result["resultType"] = Value::from("task"),
//!         _ => result["result"] = json!({"content": [{"type": "text", "text": "converted"}]}),
//!     }
//!     Ok(result.into())
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> bowline::Result<()> {
//! let client = Client::in_process(&server).protocol_version("2026-07-28").extension(TaskClient::new()).await?;
//!
//! // Waits for the task:
//! assert_eq!(client.call_tool("convert", ()).await?.text(), "converted");
//!
//! // Returns a handle, whose id another process can use:
//! let task = client.call_tool("convert", ()).as_task().await?;
//! let id = task.id().unwrap_or_default().to_owned();
//! let same = TaskHandle::attach(&client, id);
//! assert_eq!(same.wait().await?.text(), "converted");
//! # Ok(()) }
//! ```

mod extension;
pub use extension::TaskClient;

mod handle;
pub use handle::{TaskCall, TaskHandle, TaskRequest};

mod wait;
pub use wait::TaskWait;

mod info;
pub use info::TaskInfo;

mod answers;

mod backoff;

mod lenient;

mod listener;

mod poller;

mod questions;

mod task;

mod waiter;

use bowline::Error;

const CALL_TOOL: &str = "tools/call";

fn protocol(what: impl Into<String>) -> Error {
    Error::Protocol {
        what: what.into(),
        source: None,
    }
}

fn misuse(what: impl Into<String>) -> Error {
    Error::Misuse { what: what.into() }
}
