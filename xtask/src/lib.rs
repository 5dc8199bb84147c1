//! The checks that guard the project, each a command of `cargo xtask`.
//!
//! Standard library only, so that a fresh machine builds this in a moment.

#![allow(
    clippy::print_stdout,
    reason = "a command-line tool reports on stdout; no protocol runs on it here"
)]

mod command_line;
pub use command_line::run;

mod bench;

mod ci;

mod conformance;

mod deny;

pub mod tidy;

pub mod mutants;

mod fuzz;

mod hunt;

mod interop;

mod outside;

mod process;

mod sentences;

mod serving;

mod tree;
