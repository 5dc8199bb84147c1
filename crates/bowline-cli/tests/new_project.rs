//! `bowline new` writes a project that compiles, and whose test passes.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic, too")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const BOWLINE: &str = env!("CARGO_BIN_EXE_bowline");

/// A folder for projects, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("new-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn bowline(&self, words: &[&str]) -> Output {
        let mut command = Command::new(BOWLINE);
        command.args(words).current_dir(&self.0).output().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

#[test]
fn a_new_project_compiles_and_its_test_passes() {
    let folder = Folder::new("compiles");
    let checkout = checkout();

    let checkout_text = checkout.to_str().unwrap();
    let created = folder.bowline(&["new", "weather", "--json", "--path", checkout_text]);
    assert!(created.status.success(), "{created:?}");
    let report: serde_json::Value = serde_json::from_slice(&created.stdout).unwrap();
    assert_eq!(report["name"], "weather");
    let project = folder.0.join("weather");
    // The versions that are tested, which need no network.
    fs::copy(checkout.join("Cargo.lock"), project.join("Cargo.lock")).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--offline", "--quiet"]);
    // The profile and the target folder of the workspace: most dependencies are built there already.
    for setting in PROFILE {
        cargo.args(["--config", setting]);
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    // With the variables of the package that is tested, `ring` and what depends on it would be built again, here and at the
    // next build of the workspace.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let is_package = text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_");
        if is_package || text == "OUT_DIR" {
            cargo.env_remove(name);
        }
    }
    cargo.current_dir(&project).env("CARGO_TARGET_DIR", target);
    let tested = cargo.output().unwrap();

    let stdout = String::from_utf8_lossy(&tested.stdout);
    let stderr = String::from_utf8_lossy(&tested.stderr);
    assert!(tested.status.success(), "{stdout}{stderr}");
    assert!(stdout.contains("1 passed"), "{stdout}{stderr}");
    assert!(!stderr.contains("warning"), "{stderr}");
}

#[test]
fn nothing_is_overwritten_and_names_are_checked() {
    let folder = Folder::new("refuses");
    fs::create_dir(folder.0.join("taken")).unwrap();

    let checkout = checkout();
    let checkout = checkout.to_str().unwrap();

    let taken = folder.bowline(&["new", "taken", "--path", checkout]);
    let invalid = folder.bowline(&["new", "../evil", "--path", checkout]);
    let elsewhere = folder.bowline(&["new", "weather", "--path", "."]);

    assert_eq!(taken.status.code(), Some(1), "{taken:?}");
    assert!(
        String::from_utf8_lossy(&taken.stderr).contains("exists already"),
        "{taken:?}"
    );
    assert_eq!(invalid.status.code(), Some(2), "{invalid:?}");
    assert_eq!(elsewhere.status.code(), Some(2), "{elsewhere:?}");
    let left: Vec<_> = fs::read_dir(&folder.0)
        .unwrap()
        .flatten()
        .map(|it| it.file_name())
        .collect();
    assert_eq!(left, ["taken"]);
}

#[test]
fn a_project_needs_a_checkout_until_the_sdk_is_published() {
    let folder = Folder::new("unpublished");

    let refused = folder.bowline(&["new", "weather"]);

    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert!(stderr.contains("--path <SDK_CHECKOUT>"), "{stderr}");
    assert!(!folder.0.join("weather").exists());
}

/// As in the manifest of the workspace.
const PROFILE: [&str; 6] = [
    "profile.dev.debug=\"line-tables-only\"",
    "profile.dev.package.\"*\".debug=false",
    "profile.dev.package.memchr.opt-level=1",
    "profile.dev.package.serde_json.opt-level=1",
    "profile.dev.package.bowline-core.opt-level=1",
    "profile.dev.package.bowline-types.opt-level=1",
];
