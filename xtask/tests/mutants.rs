//! `cargo xtask mutants` on a generated project: each verdict, with real cargo and git.

use std::fs;
use std::path::{Path, PathBuf};

use xtask::mutants::{Trial, Verdict, try_all};

#[test]
fn a_mutant_is_caught_only_by_the_failure_of_the_test_it_names() {
    let project = Project::create();
    let odd = &LIB.replace("== 0", "== 1");
    project.patch("caught", "whole", LIB, odd);
    project.patch(
        "survived",
        "whole",
        LIB,
        &LIB.replace("\"even\"", "\"odd\""),
    );
    project.patch("no-build", "whole", LIB, &LIB.replace("== 0", ""));
    project.patch("no-fit", "whole", odd, LIB);
    project.patch("no-test", "hole", LIB, odd);

    let trials = try_all(&project.root, &project.scratch, &[]).unwrap();

    assert_eq!(verdict(&trials, "caught"), &Verdict::Caught);
    let survivor = vec!["tests::whole".to_owned()];
    assert_eq!(verdict(&trials, "survived"), &Verdict::Survived(survivor));
    assert!(matches!(
        verdict(&trials, "no-build"),
        Verdict::DoesNotCompile(_)
    ));
    assert!(matches!(
        verdict(&trials, "no-fit"),
        Verdict::DoesNotApply(_)
    ));
    assert!(matches!(
        verdict(&trials, "no-test"),
        Verdict::InvalidTest(_)
    ));
    assert_eq!(
        fs::read_to_string(project.root.join("src/lib.rs")).unwrap(),
        LIB
    );
}

fn verdict<'a>(trials: &'a [Trial], name: &str) -> &'a Verdict {
    let trial = trials.iter().find(|trial| trial.name == name);
    &trial.expect("every patch is tried").verdict
}

/// A package with one function and one test.
struct Project {
    root: PathBuf,
    scratch: PathBuf,
}

impl Project {
    fn create() -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutants");
        let project = Self {
            root: folder.join("project"),
            scratch: folder.join("scratch"),
        };
        // Files of an earlier run must not affect this one.
        let _ = fs::remove_dir_all(&folder);
        project.write("Cargo.toml", MANIFEST);
        project.write("src/lib.rs", LIB);
        project
    }

    /// A patch that names `test` and replaces the whole library.
    fn patch(&self, name: &str, test: &str, before: &str, after: &str) {
        let count = LIB.lines().count();
        let mut text = format!(
            "# law: evenness\n# test: tiny lib tests::{test}\n\
             diff --git a/src/lib.rs b/src/lib.rs\n--- a/src/lib.rs\n+++ b/src/lib.rs\n\
             @@ -1,{count} +1,{count} @@\n"
        );
        for (sign, side) in [('-', before), ('+', after)] {
            text.extend(side.lines().map(|line| format!("{sign}{line}\n")));
        }
        self.write(&format!("mutants/{name}.patch"), &text);
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        let folder = path.parent().expect("every file is in a folder");
        fs::create_dir_all(folder).expect("the test folder is writable");
        fs::write(path, text).expect("the test folder is writable");
    }
}

const MANIFEST: &str = "[package]\nname = \"tiny\"\nedition = \"2024\"\n[workspace]\n";

const LIB: &str = "\
pub const NAME: &str = \"even\";
pub fn is_even(n: u32) -> bool { n % 2 == 0 }
#[cfg(test)]
mod tests {
    #[test]
    fn whole() { assert!(super::is_even(2)); }
}
";
