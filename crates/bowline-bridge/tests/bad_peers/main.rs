//! Servers and clients that behave badly, with a bridge between them: what one of them does must not reach the others.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by a panic"
)]

mod after_a_cancel;
mod clients;
mod crashes;
mod questions;
mod scripted;
mod unfinished;
