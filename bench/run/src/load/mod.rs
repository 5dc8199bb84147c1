//! Generates load without an MCP library: well-formed requests, and a check of every reply.

mod messages;
pub(crate) use messages::{Era, Expect, Message, ProtocolContext};

mod http_reply;

mod http;
pub(crate) use http::{HttpLoad, connect, open_session, receive, send_one};

mod http2;
pub(crate) use http2::Http2Load;

mod stdio;
pub(crate) use stdio::StdioLoad;
