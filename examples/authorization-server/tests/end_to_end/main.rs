//! A client, a guarded server and an authorization server over sockets: everything that happens to a token.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on stops"
)]

mod by_hand;
mod with_the_sdk;
mod world;
