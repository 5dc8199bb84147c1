//! Tests of the HTTP server, over TCP sockets and in-memory pipes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

mod support;

mod bound_paths;
#[cfg(feature = "legacy")]
mod client_and_server;
mod connectors;
mod cors;
mod disconnect;
mod drain;
#[cfg(feature = "legacy")]
mod legacy;
mod limits;
mod open_connections;
#[cfg(feature = "legacy")]
mod proxy;
mod refusals;
mod response_form;
mod scopes;
mod shutdown;
mod wire_faults;
