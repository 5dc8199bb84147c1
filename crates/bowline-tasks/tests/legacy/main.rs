//! The tasks of protocol version 2025-11-25, as clients see them: over a wire, with scripted JSON.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed test panics")]

mod support;

mod cancel;
mod http;
mod lifecycle;
mod principals;
mod questions;
mod shutdown;
mod transports;
mod versions;
