//! The life of a token over sockets: an MCP client, a protected MCP server and an authorization server.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

mod raw_http;
mod test_servers;
mod with_the_sdk;
