//! The command `bowline`: a fixture to check clients with, and a demonstration of cancellation.

#![allow(
    clippy::print_stdout,
    reason = "this is a command-line program; `wire::stdio` redirects stdout before using it"
)]

pub mod clock;

mod counters;
pub use counters::{Counters, SlowCallCounts};

mod demo;

pub mod fixture;

mod options;

mod serve;

use std::process::ExitCode;

use options::{CliCommand, HELP};

/// Runs the command with these arguments, without the program name.
///
/// The exit code is 0 on success, 1 on failure, and 2 for invalid arguments.
#[must_use]
pub fn run(arguments: impl IntoIterator<Item = String>) -> ExitCode {
    let command = match CliCommand::parse(arguments) {
        Ok(command) => command,
        Err(why) => {
            eprintln!("bowline: {why}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error),
    };
    match command {
        CliCommand::Help => {
            println!("{HELP}");
            ExitCode::SUCCESS
        }
        CliCommand::Demo(format) => match runtime.block_on(demo::run(format)) {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        },
        CliCommand::ServeDemo(transport) => match runtime.block_on(serve::serve(transport)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&error),
        },
    }
}

fn failed(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("bowline: {error}");
    ExitCode::FAILURE
}
