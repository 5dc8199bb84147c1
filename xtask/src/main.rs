//! `cargo xtask`: see `xtask::run`.

use std::process::ExitCode;

fn main() -> ExitCode {
    xtask::run_as_rustdoc(std::env::args_os().skip(1))
        .unwrap_or_else(|| xtask::run(std::env::args().skip(1)))
}
