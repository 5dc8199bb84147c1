//! What the output of the named tests says about a mutant.

use std::fmt;
use std::rc::Rc;

use super::patch::NamedTest;
use crate::process::{End, Finished};

/// What became of a mutant.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Verdict {
    /// Every named test failed, as it should.
    Caught,
    /// These tests pass although the law is broken.
    Survived(Vec<String>),
    /// The patch breaks the build, so that no test had a say.
    DoesNotCompile(String),
    /// The code that the patch changes is not there any more.
    DoesNotApply(String),
    /// A named test is not there, or does not pass on sound code.
    NotSound(String),
    /// A named test neither passed nor failed before its deadline.
    Hung(String),
    /// The comment lines at the top of the patch are wrong.
    BadHeader(String),
}

impl Verdict {
    /// Whether the tests did notice.
    #[must_use]
    pub fn is_caught(&self) -> bool {
        *self == Self::Caught
    }

    /// What is wrong with the named tests before anything is broken; nothing, usually.
    pub(super) fn of_sound_run<'a>(runs: impl IntoIterator<Item = &'a TestRun>) -> Option<Self> {
        runs.into_iter().find_map(|run| {
            let complaint = match run.answer() {
                Answer::Passed => return None,
                Answer::Failed => "fails",
                Answer::Absent => "does not exist",
                Answer::NotBuilt => "does not compile",
                Answer::Hung => "hangs",
            };
            let path = &run.test.path;
            Some(Self::NotSound(format!(
                "`{path}` {complaint} before anything is broken"
            )))
        })
    }

    /// Whether every named test noticed that a law is broken.
    pub(super) fn of_broken_run(runs: &[TestRun]) -> Self {
        let mut survivors = Vec::new();
        for run in runs {
            match run.answer() {
                Answer::Failed => {}
                Answer::Passed => survivors.push(run.test.path.clone()),
                Answer::NotBuilt => return Self::DoesNotCompile(run.first_error()),
                Answer::Absent => return Self::NotSound(format!("`{}` is gone", run.test.path)),
                Answer::Hung => return Self::Hung(run.test.path.clone()),
            }
        }
        if survivors.is_empty() {
            Self::Caught
        } else {
            Self::Survived(survivors)
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caught => f.write_str("caught"),
            Self::Survived(tests) => write!(f, "SURVIVED: still passing: {}", tests.join(", ")),
            Self::DoesNotCompile(error) => write!(f, "DOES NOT COMPILE: {error}"),
            Self::DoesNotApply(error) => write!(f, "DOES NOT APPLY: {error}"),
            Self::NotSound(complaint) => write!(f, "NOT SOUND: {complaint}"),
            Self::Hung(test) => write!(f, "HUNG: `{test}` should fail, not wait"),
            Self::BadHeader(complaint) => write!(f, "BAD HEADER: {complaint}"),
        }
    }
}

/// One named test and the output it is judged by.
#[derive(Debug)]
pub(super) struct TestRun {
    pub(super) test: NamedTest,
    /// Shared with the other tests of the same program.
    pub(super) output: Rc<Output>,
}

/// What became of a program of tests.
#[derive(Debug)]
pub(super) enum Output {
    NotBuilt(String),
    Ran(Finished),
}

#[derive(Debug, PartialEq)]
enum Answer {
    Passed,
    Failed,
    Absent,
    NotBuilt,
    Hung,
}

impl TestRun {
    /// Judged by the line that libtest prints for the test: a run may fail for other reasons.
    fn answer(&self) -> Answer {
        let Output::Ran(ran) = &*self.output else {
            return Answer::NotBuilt;
        };
        if ran.end == End::Hung {
            return Answer::Hung;
        }
        let end = ran.output.lines().find_map(|line| {
            let rest = line.strip_prefix("test ")?.strip_prefix(&self.test.path)?;
            let rest = rest.strip_prefix(" - should panic").unwrap_or(rest);
            rest.strip_prefix(" ... ")
        });
        match end {
            Some(end) if end.starts_with("ok") => Answer::Passed,
            Some(end) if end.ends_with("FAILED") => Answer::Failed,
            _ => Answer::Absent,
        }
    }

    fn first_error(&self) -> String {
        let Output::NotBuilt(output) = &*self.output else {
            return String::new();
        };
        output
            .lines()
            .find(|line| line.starts_with("error"))
            .unwrap_or("cargo failed without an error message")
            .to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::super::patch::Target;
    use super::*;

    fn run(output: &str) -> TestRun {
        test_run(ran(End::Failure, output))
    }

    fn ran(end: End, output: &str) -> Output {
        Output::Ran(Finished {
            end,
            output: output.to_owned(),
        })
    }

    fn test_run(output: Output) -> TestRun {
        TestRun {
            test: NamedTest {
                package: "bowline-types".to_owned(),
                target: Target::Lib,
                path: "id::tests::whole".to_owned(),
            },
            output: Rc::new(output),
        }
    }

    const FAILED: &str = "running 1 test\ntest id::tests::whole ... FAILED\n";
    const PASSED: &str = "running 1 test\ntest id::tests::whole ... ok\n";
    const ABSENT: &str = "running 0 tests\n";

    #[test]
    fn a_mutant_is_caught_when_every_named_test_fails() {
        assert!(Verdict::of_broken_run(&[run(FAILED), run(FAILED)]).is_caught());
    }

    #[test]
    fn a_mutant_survives_when_one_named_test_still_passes() {
        let verdict = Verdict::of_broken_run(&[run(FAILED), run(PASSED)]);

        assert_eq!(
            verdict,
            Verdict::Survived(vec!["id::tests::whole".to_owned()])
        );
    }

    #[test]
    fn a_build_error_is_not_a_caught_mutant() {
        let errors = "warning: x\nerror[E0308]: mismatched types\n".to_owned();
        let broken = test_run(Output::NotBuilt(errors));

        let verdict = Verdict::of_broken_run(&[broken]);

        let first = "error[E0308]: mismatched types".to_owned();
        assert_eq!(verdict, Verdict::DoesNotCompile(first));
    }

    #[test]
    fn the_failure_of_another_test_is_not_a_caught_mutant() {
        let verdict = Verdict::of_broken_run(&[run("test id::tests::wholesome ... FAILED\n")]);

        assert!(matches!(verdict, Verdict::NotSound(_)), "{verdict}");
    }

    #[test]
    fn a_test_that_waits_for_ever_is_not_a_caught_mutant() {
        let hung = test_run(ran(End::Hung, "running 1 test\n"));

        assert!(matches!(Verdict::of_broken_run(&[hung]), Verdict::Hung(_)));
    }

    #[test]
    fn a_named_test_must_exist_and_pass_before_anything_is_broken() {
        assert_eq!(Verdict::of_sound_run(&[run(PASSED)]), None);
        for output in [FAILED, ABSENT] {
            let verdict = Verdict::of_sound_run(&[run(output)]);
            assert!(matches!(verdict, Some(Verdict::NotSound(_))), "{output}");
        }
    }

    #[test]
    fn a_test_that_should_panic_is_recognised() {
        let output = "test id::tests::whole - should panic ... FAILED\n";

        assert!(Verdict::of_broken_run(&[run(output)]).is_caught());
    }
}
