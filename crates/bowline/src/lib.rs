#![doc = include_str!("docs/front_page.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(feature = "legacy"),
    allow(
        dead_code,
        unreachable_pub,
        reason = "some shared code is used by the legacy era only"
    )
)]

mod backoff;
mod callback;

pub mod cluster;

mod deprecation;

mod error;
pub use error::{Error, Result};

mod exit_signals;

pub mod exchange;
#[doc(inline)]
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

mod random;

pub mod seal;

#[cfg_attr(
    not(feature = "http-server"),
    allow(dead_code, reason = "only HTTP has probes")
)]
mod shutdown;

mod signal;

mod sync;

pub mod telemetry;

pub mod wire;

pub mod peer;

pub mod client;
#[doc(inline)]
pub use client::{Call, Client, Reply};

pub mod server;
#[doc(inline)]
pub use server::{
    Args, Extension, IntoToolResult, Prompt, Resource, ResourceTemplate, Server, State, Structured,
    Tool, ToolError, Toolbox, invalid_params,
};

#[cfg(feature = "testing")]
pub mod testing;

pub use bowline_core::era::Caller;
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
