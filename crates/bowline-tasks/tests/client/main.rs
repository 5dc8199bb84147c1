//! The client side of tasks against scripted servers, on a paused clock.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "clippy exempts only `#[test]` functions, not their helpers"
)]

mod dropping;
mod fixture;
mod handles;
mod hostile;
mod listening;
mod over_http;
mod polling;
mod questions;
mod reconnecting;
