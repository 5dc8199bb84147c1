//! The harness of the scenarios: what they run in, what runs them, and what keeps count.
//!
//! A scenario is an async function of a [`World`], written once. The [`runner`] takes it through every
//! [`Column`] that it applies to, and then checks that each behaviour in `behaviours.txt` is covered by a
//! scenario, or is listed in `uncovered.txt` with what excuses it.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a scenario says by panicking what it saw"
)]

mod column;
pub use column::{Column, Transport};

mod scenario;
pub use scenario::{Run, Scenario};

mod world;
pub use world::World;

pub mod http;

mod behaviours;

mod table;

pub mod runner;
