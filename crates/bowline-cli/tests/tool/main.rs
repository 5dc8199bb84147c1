//! The commands of `bowline` that look at servers and call them, as processes, in both eras.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may panic, too"
)]

mod interrupt;
mod interrupted_requests;
mod look;
mod mistakes;
mod own_server;
mod plain_http;
mod sign_in;
mod support;
mod terminal;
