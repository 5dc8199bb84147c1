//! Every scenario, by what it is about.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a scenario says by panicking what it saw"
)]

mod cancelling;
mod lifecycle;
mod progress;
mod protocol;
mod support;
mod tools;

use std::process::ExitCode;

fn main() -> ExitCode {
    let scenarios = [
        lifecycle::scenarios(),
        protocol::scenarios(),
        cancelling::scenarios(),
        progress::scenarios(),
        tools::scenarios(),
    ];
    scenarios::runner::main(&scenarios.concat())
}
