//! Tools for tests: of servers, of clients, and of what passes between them.
//!
//! # Testing a server
//!
//! [`Column`] reaches a server in a given way, in a given protocol version; [`matrix`] has all of them.
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
//! for column in matrix() {
//!     let client = column.reach(&server).connect.await?;
//!     assert_eq!(client.call_tool("now", ()).await?.text(), "noon", "{column}");
//! }
//! # Ok(()) }
//! ```
//!
//! # Testing a client
//!
//! A [`Scripted`] peer says what it is told to, and panics with what it saw if that was not expected.
//!
//! ```
//! use bowline::{Client, testing};
//! use serde_json::json;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> bowline::Result<()> {
//! let (wire, mut server) = testing::scripted();
//! let client = Client::over(wire).speaking("2026-07-28").await?;
//!
//! let asking = tokio::spawn(async move { client.call_tool("now", ()).await });
//! let noon = json!({"content": [{"type": "text", "text": "noon"}], "resultType": "complete"});
//! server.expect("tools/call").await.answer(noon);
//!
//! assert_eq!(asking.await.expect("no panic")?.text(), "noon");
//! # Ok(()) }
//! ```
#![allow(clippy::panic, reason = "a test that sees the wrong thing ends there")]

mod matrix;
pub use matrix::{Column, Reach, Transport, matrix};

mod pipes;
pub use pipes::{Pipe, Pipes};

mod scripted;
pub use scripted::{Expected, Scripted, scripted, scripted_client};

mod tap;
pub use tap::{Direction, Tap, Tapped, TappedFrame};
