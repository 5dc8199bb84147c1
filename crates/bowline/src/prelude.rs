//! What most servers and clients use: `use bowline::prelude::*;`.

pub use crate::{
    Args, Client, Context, Extension, Prompt, Resource, ResourceTemplate, Server, State,
    Structured, Tool, ToolError, Toolbox,
};

/// Arguments, and JSON of any other kind, in JSON's own words.
pub use serde_json::json;

#[cfg(feature = "macros")]
pub use crate::{prompt, resource, tool, tools};
