//! `cargo xtask mutants`: proof that the tests would notice if a law of the project were broken.
//!
//! Each `mutants/*.patch` breaks one law on purpose and names the tests that must fail because of it.
//! The patch is applied to a scratch copy of the project, the named tests run, and the copy is put right
//! again. A test that still passes guards nothing.

use std::fmt;
use std::io;
use std::path::Path;

mod patch;
pub(crate) use patch::Patch;

mod scratch;
use scratch::{Applied, Scratch};

mod verdict;
use verdict::TestRun;
pub use verdict::Verdict;

use crate::process;
use crate::tree::Tree;

/// Tries every patch, or those whose names contain one of `only`; true if all were caught.
#[must_use]
pub fn run(root: &Path, only: &[String]) -> bool {
    let scratch = process::target_folder(root).join("mutants");
    match try_all(root, &scratch, only) {
        Ok(trials) => report(&trials),
        Err(error) => {
            println!("mutants could not be run: {error}");
            false
        }
    }
}

/// Tries the patches that one of `packages` judges, and looks whether the others still apply; true if all
/// is well. The packages at the bottom are quick to build, those at the top are not.
#[must_use]
pub fn run_judged_by(root: &Path, packages: &[&str]) -> bool {
    let folder = process::target_folder(root).join("mutants");
    match judged_by(root, &folder, packages) {
        Ok(is_well) => is_well,
        Err(error) => {
            println!("mutants could not be run: {error}");
            false
        }
    }
}

fn judged_by(root: &Path, folder: &Path, packages: &[&str]) -> io::Result<bool> {
    let tree = Tree::read(root)?;
    let scratch = Scratch::open(folder)?;
    scratch.sync(&tree)?;
    let mut tried = Vec::new();
    let mut others = 0;
    let mut is_well = true;
    for file in tree.files() {
        let Some(name) = patch::name(&file.path) else {
            continue;
        };
        let parsed = Patch::parse(file.text().unwrap_or_default());
        if judge(&parsed).is_some_and(|judge| packages.contains(&judge)) {
            tried.push(name.to_owned());
            continue;
        }
        others += 1;
        if let Err(complaint) = parsed {
            println!("{name}: {complaint}");
            is_well = false;
        } else if let Applied::No(complaint) =
            scratch.apply(&root.join("mutants").join(format!("{name}.patch")))?
        {
            println!("{name} does not apply: {complaint}");
            is_well = false;
        }
        scratch.sync(&tree)?;
    }
    println!("{others} mutants were only applied; `cargo xtask mutants` tries them all");
    Ok(report(&try_exactly(root, folder, &tried)?) && is_well)
}

fn try_exactly(root: &Path, folder: &Path, names: &[String]) -> io::Result<Vec<Trial>> {
    try_those(root, folder, |name| {
        names.iter().any(|wanted| wanted == name)
    })
}

/// What became of one patch.
#[derive(Debug)]
#[non_exhaustive]
pub struct Trial {
    /// The file name of the patch, without `.patch`.
    pub name: String,
    /// The law that the patch breaks.
    pub law: String,
    /// Whether a test noticed.
    pub verdict: Verdict,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<40} {}\n    {}", self.name, self.verdict, self.law)
    }
}

/// Tries the patches of the project at `root` on a copy that is kept in `folder` between runs.
///
/// # Errors
///
/// If the copy cannot be made or cargo cannot be started. A patch that is wrong is a [`Verdict`].
pub fn try_all(root: &Path, folder: &Path, only: &[String]) -> io::Result<Vec<Trial>> {
    try_those(root, folder, |name| {
        only.is_empty() || only.iter().any(|part| name.contains(part))
    })
}

fn try_those(
    root: &Path,
    folder: &Path,
    is_wanted: impl Fn(&str) -> bool,
) -> io::Result<Vec<Trial>> {
    let tree = Tree::read(root)?;
    let scratch = Scratch::open(folder)?;
    scratch.sync(&tree)?;
    let mut patches: Vec<(&str, Result<Patch, String>)> = tree
        .files()
        .iter()
        .filter_map(|file| Some((patch::name(&file.path)?, file)))
        .filter(|(name, _)| is_wanted(name))
        .map(|(name, file)| (name, Patch::parse(file.text().unwrap_or_default())))
        .collect();
    // To break a package and put it right is to rebuild whatever depends on it, so the mutants that one
    // package's tests judge come one after another.
    patches.sort_by(|(_, one), (_, other)| judge(one).cmp(&judge(other)));

    println!("running the named tests on sound code");
    let named = patches.iter().filter_map(|(_, patch)| patch.as_ref().ok());
    let sound = scratch.test(named.flat_map(|patch| &patch.tests))?;

    let mut trials = Vec::new();
    for (name, patch) in patches {
        println!("trying {name}");
        let (law, verdict) = match patch {
            Ok(patch) => {
                let file = root.join("mutants").join(format!("{name}.patch"));
                let verdict = try_one(&patch, &file, &sound, &scratch)?;
                scratch.sync(&tree)?;
                (patch.law, verdict)
            }
            Err(complaint) => (String::new(), Verdict::BadHeader(complaint)),
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

/// The package whose tests judge the mutant, or the first of them.
fn judge(patch: &Result<Patch, String>) -> Option<&str> {
    let first = patch.as_ref().ok()?.tests.first()?;
    Some(&first.package)
}

fn try_one(
    patch: &Patch,
    file: &Path,
    sound: &[TestRun],
    scratch: &Scratch,
) -> io::Result<Verdict> {
    // A name with a typing error in it would otherwise never fail, or always.
    let sound = sound.iter().filter(|run| patch.tests.contains(&run.test));
    if let Some(verdict) = Verdict::of_sound_run(sound) {
        return Ok(verdict);
    }
    Ok(match scratch.apply(file)? {
        Applied::Yes => Verdict::of_broken_run(&scratch.test(&patch.tests)?),
        Applied::No(complaint) => Verdict::DoesNotApply(complaint),
    })
}

fn report(trials: &[Trial]) -> bool {
    if trials.is_empty() {
        println!("there are no mutants to try");
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
