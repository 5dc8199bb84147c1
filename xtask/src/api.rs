//! `cargo xtask api`: compares the public API with its committed text, or writes that text. The program is in `api/`.

use std::io;
use std::path::Path;

use crate::process;

/// What to do with the committed text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiMode {
    Compare,
    Bless,
}

/// Runs the program in `api/`; returns whether the text matches the code.
pub(crate) fn run(root: &Path, mode: ApiMode) -> io::Result<bool> {
    let mut command = process::cargo(root);
    command.args(["run", "--quiet", "--manifest-path", "api/Cargo.toml"]);
    command
        .arg("--target-dir")
        .arg(process::target_folder(root).join("api"));
    if mode == ApiMode::Bless {
        command.args(["--", "--bless"]);
    }
    process::run(&mut command)
}
