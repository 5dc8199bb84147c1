//! Credentials: what of a client's token reaches a server behind the bridge, and whose.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::needless_pass_by_value,
    reason = "helpers of tests may panic, and take what `json!` returns"
)]

mod exchange;
mod front;
mod oauth;
mod pass_through;
mod world;
