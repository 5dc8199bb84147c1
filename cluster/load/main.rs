//! `cluster-load`: replicas as processes behind a proxy, under load; prints rows of `CLUSTER.md`.
//!
//! ```text
//! cluster-load faults|deploy|cost --replica PROGRAM --engine URL --control ADDRESS --state FOLDER
//! ```
//!
//! `cargo xtask cluster --report` starts the engines and runs it. Rows begin with `|`; everything else is for people.

#![allow(clippy::print_stdout, reason = "a program of tests")]

mod clients;
mod cost;
mod deploy;
mod engine_faults;
mod faults;
mod fleet;
mod model;
mod notices;
mod options;
mod replica_process;
mod tally;
mod task_load;

use std::process::ExitCode;

use options::{Options, Part};

#[tokio::main]
async fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    };
    let outcome = match options.part {
        Part::Faults => faults::run(&options).await,
        Part::Deploy => deploy::run(&options).await,
        Part::Cost => cost::run(&options).await,
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{} failed: {error}", options.engine.name());
            ExitCode::FAILURE
        }
    }
}
