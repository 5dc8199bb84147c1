//! The checks of the project, each a command of `cargo xtask`.
//!
//! Standard library only, so that it builds quickly on a fresh machine.

#![allow(
    clippy::print_stdout,
    reason = "a command-line tool prints to stdout; no protocol runs over it here"
)]

mod command_line;
pub use command_line::run;

mod api;

mod bench;

mod ci;

mod cluster;

mod conformance;

mod crash;

mod deny;

mod docs;

mod docs_rs;
pub use docs_rs::run_as_rustdoc;

pub mod tidy;

pub mod mutants;

mod fuzz;

mod hunt;

mod interop;

mod external_tools;

mod markdown;

mod msrv;

mod otel;

mod package;

mod pictures;

mod symbols;

mod process;

mod semver;

mod sentences;

mod server_process;

mod tree;

mod typos;

mod unsteady;
