//! The rules of the Streamable HTTP binding that need no socket.

pub mod admission;

pub mod challenge;

pub mod headers;

#[cfg_attr(bowline_no_legacy, path = "http/legacy_stub.rs")]
pub mod legacy;

pub mod media;

pub mod paths;

pub mod source;

pub mod status;
