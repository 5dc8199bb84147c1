//! The server API besides tools, over a wire in both eras and in process.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may panic"
)]

mod clones;
mod connection_state;
mod discarded_answers;
mod drain;
mod legacy_extension;
mod legacy_subscriptions;
mod lists;
mod per_caller;
mod prompts;
mod raw_responder;
mod resources;
mod runtime_changes;
mod shared_process;
mod subscription_hooks;
mod support;
