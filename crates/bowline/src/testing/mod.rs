//! Test utilities for servers, for clients, and for the messages between them.
//!
//! # Testing a server
//!
//! A [`MatrixCase`] connects to a server over one transport in one protocol version; [`matrix()`] returns all of them.
//!
//! ```
//! use bowline::testing::matrix;
//! use bowline::{CallToolResult, Server, Tool};
//! use serde_json::json;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> bowline::Result<()> {
//! let now = Tool::raw("now", json!({"type": "object"}), async |_, _| Ok(CallToolResult::text("noon")));
//! let server = Server::new("clock", "1.0.0").tool(now);
//!
//! for case in matrix() {
//!     let client = case.serve(&server).connect.await?;
//!     assert_eq!(client.call_tool("now", ()).await?.text(), "noon", "{case}");
//! }
//! # Ok(()) }
//! ```
//!
//! # Testing a client
//!
//! A [`ScriptedPeer`] is controlled by the test, and panics if it receives an unexpected message.
//!
//! ```
//! use bowline::{Client, testing};
//! use serde_json::json;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> bowline::Result<()> {
//! let (wire, mut server) = testing::scripted_peer();
//! let client = Client::from_wire(wire).protocol_version("2026-07-28").await?;
//!
//! let call = tokio::spawn(async move { client.call_tool("now", ()).await });
//! let noon = json!({"content": [{"type": "text", "text": "noon"}], "resultType": "complete"});
//! server.expect("tools/call").await.answer(noon);
//!
//! assert_eq!(call.await.expect("no panic")?.text(), "noon");
//! # Ok(()) }
//! ```
//!
//! # Testing an engine of a cluster
//!
//! [`cluster_laws`] are tests for implementations of [`ReplicaMessages`](crate::cluster::ReplicaMessages) and
//! [`Marks`](crate::cluster::Marks). A [`TcpProxy`] between an engine and its server fails as a network does.
//!
//! # Testing what is sent and what is left
//!
//! [`RecordingWire`] and [`RecordingSocket`] record the messages of both directions, [`HandlerCounter`] counts how
//! handlers end, and [`ResourceCounts`] detects leaked tasks, file descriptors and child processes.
#![allow(clippy::panic, reason = "failed expectations panic like `assert!`")]

pub mod cluster_laws;

mod handler_counter;
pub use handler_counter::{HandlerCounter, HandlerCounts};

mod matrix;
pub use matrix::{Matrix, MatrixCase, TestConnection, TestTransport, matrix};

mod pipe_connector;
pub use pipe_connector::PipeConnector;

mod recording_socket;
pub use recording_socket::{RecordingSocket, serve_recorded};

mod recording_wire;
pub use recording_wire::RecordingWire;

mod resource_counts;
pub use resource_counts::{ResourceCounts, eventually};

mod scripted_peer;
pub use scripted_peer::{ExpectedRequest, ScriptedPeer, scripted_client, scripted_peer};

mod tcp_proxy;
pub use tcp_proxy::TcpProxy;

mod wire_record;
pub use wire_record::{Direction, RecordedEvent, RecordedFrame, WireRecord, summarize};
