//! `Verdict`: derived from the output of the named tests of a mutant.

use std::fmt;
use std::rc::Rc;

use super::patch::NamedTest;
use crate::process::{ExitKind, ProcessOutput};

/// The result of a mutant.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Verdict {
    /// Every named test failed, as expected.
    Caught,
    /// These tests pass despite the patch.
    Survived(Vec<String>),
    /// The patch breaks the build, so no test ran.
    DoesNotCompile(String),
    /// The code that the patch changes no longer exists.
    DoesNotApply(String),
    /// A named test does not exist, or fails without the patch.
    InvalidTest(String),
    /// A named test neither passed nor failed before its deadline.
    TimedOut(String),
    /// The comment lines at the top of the patch are invalid.
    BadHeader(String),
}

impl Verdict {
    /// Returns whether the named tests detected the mutant.
    #[must_use]
    pub fn is_caught(&self) -> bool {
        *self == Self::Caught
    }

    /// Returns an error if a named test does not pass without the patch.
    pub(super) fn of_unpatched_run<'a>(
        runs: impl IntoIterator<Item = &'a TestRun>,
    ) -> Option<Self> {
        runs.into_iter().find_map(|run| {
            let problem = match run.status() {
                TestStatus::Passed => return None,
                TestStatus::Failed => "fails",
                TestStatus::Absent => "does not exist",
                TestStatus::NotBuilt => "does not compile",
                TestStatus::TimedOut => "times out",
            };
            let path = &run.test.path;
            Some(Self::InvalidTest(format!(
                "`{path}` {problem} without the patch"
            )))
        })
    }

    /// Returns the verdict of a run with the patch.
    pub(super) fn of_patched_run(runs: &[TestRun]) -> Self {
        let mut survivors = Vec::new();
        for run in runs {
            match run.status() {
                TestStatus::Failed => {}
                TestStatus::Passed => survivors.push(run.test.path.clone()),
                TestStatus::NotBuilt => return Self::DoesNotCompile(run.first_error()),
                TestStatus::Absent => {
                    return Self::InvalidTest(format!("`{}` did not run", run.test.path));
                }
                TestStatus::TimedOut => return Self::TimedOut(run.test.path.clone()),
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
            Self::InvalidTest(problem) => write!(f, "INVALID TEST: {problem}"),
            Self::TimedOut(test) => write!(f, "TIMED OUT: `{test}` should fail, not wait"),
            Self::BadHeader(problem) => write!(f, "BAD HEADER: {problem}"),
        }
    }
}

/// One named test, and the output of its test program.
#[derive(Debug)]
pub(super) struct TestRun {
    pub(super) test: NamedTest,
    /// Shared by all tests of the program.
    pub(super) output: Rc<ProgramOutput>,
}

/// The result of building and running a test program.
#[derive(Debug)]
pub(super) enum ProgramOutput {
    NotBuilt(String),
    Ran(ProcessOutput),
}

#[derive(Debug, PartialEq)]
enum TestStatus {
    Passed,
    Failed,
    Absent,
    NotBuilt,
    TimedOut,
}

impl TestRun {
    /// Parses the line that libtest prints for the test. The exit status is not enough: the run may fail for other
    /// reasons.
    fn status(&self) -> TestStatus {
        let ProgramOutput::Ran(ran) = &*self.output else {
            return TestStatus::NotBuilt;
        };
        if ran.end == ExitKind::TimedOut {
            return TestStatus::TimedOut;
        }
        let end = ran.output.lines().find_map(|line| {
            let rest = line.strip_prefix("test ")?.strip_prefix(&self.test.path)?;
            let rest = rest.strip_prefix(" - should panic").unwrap_or(rest);
            rest.strip_prefix(" ... ")
        });
        match end {
            Some(end) if end.starts_with("ok") => TestStatus::Passed,
            Some(end) if end.ends_with("FAILED") => TestStatus::Failed,
            _ => TestStatus::Absent,
        }
    }

    fn first_error(&self) -> String {
        let ProgramOutput::NotBuilt(output) = &*self.output else {
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
        test_run(ran(ExitKind::Failure, output))
    }

    fn ran(end: ExitKind, output: &str) -> ProgramOutput {
        ProgramOutput::Ran(ProcessOutput {
            end,
            output: output.to_owned(),
        })
    }

    fn test_run(output: ProgramOutput) -> TestRun {
        TestRun {
            test: NamedTest {
                package: "bowline-types".to_owned(),
                target: Target::Lib,
                path: "id::tests::exact".to_owned(),
            },
            output: Rc::new(output),
        }
    }

    const FAILED: &str = "running 1 test\ntest id::tests::exact ... FAILED\n";
    const PASSED: &str = "running 1 test\ntest id::tests::exact ... ok\n";
    const ABSENT: &str = "running 0 tests\n";

    #[test]
    fn a_mutant_is_caught_when_every_named_test_fails() {
        assert!(Verdict::of_patched_run(&[run(FAILED), run(FAILED)]).is_caught());
    }

    #[test]
    fn a_mutant_survives_when_one_named_test_still_passes() {
        let verdict = Verdict::of_patched_run(&[run(FAILED), run(PASSED)]);

        assert_eq!(
            verdict,
            Verdict::Survived(vec!["id::tests::exact".to_owned()])
        );
    }

    #[test]
    fn a_build_error_is_not_a_caught_mutant() {
        let errors = "warning: x\nerror[E0308]: mismatched types\n".to_owned();
        let broken = test_run(ProgramOutput::NotBuilt(errors));

        let verdict = Verdict::of_patched_run(&[broken]);

        let first = "error[E0308]: mismatched types".to_owned();
        assert_eq!(verdict, Verdict::DoesNotCompile(first));
    }

    #[test]
    fn the_failure_of_another_test_is_not_a_caught_mutant() {
        let verdict = Verdict::of_patched_run(&[run("test id::tests::exactly ... FAILED\n")]);

        assert!(matches!(verdict, Verdict::InvalidTest(_)), "{verdict}");
    }

    #[test]
    fn a_test_that_times_out_is_not_a_caught_mutant() {
        let hung = test_run(ran(ExitKind::TimedOut, "running 1 test\n"));

        assert!(matches!(
            Verdict::of_patched_run(&[hung]),
            Verdict::TimedOut(_)
        ));
    }

    #[test]
    fn a_named_test_must_exist_and_pass_without_the_patch() {
        assert_eq!(Verdict::of_unpatched_run(&[run(PASSED)]), None);
        for output in [FAILED, ABSENT] {
            let verdict = Verdict::of_unpatched_run(&[run(output)]);
            assert!(matches!(verdict, Some(Verdict::InvalidTest(_))), "{output}");
        }
    }

    #[test]
    fn a_test_that_should_panic_is_recognised() {
        let output = "test id::tests::exact - should panic ... FAILED\n";

        assert!(Verdict::of_patched_run(&[run(output)]).is_caught());
    }
}
