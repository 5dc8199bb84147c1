//! Letting go of a call stops the work at the other end, and disturbs nothing else.
//!
//! Every sentence of the contract that needs no HTTP is a scenario here, written once and run over every
//! transport and era that it applies to: in process, and over a wire in memory whose frames are compared
//! to the last one. Time is tokio's paused clock, so nothing depends on how fast the machine is.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that meets the unexpected has failed"
)]

#[macro_use]
mod world;

mod script;
mod tap;
mod tools;

mod every_request_ends;
mod ids;
mod receiving_end;
mod subscriptions;
mod ways_of_letting_go;
mod when_a_call_is_abandoned;
mod who_may_be_cancelled;
