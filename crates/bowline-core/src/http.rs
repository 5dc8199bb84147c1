//! The rules of the Streamable HTTP binding that need no socket.

pub mod headers;

pub mod legacy;

pub mod media;

pub mod source;

pub mod status;
