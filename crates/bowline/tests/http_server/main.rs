//! The HTTP server, over sockets and over pipes in memory.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on stops"
)]

mod support;

mod answers;
mod connectors;
mod disconnect;
#[cfg(not(bowline_no_legacy))]
mod legacy;
mod limits;
#[cfg(not(bowline_no_legacy))]
mod proxy;
mod refusals;
mod scopes;
mod shutdown;
#[cfg(not(bowline_no_legacy))]
mod together;
mod wire_faults;
