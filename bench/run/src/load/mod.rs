//! Load from outside, made without any MCP library: well-formed requests, and every reply checked.

mod messages;
pub(crate) use messages::{Dialog, Expect, Message};

mod reply;

mod http;
pub(crate) use http::{Connections, ask, open};

mod stdio;
pub(crate) use stdio::Lines;
