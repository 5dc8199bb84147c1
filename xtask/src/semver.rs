//! `cargo xtask semver`: compares the public API with that of the last release, with cargo-semver-checks, which is
//! installed from crates.io at a pinned version, into the target folder.

use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::external_tools;
use crate::process::{self, ExitKind};

/// Compares the libraries with `baseline`, or with the last release; returns whether the versions in the manifests
/// allow the changes.
pub(crate) fn run(root: &Path, baseline: Option<&str>) -> io::Result<bool> {
    let baseline = match baseline {
        Some(revision) => Some(revision.to_owned()),
        None => last_release(root)?,
    };
    let Some(baseline) = baseline else {
        println!("{NO_BASELINE}");
        return Ok(true);
    };
    println!("comparing with {baseline}");
    let program = external_tools::cargo_install(root, "cargo-semver-checks", VERSION)?;
    let mut command = Command::new(program);
    command.current_dir(root);
    command.args(["semver-checks", "--all-features"]);
    command.args(["--baseline-rev", &baseline]);
    command.args(LIBRARIES.iter().flat_map(|name| ["--package", name]));
    process::run(&mut command)
}

/// Returns the last tag of a release among the ancestors of the current revision.
fn last_release(root: &Path) -> io::Result<Option<String>> {
    let mut git = Command::new("git");
    git.current_dir(root);
    git.args(["describe", "--tags", "--abbrev=0", "--match", "v[0-9]*"]);
    let described = process::capture(&mut git, GIT_LIMIT)?;
    let is_found = described.end == ExitKind::Success;
    Ok(is_found.then(|| described.output.trim().to_owned()))
}

/// The libraries that others depend on. cargo-semver-checks does not support procedural macros, and the library of
/// `bowline-cli` is that of its command.
const LIBRARIES: [&str; 10] = [
    "bowline-types",
    "bowline-core",
    "bowline",
    "bowline-auth",
    "bowline-tasks",
    "bowline-postgres",
    "bowline-redis",
    "bowline-nats",
    "bowline-bridge",
    "bowline-recording",
];

const NO_BASELINE: &str = "There is no baseline: no tag `v…` of a release is an ancestor of this revision. \
                           `cargo xtask semver REVISION` compares with any revision.";
const VERSION: &str = "0.51.0";
const GIT_LIMIT: Duration = Duration::from_secs(10);
