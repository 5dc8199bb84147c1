//! The command `bowline`: a bridge between clients and servers, a fixture to check clients with, and a demonstration of
//! cancellation.

#![allow(
    clippy::print_stdout,
    reason = "this is a command-line program; `wire::stdio` redirects stdout before using it"
)]

mod bridge;

pub mod clock;

mod counters;
pub use counters::{Counters, SlowCallCounts};

mod demo;

pub mod fixture;

mod options;

mod serve;

use std::ffi::OsString;
use std::process::ExitCode;

use options::CliCommand;

/// Runs the command with these arguments, without the program name.
///
/// The exit code is 0 on success, 1 on failure, and 2 for invalid arguments.
#[must_use]
pub fn run(arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
    let command = match CliCommand::parse(arguments) {
        Ok(command) => command,
        Err(why) => {
            // Fails if the reader is gone, to whom there is nothing more to say.
            let _ = why.print();
            return ExitCode::from(u8::try_from(why.exit_code()).unwrap_or(2));
        }
    };
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error),
    };
    match command {
        CliCommand::Help => {
            println!("{}", CliCommand::help());
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
        CliCommand::Bridge(plan) => match runtime.block_on(bridge::run(*plan)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&*error),
        },
    }
}

/// Prints an error with its causes.
fn failed(error: &dyn std::error::Error) -> ExitCode {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    eprintln!("bowline: {text}");
    ExitCode::FAILURE
}
