//! The file format of a mutant: comment lines that name an invariant ("law") and the tests of it, then a diff.
//!
//! ```text
//! # law: a fraction is not an id
//! # test: bowline-types lib id::tests::nothing_else_is_an_id
//! diff --git a/crates/…
//! ```

/// The header of one patch.
#[derive(Debug, PartialEq)]
pub(crate) struct Patch {
    pub(crate) law: String,
    pub(crate) tests: Vec<NamedTest>,
}

/// A test by package, test program and path.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NamedTest {
    pub(crate) package: String,
    pub(crate) target: Target,
    pub(crate) path: String,
}

/// The test program of a package.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    Lib,
    Test(String),
}

impl Patch {
    /// Parses the header; the error describes the problem.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut law = None;
        let mut tests = Vec::new();
        for line in text.lines().take_while(|line| !line.starts_with("diff ")) {
            if let Some(sentence) = line.strip_prefix("# law:") {
                law = Some(sentence.trim().to_owned());
            } else if let Some(test) = line.strip_prefix("# test:") {
                tests.push(NamedTest::parse(test)?);
            }
        }
        let law = law
            .filter(|law| !law.is_empty())
            .ok_or("expected `# law: <sentence>` before the diff")?;
        if tests.is_empty() {
            return Err(format!("expected {TEST_FORM} before the diff"));
        }
        Ok(Self { law, tests })
    }
}

impl NamedTest {
    fn parse(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [package, target, path] = words[..] else {
            return Err(format!("expected {TEST_FORM}, got `{}`", text.trim()));
        };
        let target = match target.split_once(':') {
            None if target == "lib" => Target::Lib,
            Some(("test", name)) if !name.is_empty() => Target::Test(name.to_owned()),
            _ => return Err(format!("expected `lib` or `test:NAME`, got `{target}`")),
        };
        Ok(Self {
            package: package.to_owned(),
            target,
            path: path.to_owned(),
        })
    }
}

/// Returns the name of the mutant in the file at `path`, if the file is one.
pub(super) fn name(path: &str) -> Option<&str> {
    path.strip_prefix("mutants/")?.strip_suffix(".patch")
}

const TEST_FORM: &str = "`# test: <package> <lib | test:NAME> <path of the test>`";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_names_a_law_and_its_tests() {
        let patch = Patch::parse(
            "# law: a call settles once\n\
             # test: bowline-core lib mux::tests::once\n\
             # test: scenarios test:cancel late_answer\n\
             diff --git a/x b/x\n\
             # test: not a header any more\n",
        )
        .unwrap();

        assert_eq!(patch.law, "a call settles once");
        assert_eq!(patch.tests[0].target, Target::Lib);
        assert_eq!(patch.tests[1].package, "scenarios");
        assert_eq!(patch.tests[1].target, Target::Test("cancel".to_owned()));
        assert_eq!(patch.tests[1].path, "late_answer");
        assert_eq!(patch.tests.len(), 2);
    }

    #[test]
    fn a_header_without_a_law_or_a_test_is_refused() {
        let no_law = "# test: a lib b\ndiff ";
        let no_test = "# law: x\ndiff ";
        let unknown_target = "# law: x\n# test: a bin b\ndiff ";
        let two_words = "# law: x\n# test: a b\ndiff ";

        for text in [no_law, no_test, unknown_target, two_words] {
            assert!(Patch::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_mutant_is_named_after_its_file() {
        assert_eq!(name("mutants/late-answer.patch"), Some("late-answer"));
        assert_eq!(name("mutants/README.md"), None);
    }
}
