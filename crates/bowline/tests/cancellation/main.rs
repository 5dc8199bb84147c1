//! Abandoning a call cancels its request, drops its handler and affects nothing else.
//!
//! Each sentence of `scenarios/sentences.txt` that does not need HTTP is a scenario here. It runs in process and over
//! an in-memory wire, in every protocol version that it applies to, and compares all frames on the wire. The clock is
//! tokio's paused clock, so no test depends on the speed of the machine.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "an unexpected value fails the test"
)]

#[macro_use]
mod test_pair;

mod handler_monitor;
mod handler_waits;
mod scripted_peers;

mod abandoned_calls;
mod cancellable_requests;
mod every_request_ends;
mod ids;
mod receiving_end;
mod subscriptions;
mod ways_to_abandon;
