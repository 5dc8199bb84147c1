//! What a server offers besides tools, over a wire in both eras and in process.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what helpers of a test do is part of the test"
)]

mod lists;
mod prompts;
mod resources;
mod running;
mod ways;
