//! `cargo xtask mutants`: checks that the tests detect planted bugs.
//!
//! Each `mutants/*.patch` violates one invariant ("law") of the project, and names the tests that must fail because of
//! it. The patch is applied to a scratch copy of the project, the named tests run, and the copy is restored. The
//! command fails if a named test still passes.

use std::fmt;
use std::io;
use std::path::Path;

mod patch;
pub(crate) use patch::Patch;

mod scratch;
use scratch::{Applied, Scratch};

mod sweep;
pub(crate) use sweep::sweep;

mod verdict;
use verdict::TestRun;
pub use verdict::Verdict;

use crate::process;
use crate::tree::Tree;

/// Tries every patch, or those whose names contain one of `only`; returns whether all were caught.
#[must_use]
pub fn run(root: &Path, only: &[String]) -> bool {
    let scratch = process::target_folder(root).join("mutants");
    match try_all(root, &scratch, only) {
        Ok(trials) => report(&trials),
        Err(error) => {
            println!("failed to run the mutants: {error}");
            false
        }
    }
}

/// Tries the patches whose first test is in one of `packages`; returns whether all were caught. Packages with few
/// dependencies rebuild quickly.
#[must_use]
pub fn run_for_packages(root: &Path, packages: &[&str]) -> bool {
    let folder = process::target_folder(root).join("mutants");
    let trials = try_matching(root, &folder, |_, patch| {
        first_package(patch).is_some_and(|package| packages.contains(&package))
    });
    match trials {
        Ok(trials) => report(&trials),
        Err(error) => {
            println!("failed to run the mutants: {error}");
            false
        }
    }
}

/// Checks that every patch has its header and still applies. No test runs.
#[must_use]
pub fn apply_all(root: &Path) -> bool {
    let folder = process::target_folder(root).join("mutants");
    match try_apply_all(root, &folder) {
        Ok(problems) => {
            problems.iter().for_each(|problem| println!("{problem}"));
            problems.is_empty()
        }
        Err(error) => {
            println!("failed to apply the mutants: {error}");
            false
        }
    }
}

fn try_apply_all(root: &Path, folder: &Path) -> io::Result<Vec<String>> {
    let tree = Tree::read(root)?;
    let scratch = Scratch::open(folder)?;
    let mut problems = Vec::new();
    for file in tree.files() {
        let Some(name) = patch::name(&file.path) else {
            continue;
        };
        scratch.sync(&tree)?;
        if let Err(problem) = Patch::parse(file.text().unwrap_or_default()) {
            problems.push(format!("{name}: {problem}"));
        } else if let Applied::No(problem) =
            scratch.apply(&root.join("mutants").join(format!("{name}.patch")))?
        {
            problems.push(format!("{name} does not apply: {problem}"));
        }
    }
    scratch.sync(&tree)?;
    Ok(problems)
}

/// The result of one patch.
#[derive(Debug)]
#[non_exhaustive]
pub struct Trial {
    /// The file name of the patch, without `.patch`.
    pub name: String,
    /// The law (invariant) that the patch violates.
    pub law: String,
    /// Whether the named tests detected it.
    pub verdict: Verdict,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<40} {}\n    {}", self.name, self.verdict, self.law)
    }
}

/// Tries the patches of the project at `root` on a copy in `folder`, which is kept between runs.
///
/// # Errors
///
/// If copying the project or starting cargo fails. An invalid patch is a [`Verdict`], not an error.
pub fn try_all(root: &Path, folder: &Path, only: &[String]) -> io::Result<Vec<Trial>> {
    try_matching(root, folder, |name, _| {
        only.is_empty() || only.iter().any(|part| name.contains(part))
    })
}

fn try_matching(
    root: &Path,
    folder: &Path,
    is_wanted: impl Fn(&str, &Result<Patch, String>) -> bool,
) -> io::Result<Vec<Trial>> {
    let tree = Tree::read(root)?;
    let scratch = Scratch::open(folder)?;
    scratch.sync(&tree)?;
    let mut patches: Vec<(&str, Result<Patch, String>)> = tree
        .files()
        .iter()
        .filter_map(|file| Some((patch::name(&file.path)?, file)))
        .map(|(name, file)| (name, Patch::parse(file.text().unwrap_or_default())))
        .filter(|(name, patch)| is_wanted(name, patch))
        .collect();
    // Each patch of a package and its removal rebuild all dependents, so the mutants of one package are tried one after
    // the other.
    patches.sort_by(|(_, one), (_, other)| first_package(one).cmp(&first_package(other)));

    println!("running the named tests without patches");
    let named = patches.iter().filter_map(|(_, patch)| patch.as_ref().ok());
    let unpatched = scratch.test(named.flat_map(|patch| &patch.tests))?;

    let mut trials = Vec::new();
    for (name, patch) in patches {
        println!("trying {name}");
        let (law, verdict) = match patch {
            Ok(patch) => {
                let file = root.join("mutants").join(format!("{name}.patch"));
                let verdict = try_one(&patch, &file, &unpatched, &scratch)?;
                scratch.sync(&tree)?;
                (patch.law, verdict)
            }
            Err(problem) => (String::new(), Verdict::BadHeader(problem)),
        };
        trials.push(Trial {
            name: name.to_owned(),
            law,
            verdict,
        });
    }
    trials.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(trials)
}

/// Returns the package of the first named test.
fn first_package(patch: &Result<Patch, String>) -> Option<&str> {
    let first = patch.as_ref().ok()?.tests.first()?;
    Some(&first.package)
}

fn try_one(
    patch: &Patch,
    file: &Path,
    unpatched: &[TestRun],
    scratch: &Scratch,
) -> io::Result<Verdict> {
    // Detects misspelled names and broken tests before the patch is applied.
    let unpatched = unpatched
        .iter()
        .filter(|run| patch.tests.contains(&run.test));
    if let Some(verdict) = Verdict::of_unpatched_run(unpatched) {
        return Ok(verdict);
    }
    Ok(match scratch.apply(file)? {
        Applied::Yes => Verdict::of_patched_run(&scratch.test(&patch.tests)?),
        Applied::No(problem) => Verdict::DoesNotApply(problem),
    })
}

fn report(trials: &[Trial]) -> bool {
    if trials.is_empty() {
        println!("no mutants to try");
    }
    println!();
    for trial in trials {
        println!("{trial}");
    }
    let caught = trials.iter().filter(|trial| trial.verdict.is_caught());
    let caught = caught.count();
    println!("\n{caught} of {} mutants caught", trials.len());
    caught == trials.len()
}
