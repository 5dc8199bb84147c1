//! Several servers behind one bridge, of both eras, for clients of both eras.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failed test panics"
)]

mod access;
mod examples;
mod lists;
mod pins;
mod questions;
mod reload;
mod resources;
mod subscriptions;
mod tasks;
mod unreachable;
mod world;
