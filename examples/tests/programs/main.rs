//! Runs each example as a process, and checks what its documentation says.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

/// The tests in the example: as an example with `test = true`, cargo would not build the program.
#[path = "../../axum.rs"]
#[allow(dead_code, reason = "only its tests are used")]
mod axum_example;

mod clients;

#[cfg(unix)]
mod durable_job;

mod index;

#[cfg(unix)]
mod many_servers;

mod servers;

mod support;

#[path = "../../test_your_server.rs"]
#[allow(dead_code, reason = "only its tests are used")]
mod test_your_server;

mod web;
