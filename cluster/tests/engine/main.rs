//! What the three engines have in common, on real servers. Run by `cargo xtask cluster`.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed test panics")]

mod tls;
mod tls_server;
