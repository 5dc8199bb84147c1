//! The command `bowline`.

use std::process::ExitCode;

fn main() -> ExitCode {
    bowline_cli::run(std::env::args_os().skip(1))
}
