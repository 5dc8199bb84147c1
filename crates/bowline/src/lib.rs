//! An SDK for the Model Context Protocol in which **dropping a call cancels the work**: on every
//! transport, in every protocol era, at both ends, with nothing leaked.
//!
//! # A server and a client
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
//!     let client = Client::to(&server).await?;
//!     let reply = client.call_tool("add", json!({"a": 1, "b": 2})).await?;
//!     assert_eq!(reply.text(), "3");
//!     Ok(())
//! }
//! ```
//!
//! The attribute is sugar over [handlers](server::Handler): any `async fn` whose parameters are
//! [extractors](server::Extract) and whose result is [something for a model](IntoToolResult).
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
//!         return Err(ToolError::new("the city has no name; ask for one"));
//!     }
//!     cx.progress(0.5);
//!     Ok(Structured(Weather { celsius: 21.5 }))
//! }
//!
//! let tool = Tool::new("weather", weather).description("Tells the weather.").read_only(true);
//! let server = Server::new("weather", "1.0.0").tool(tool);
//! # assert!(server.check().is_ok());
//! ```
//!
//! # Features
//!
//! All on by default: `http-client` ([`Client::connect`]), `http-server` ([`Server::http`]), `macros` (`#[tool]` and its
//! like), `tls` (clients reach `https` servers), `validate` (arguments and output are checked against their schemas).
//! Off: `reqwest` (a client of that kind sends the requests), `testing` (scripted peers, and every way to reach a
//! server). A server over HTTP alone needs `http-server` and `macros`, and is then made of fewer crates.
//!
//! # Cancel safety
//!
//! All futures of this crate may be dropped at any time. What that means is always the same, and how the
//! other side learns of it depends on the wire: a `notifications/cancelled` message on a duplex wire, the
//! end of the response on HTTP since 2026-07-28 and a POST of that message before, nothing at all in
//! process, where the handler is part of the caller's future. At the other end the handler's future is
//! dropped at its next `.await`. A process that exits right after dropping a call may not get to send the
//! notice.

mod callback;

mod deprecation;

mod error;
pub use error::{Error, Result};

pub mod exchange;
pub use exchange::{CancelMode, Context, Progress};

mod far_future;

pub mod http;

pub mod layer;

#[cfg_attr(
    any(bowline_no_legacy, not(feature = "http-server")),
    allow(
        dead_code,
        unused_imports,
        reason = "principals, connections and what is kept for resumption are known over HTTP only"
    )
)]
mod limits;
pub use limits::{Limit, LimitReached, Limits, Usage};

mod marks;
pub use marks::{Marked, Marks, MarksError, MemoryMarks};

mod random;

mod shutdown;

mod signal;

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
/// The vocabulary of the protocol.
#[doc(inline)]
pub use bowline_types as types;
pub use bowline_types::{CallToolResult, ErrorCode, Json, RequestId, RpcError};

#[cfg(feature = "macros")]
pub use bowline_macros::{prompt, resource, tool, tools};

/// What derives the schema of arguments and output; `#[derive(JsonSchema)]` comes from here.
pub use schemars;
/// What reads arguments and writes output; `#[derive(Deserialize, Serialize)]` comes from here.
pub use serde;

pub mod prelude;

/// The README's code is tested like any other, and so is that of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/limits.md")]
struct Readme;
