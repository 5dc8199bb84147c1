//! The cancellation matrix: each way to abandon a call, over each transport, in each protocol version.
//!
//! Each cell runs in a separate process, so that every resource the process holds at the end was leaked by that cell.
//! This program therefore has three modes: the runner, a cell, and the server that a cell starts.
//!
//! ```text
//! cargo test -p scenarios --test matrix                       # all
//! cargo test -p scenarios --test matrix -- stdio              # tests whose line contains the word
//! cargo test -p scenarios --test matrix -- abandoned --calls 20000
//! BLESS=1 cargo test -p scenarios --test matrix               # all; rewrites CANCELLATION.md
//! ```
#![cfg_attr(not(unix), allow(unused, reason = "the matrix runs on Unix only"))]
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a cell reports its failure by panicking, and the runner prints"
)]

mod abandonment;
mod bridged;
mod cell_env;
mod column;
mod expected_frames;
#[path = "../../../crates/bowline/tests/cancellation/handler_monitor.rs"]
mod handler_monitor;
mod immediate;
mod observer;
mod sentences;
mod soak;
mod table;
#[cfg(unix)]
mod tasks;
mod test;
mod tools;

#[cfg(unix)]
mod runner;
#[cfg(unix)]
mod server_end;

use std::process::ExitCode;

#[cfg(unix)]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["--serve", column, extensions @ ..] => match column::Column::find(column) {
            Some(column) => {
                let extensions = tools::Extensions::from_arguments(extensions);
                runner::block_on(1, server_end::serve(column, extensions));
            }
            None => return ExitCode::from(2),
        },
        ["--serve-behind-bridge"] => runner::block_on(1, bridged::serve()),
        ["--run", name, "--calls", calls] => {
            let tests = calls.parse().map(test::Test::all).unwrap_or_default();
            match tests.into_iter().find(|test| test.to_string() == *name) {
                Some(test) => runner::block_on(test.threads(), test.run()),
                None => return ExitCode::from(2),
            }
        }
        _ => return runner::main(arguments),
    }
    ExitCode::SUCCESS
}

#[cfg(not(unix))]
fn main() -> ExitCode {
    ExitCode::SUCCESS
}
