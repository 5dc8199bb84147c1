//! Durable tasks for the Model Context Protocol: work that outlives its connection and its process.
//!
//! [`Tasks`] is the extension `io.modelcontextprotocol/tasks` of a server: calls of its tools become tasks.
//!
//! A task is a [record](store::TaskRecord) with a lease. The process that holds the lease runs the handler. If that
//! process ends, its lease expires and another process [claims](store::TaskStore::claim) the task; the journal beside
//! the record contains the steps that are done. [`store`] defines the records and where they are kept.
//!
//! [`TaskClient`] is the extension of a client: a call that the server makes a task waits for it, and a [`TaskHandle`]
//! can be waited for by another process.
//!
//! # Examples
//!
//! ```
//! use bowline::prelude::*;
//! use bowline_tasks::{TaskCall as _, TaskClient, Tasks};
//!
//! # async fn download() -> String { "two words".into() }
//! /// Counts the words of a page.
//! #[tool(task(resumable))]
//! async fn count_words(cx: Context) -> Result<usize, ToolError> {
//!     let page = cx.step("download", download()).await?; // after a crash, not again
//!     Ok(page.split_whitespace().count())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> bowline::Result<()> {
//! // `Tasks::sqlite("tasks.db")?` keeps them when the process ends.
//! let server = Server::new("words", "1.0.0").tool(count_words).extension(Tasks::in_memory());
//! let client = Client::in_process(&server).extension(TaskClient::new()).await?;
//!
//! assert_eq!(client.call_tool("count_words", ()).await?.text(), "2");
//!
//! let task = client.call_tool("count_words", ()).as_task().await?;
//! assert_eq!(task.wait().await?.text(), "2");
//! # Ok(()) }
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod protocol;

pub mod server;
#[doc(inline)]
pub use server::{TaskSettings, Tasks};

pub mod store;

pub mod client;
#[doc(inline)]
pub use client::{TaskCall, TaskClient, TaskHandle, TaskInfo};

mod encode;

mod id;
pub use id::{InvalidTaskId, ReplicaId, TaskId};

mod sync;

#[cfg(feature = "testing")]
pub mod testing;

/// Compiles the code blocks of the README as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Compiles the code blocks of the guide as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tasks.md")]
struct Guide;
