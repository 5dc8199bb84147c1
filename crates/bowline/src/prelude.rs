//! Re-exports of the most common items: `use bowline::prelude::*;`.

pub use crate::{
    Args, Client, Context, Extension, Progress, Prompt, Resource, ResourceTemplate, Server, State,
    Structured, Tool, ToolError, Toolbox,
};

/// Re-export of `serde_json::json!`.
pub use serde_json::json;

#[cfg(feature = "macros")]
pub use crate::{completion, prompt, resource, tool, tools};
