//! `cargo xtask typos`: checks spelling with typos and `_typos.toml`. The tool is installed from PyPI at a pinned
//! version.

use std::io;
use std::path::Path;
use std::process::Command;

use crate::{external_tools, process};

/// Checks every file of the project; returns whether no word is misspelled.
pub(crate) fn run(root: &Path) -> io::Result<bool> {
    let folder = process::target_folder(root).join("typos");
    external_tools::python(&folder, &[TYPOS])?;
    let mut typos = Command::new(folder.join("bin/typos"));
    process::run(typos.current_dir(root).args(["--format", "brief"]))
}

const TYPOS: &str = "typos==1.51.1";
