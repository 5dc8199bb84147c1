//! What the command `bowline` is made of: a fixture to check clients with, and a demonstration of what
//! becomes of calls that are let go of.

#![allow(
    clippy::print_stdout,
    reason = "this crate is a program that talks to people; on stdio its wire is moved away first"
)]

pub mod clock;

mod counters;
pub use counters::{Counters, Tally};

mod demo;

pub mod fixture;

mod heard;

mod options;

mod serve;

use std::process::ExitCode;

use options::{Command, HELP};

/// Runs the command with these arguments, without the program's own name.
///
/// The exit code is 0 if all is well, 1 if it is not, and 2 if the arguments make no sense.
#[must_use]
pub fn run(arguments: impl IntoIterator<Item = String>) -> ExitCode {
    let command = match Command::parse(arguments) {
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
        Command::Help => {
            println!("{HELP}");
            ExitCode::SUCCESS
        }
        Command::Demo(show) => match runtime.block_on(demo::run(show)) {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        },
        Command::ServeDemo(how) => match runtime.block_on(serve::serve(how)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&error),
        },
    }
}

fn failed(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("bowline: {error}");
    ExitCode::FAILURE
}
