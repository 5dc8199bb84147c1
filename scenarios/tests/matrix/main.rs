//! The cancellation matrix: each way of letting go, over each transport, in each protocol version.
//!
//! A cell runs alone in a process of its own, so that whatever the process holds at the end is what the cell
//! left behind. This program is therefore three: the runner, a cell, and the server that a cell starts.
//!
//! ```text
//! cargo test -p scenarios --test matrix                       # all
//! cargo test -p scenarios --test matrix -- stdio              # those whose line contains a word
//! cargo test -p scenarios --test matrix -- abandoned --calls 20000
//! BLESS=1 cargo test -p scenarios --test matrix               # all, and write CANCELLATION.md
//! ```
#![cfg_attr(not(unix), allow(unused, reason = "the other processes are Unix"))]
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a cell says by panicking what it saw, and the runner prints"
)]

mod column;
mod frames;
mod holdings;
mod immediate;
mod seen;
mod sentences;
mod soak;
mod table;
mod tap;
mod test;
mod tools;
mod ways;
mod world;

#[cfg(unix)]
mod far_end;
#[cfg(unix)]
mod runner;

use std::process::ExitCode;

#[cfg(unix)]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["--serve", column] => match column::Column::find(column) {
            Some(column) => runner::block_on(1, far_end::serve(column)),
            None => return ExitCode::from(2),
        },
        ["--run", test] => match test::Test::find(test) {
            Some(test) => runner::block_on(test.threads(), test.run()),
            None => return ExitCode::from(2),
        },
        _ => return runner::main(arguments),
    }
    ExitCode::SUCCESS
}

#[cfg(not(unix))]
fn main() -> ExitCode {
    ExitCode::SUCCESS
}
