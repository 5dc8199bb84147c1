//! An SDK for the Model Context Protocol in which **dropping a call cancels the work**: on every
//! transport, in every protocol era, at both ends, with nothing leaked.
//!
//! # A server and a client
//!
//! ```
//! use bowline::{CallToolResult, Client, Server, Tool};
//! use serde_json::json;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> bowline::Result<()> {
//! let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
//! let greet = Tool::raw("greet", schema, async |args, _cx| {
//!     let args: serde_json::Value = args.decode().map_err(bowline::invalid_params)?;
//!     Ok(CallToolResult::text(format!("Hello, {}!", args["name"])))
//! });
//! let server = Server::new("greeter", "1.0.0").tool(greet);
//!
//! let client = Client::to(&server).await?;
//! let reply = client.call_tool("greet", json!({"name": "you"})).await?;
//! assert_eq!(reply.text(), "Hello, \"you\"!");
//! # Ok(()) }
//! ```
//!
//! # Cancel safety
//!
//! All futures of this crate may be dropped at any time. What that means is always the same, and how the
//! other side learns of it depends on the wire: a `notifications/cancelled` message on a duplex wire, the
//! end of the response on HTTP, nothing at all in process, where the handler is part of the caller's
//! future. At the other end the handler's future is dropped at its next `.await`. A process that exits
//! right after dropping a call may not get to send the notice.

mod error;
pub use error::{Error, Result};

pub mod exchange;
pub use exchange::{CancelMode, Context, Progress};

pub mod http;

pub mod layer;

pub mod wire;

pub mod peer;

pub mod client;
pub use client::{Call, Client, Reply};

pub mod server;
pub use server::{Prompt, Resource, ResourceTemplate, Server, Tool, invalid_params};

/// The vocabulary of the protocol.
#[doc(inline)]
pub use bowline_types as types;
pub use bowline_types::{CallToolResult, ErrorCode, Json, RequestId, RpcError};

/// The README's code is tested like any other.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
