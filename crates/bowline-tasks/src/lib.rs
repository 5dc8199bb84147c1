//! Durable tasks for the Model Context Protocol: work that outlives its connection and its process.
//!
//! [`Tasks`] is the extension `io.modelcontextprotocol/tasks` of a server: calls of its tools become tasks.
//!
//! A task is a [record](store::TaskRecord) with a lease. The process that holds the lease runs the handler. If that
//! process ends, its lease expires and another process [claims](store::TaskStore::claim) the task; the journal beside
//! the record contains the steps that are done. [`store`] defines the records and where they are kept.
//!
//! # Examples
//!
//! A tool whose calls become tasks:
//!
//! ```
//! use bowline::{Server, tool};
//! use bowline_tasks::Tasks;
//!
//! /// Counts all words, which takes a while.
//! #[tool(task)]
//! async fn count() -> u32 {
//!     7
//! }
//!
//! let server = Server::new("words", "1.0.0").tool(count).extension(Tasks::in_memory());
//! ```
//!
//! A store:
//!
//! ```
//! use std::time::Duration;
//! use bowline_tasks::store::{MemoryStore, NewTask, TaskChange, TaskStatus, TaskStore as _, Updated};
//! use bowline_tasks::{ReplicaId, TaskId};
//! use bowline_types::Json;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), bowline_tasks::store::StoreError> {
//! let store = MemoryStore::new();
//! let this_process = ReplicaId::random()?;
//! let task = NewTask::new(TaskId::random()?, "convert", this_process, Duration::from_secs(6));
//! let record = store.create(task).await?;
//! assert_eq!(record.status(), TaskStatus::Working);
//!
//! let done = TaskChange::new().fence(record.fence()).complete(Json::empty_object());
//! assert!(matches!(store.update(record.id, record.version, done).await?, Updated::Done(_)));
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

mod id;
pub use id::{InvalidTaskId, ReplicaId, TaskId};

mod sync;

/// Compiles the code blocks of the README as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Compiles the code blocks of the guide as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tasks.md")]
struct Guide;
