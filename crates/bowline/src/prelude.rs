//! What most servers and clients use: `use bowline::prelude::*;`.

pub use crate::{
    Args, Client, Context, Extension, Prompt, Resource, ResourceTemplate, Server, State,
    Structured, Tool, ToolError, Toolbox,
};

#[cfg(feature = "macros")]
pub use crate::{prompt, resource, tool, tools};
