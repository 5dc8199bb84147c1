//! The command `bowline`.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    bowline_cli::run(std::env::args_os().skip(1))
}
