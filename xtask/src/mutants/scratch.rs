//! `Scratch`: the copy of the project that the patches are applied to.
//!
//! It is kept between runs, with its own target folder, and only files that differ are written, so that a trial costs
//! one incremental build.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use super::patch::{NamedTest, Target};
use super::verdict::{ProgramOutput, TestRun};
use crate::process::{self, ExitKind};
use crate::tree::Tree;

/// A copy of the project in `scratch` and its build output in `target`, side by side.
#[derive(Debug)]
pub(super) struct Scratch {
    copy: PathBuf,
    target: PathBuf,
}

/// Whether a patch could be applied.
#[derive(Debug)]
pub(super) enum Applied {
    Yes,
    No(String),
}

impl Scratch {
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        let copy = folder.join("scratch");
        fs::create_dir_all(&copy)?;
        Ok(Self {
            copy: copy.canonicalize()?,
            target: folder.canonicalize()?.join("target"),
        })
    }

    /// Makes the copy equal to `tree`. Unchanged files keep their modification time, so that cargo does not rebuild
    /// them.
    pub(super) fn sync(&self, tree: &Tree) -> io::Result<()> {
        let wanted: BTreeSet<&str> = tree.files().iter().map(|file| file.path.as_str()).collect();
        for stale in Tree::read(&self.copy)?.files() {
            if !wanted.contains(stale.path.as_str()) {
                fs::remove_file(self.copy.join(&stale.path))?;
            }
        }
        for file in tree.files() {
            let path = self.copy.join(&file.path);
            if fs::read(&path).is_ok_and(|current| current == file.bytes) {
                continue;
            }
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::write(&path, &file.bytes)?;
        }
        Ok(())
    }

    pub(super) fn apply(&self, patch: &Path) -> io::Result<Applied> {
        let mut git = Command::new("git");
        git.current_dir(&self.copy).arg("apply").arg(patch);
        // The copy is usually inside the repository of the project, where `git apply` silently skips every file outside
        // of the current folder. Without a repository it works as a plain patch tool.
        if let Some(above) = self.copy.parent() {
            git.env("GIT_CEILING_DIRECTORIES", above);
        }
        for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
            git.env_remove(variable);
        }
        let captured = process::capture(&mut git, RUN_LIMIT)?;
        Ok(match captured.end {
            ExitKind::Success => Applied::Yes,
            ExitKind::Failure | ExitKind::TimedOut => {
                Applied::No(captured.output.trim().to_owned())
            }
        })
    }

    /// Builds and runs only `tests`, those of one test program together.
    pub(super) fn test<'a>(
        &self,
        tests: impl IntoIterator<Item = &'a NamedTest>,
    ) -> io::Result<Vec<TestRun>> {
        let mut programs: BTreeMap<(&str, &Target), BTreeSet<&str>> = BTreeMap::new();
        for test in tests {
            let program = programs.entry((&test.package, &test.target));
            program.or_default().insert(&test.path);
        }
        let mut runs = Vec::new();
        for ((package, target), paths) in programs {
            let output = Rc::new(self.test_program(package, target, &paths)?);
            runs.extend(paths.into_iter().map(|path| TestRun {
                test: NamedTest {
                    package: package.to_owned(),
                    target: target.clone(),
                    path: path.to_owned(),
                },
                output: Rc::clone(&output),
            }));
        }
        Ok(runs)
    }

    fn test_program(
        &self,
        package: &str,
        target: &Target,
        paths: &BTreeSet<&str>,
    ) -> io::Result<ProgramOutput> {
        let built = process::capture(
            self.cargo_test(package, target).arg("--no-run"),
            BUILD_LIMIT,
        )?;
        if built.end != ExitKind::Success {
            return Ok(ProgramOutput::NotBuilt(built.output));
        }
        let mut command = self.cargo_test(package, target);
        command.args(["--", "--exact"]).args(paths);
        Ok(ProgramOutput::Ran(process::capture(
            &mut command,
            RUN_LIMIT,
        )?))
    }

    fn cargo_test(&self, package: &str, target: &Target) -> Command {
        let mut cargo = process::cargo(&self.copy);
        // Each mutant is built once and its tests are short, so optimization would cost more than it saves.
        for package in ["bowline-core", "bowline-types"] {
            cargo.arg("--config");
            cargo.arg(format!("profile.dev.package.{package}.opt-level=0"));
        }
        // All features, as in `ci`, so that tests behind a feature are found.
        cargo.args(["test", "--package", package, "--all-features"]);
        match target {
            Target::Lib => cargo.arg("--lib"),
            Target::Test(name) => cargo.args(["--test", name]),
        };
        self.prepare(&mut cargo);
        cargo.env("CARGO_TERM_COLOR", "never");
        cargo
    }

    /// Makes cargo, or a program that runs cargo, build the copy.
    pub(super) fn prepare(&self, command: &mut Command) {
        command.current_dir(&self.copy);
        command.env("CARGO_TARGET_DIR", &self.target);
        // Debug information takes a large part of the build time.
        command.env("CARGO_PROFILE_DEV_DEBUG", "0");
    }
}

/// The timeout of a cold build.
const BUILD_LIMIT: Duration = Duration::from_secs(900);

/// The timeout of the named tests of one program; a mutant may make one block forever.
const RUN_LIMIT: Duration = Duration::from_secs(300);
