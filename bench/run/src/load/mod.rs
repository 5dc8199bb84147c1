//! Load from outside, made without any MCP library: well-formed requests, and every reply checked.

mod messages;
pub(crate) use messages::{Dialog, Era, Expect, Message};

mod reply;

mod http;
pub(crate) use http::{Connections, ask, connect, open, receive};

mod stdio;
pub(crate) use stdio::Lines;

mod streams;
pub(crate) use streams::Streams;
