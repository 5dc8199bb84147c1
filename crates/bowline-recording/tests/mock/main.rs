//! Recordings of each era, served to clients of each era, and replayed against servers.

#![allow(
    clippy::needless_pass_by_value,
    clippy::panic,
    clippy::unwrap_used,
    reason = "clippy exempts only `#[test]` functions, not their helpers, which are given values made in the call"
)]

mod calls;
mod damaged;
mod faults;
mod http;
mod lists;
mod questions;
mod recorded;
mod replay;
mod subscriptions;
mod tasks;
