//! `cargo xtask package`: packages the published crates as `cargo publish` does, without a network.

use std::io;
use std::path::Path;

use crate::process;

/// The published crates, each after those that it depends on, which is the order of their publication.
pub(crate) const PUBLISHED: [&str; 12] = [
    "bowline-types",
    "bowline-core",
    "bowline-macros",
    "bowline",
    "bowline-auth",
    "bowline-tasks",
    "bowline-postgres",
    "bowline-redis",
    "bowline-nats",
    "bowline-bridge",
    "bowline-recording",
    "bowline-cli",
];

/// Whether the content of the packages is built too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PackageMode {
    /// Checks manifests and writes the packages; takes a second.
    Pack,
    /// Also builds each package from its own files, which takes minutes.
    Build,
}

/// Packages every published crate; returns whether that succeeded.
pub(crate) fn run(root: &Path, mode: PackageMode) -> io::Result<bool> {
    let mut command = process::cargo(root);
    // Uncommitted changes are packaged, since this is a check; all dependencies are there after a normal build.
    command.args(["package", "--allow-dirty", "--offline"]);
    command.args(PUBLISHED.iter().flat_map(|name| ["--package", name]));
    match mode {
        PackageMode::Pack => command.arg("--no-verify"),
        // One folder for all, or each package would build the dependencies again.
        PackageMode::Build => command.env(
            "CARGO_TARGET_DIR",
            process::target_folder(root).join("packages"),
        ),
    };
    process::run(&mut command)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::*;

    #[test]
    fn every_crate_is_published() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
        let folders = fs::read_dir(crates).unwrap();

        let names = folders.map(|folder| folder.unwrap().file_name().into_string().unwrap());

        let names: BTreeSet<String> = names.collect();
        assert_eq!(names, PUBLISHED.map(String::from).into());
    }
}
