//! `bowline tap` as a process between clients and servers, and the commands that read its recordings. They use a shell
//! and signals.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may panic, too"
)]

mod commands;
mod http;
mod raw_http;
mod stdio;
mod support;
