//! The test harness of the scenarios: their environment, their runner, and the coverage check.
//!
//! A scenario is an async function of a [`ScenarioEnv`], written once. The [`runner`] runs it in every [`Column`] to
//! which it applies, and then checks that each behaviour in `behaviours.txt` is covered by a scenario, or is listed in
//! `uncovered.txt` with the reason.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a scenario reports its failure by panicking"
)]

mod column;
pub use column::{Column, Transport};

mod replicas;
pub use replicas::Replicas;

mod scenario;
pub use scenario::{Run, Scenario};

mod scenario_env;
pub use scenario_env::ScenarioEnv;

pub mod http;

mod behaviours;

pub mod libtest;

mod table;

pub mod runner;
