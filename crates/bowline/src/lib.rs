//! Bowline is a Rust SDK for the [Model Context Protocol](https://modelcontextprotocol.io), for servers and clients.
//!
//! - Servers are built from functions: `#[tool]` derives the schema of a tool from the parameters of its function.
//! - Transports: [Streamable HTTP](crate::http), stdio, any other byte stream ([`wire`]), and in process.
//! - All protocol revisions from 2024-11-05 to 2026-07-28, negotiated per connection. A handler works with all of them.
//! - **Dropping a call cancels it**, on every transport: the handler's future at the other end is dropped too.
//! - [Layers](layer) around requests, including `tower` layers, and [`Limits`] on the memory that peers can use.
//! - OAuth for clients and servers, in the crate `bowline-auth`.
//!
//! # Example
//!
//! ```
//! use bowline::prelude::*;
//! use serde_json::json;
//!
//! /// Adds two numbers.
//! #[tool]
//! async fn add(
//!     /// the first
//!     a: i64,
//!     /// the second
//!     b: i64,
//! ) -> i64 {
//!     a + b
//! }
//!
//! #[tokio::main]
//! async fn main() -> bowline::Result<()> {
//!     let server = Server::new("calculator", "1.0.0").tool(add);
//!
//!     let client = Client::in_process(&server).await?;
//!     let reply = client.call_tool("add", json!({"a": 1, "b": 2})).await?;
//!     assert_eq!(reply.text(), "3");
//!     Ok(())
//! }
//! ```
//!
//! # Handlers
//!
//! `#[tool]` expands to a [handler](server::Handler): an `async fn` whose parameters are
//! [extractors](server::Extract) and whose return type implements [`IntoToolResult`]. Handlers can also be written
//! without the macro:
//!
//! ```
//! use bowline::prelude::*;
//! use bowline::schemars::{self, JsonSchema};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Query {
//!     /// the name of the city
//!     city: String,
//! }
//!
//! #[derive(Serialize, JsonSchema)]
//! struct Weather {
//!     celsius: f64,
//! }
//!
//! async fn weather(Args(query): Args<Query>, cx: Context) -> Result<Structured<Weather>, ToolError> {
//!     if query.city.is_empty() {
//!         return Err(ToolError::new("`city` must not be empty"));
//!     }
//!     cx.progress(0.5);
//!     Ok(Structured(Weather { celsius: 21.5 }))
//! }
//!
//! let tool = Tool::new("weather", weather).description("Returns the weather.").read_only(true);
//! let server = Server::new("weather", "1.0.0").tool(tool);
//! # assert!(server.check().is_ok());
//! ```
//!
//! # Transports
//!
//! | transport | server | client |
//! |---|---|---|
//! | stdio | [`Server::serve_stdio`] | [`Client::spawn`] |
//! | Streamable HTTP | [`Server::serve_http`], or [`Server::http`] as a `tower` service | [`Client::connect`] |
//! | any [`Wire`](wire::Wire) | [`Server::serve`] | [`Client::from_wire`] |
//! | in process | | [`Client::in_process`] |
//!
//! # Cancellation
//!
//! Dropping the future of a call cancels its request. The server then drops the handler's future at its next `.await`.
//!
//! ```
//! # use bowline::prelude::*;
//! # async fn user_pressed_stop() {}
//! # async fn example(client: Client) -> bowline::Result<()> {
//! tokio::select! {
//!     reply = client.call_tool("slow", ()) => println!("{}", reply?.text()),
//!     () = user_pressed_stop() => {} // the request is cancelled
//! }
//! # Ok(()) }
//! ```
//!
//! On a duplex wire, a cancelled request is followed by `notifications/cancelled`. On HTTP, the client closes the
//! response (since 2026-07-28) or POSTs that notification (earlier revisions). In process, the handler is part of the
//! caller's future. All futures of this crate may be dropped at any time; a process that exits immediately afterwards
//! may not send the notification.
//!
//! # Feature flags
//!
//! - `http-client` (default): [`Client::connect`].
//! - `http-server` (default): [`Server::http`] and [`Server::serve_http`].
//! - `legacy` (default): protocol revisions before 2026-07-28, and the HTTP+SSE transport.
//! - `macros` (default): `#[tool]`, `#[tools]`, `#[prompt]`, `#[resource]` and `#[completion]`.
//! - `tls` (default): `https` URLs for clients.
//! - `validate` (default): arguments and structured output are validated against the tool's schemas.
//! - `reqwest`: a `reqwest::Client` can send the HTTP requests.
//! - `testing`: scripted peers and every transport, for tests.
//!
//! An HTTP server for modern clients needs only `http-server` and `macros`.

#![cfg_attr(
    not(feature = "legacy"),
    allow(
        dead_code,
        unreachable_pub,
        reason = "some shared code is used by the legacy era only"
    )
)]

mod callback;

mod deprecation;

mod error;
pub use error::{Error, Result};

mod exit_signals;

pub mod exchange;
pub use exchange::{CancelMode, Context, Progress};

mod instant_after;

pub mod http;

pub mod layer;

#[cfg_attr(
    any(not(feature = "legacy"), not(feature = "http-server")),
    allow(
        dead_code,
        unused_imports,
        reason = "principals, connections and resumable events exist on HTTP only"
    )
)]
mod limits;
pub use limits::{Limit, LimitReached, Limits, Usage};

mod once_store;
pub use once_store::{MemoryOnceStore, OnceOutcome, OnceStore, OnceStoreError};

mod random;

mod shutdown;

mod signal;

mod sync;

pub mod wire;

pub mod peer;

pub mod client;
pub use client::{Call, Client, Reply};

pub mod server;
pub use server::{
    Args, Extension, IntoToolResult, Prompt, Resource, ResourceTemplate, Server, State, Structured,
    Tool, ToolError, Toolbox, invalid_params,
};

#[cfg(feature = "testing")]
pub mod testing;

pub use bowline_core::era::Caller;
/// The types of the protocol's schema.
#[doc(inline)]
pub use bowline_types as types;
pub use bowline_types::{CallToolResult, ErrorCode, Json, RequestId, RpcError};

#[cfg(feature = "macros")]
pub use bowline_macros::{completion, prompt, resource, tool, tools};

/// Re-export of `schemars`, for `#[derive(JsonSchema)]` on arguments and output.
pub use schemars;
/// Re-export of `serde`, for `#[derive(Deserialize, Serialize)]` on arguments and output.
pub use serde;

pub mod prelude;

#[cfg(doctest)]
mod guide;
