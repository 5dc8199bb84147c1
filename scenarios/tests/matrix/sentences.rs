//! Reads `sentences.txt`: the requirements for abandoned calls, each with the tests that verify it.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

/// Checks that every requirement lists a test, and that every listed test exists. Whether they passed is checked by
/// `cargo xtask ci`, which runs all tests.
pub(crate) fn check() -> Result<(), String> {
    let sentences = read()?;
    let mut problems = Vec::new();
    for sentence in &sentences {
        if sentence.tests.is_empty() {
            problems.push(format!("no test listed for: {}", sentence.text));
        }
        let missing = sentence.tests.iter().filter(|test| !test.exists());
        problems.extend(missing.map(|test| format!("test not found: {}", test.path())));
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(problems.join("\n")),
    }
}

/// Renders the list for `CANCELLATION.md`.
pub(crate) fn render() -> Result<String, String> {
    let mut text = String::new();
    let mut section = String::new();
    for sentence in read()? {
        if sentence.section != section {
            let _ = writeln!(text, "\n### {}\n", sentence.section);
            section.clone_from(&sentence.section);
        }
        let _ = writeln!(text, "- {}", sentence.text);
        for test in &sentence.tests {
            let _ = writeln!(text, "  - `{}`", test.path());
        }
    }
    Ok(text)
}

#[derive(Debug)]
struct Sentence {
    section: String,
    text: String,
    tests: Vec<TestPath>,
}

/// A test function, by its file and its name.
#[derive(Debug)]
struct TestPath {
    file: String,
    function: String,
}

impl TestPath {
    fn path(&self) -> String {
        format!("{}: {}", self.file, self.function)
    }

    fn exists(&self) -> bool {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .join(&self.file);
        let Ok(source) = fs::read_to_string(path) else {
            return false;
        };
        source.contains(&format!("fn {}(", self.function))
    }
}

/// Parses the file: `#` starts a section, `-` names a test of the sentence above it.
fn read() -> Result<Vec<Sentence>, String> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("sentences.txt");
    let text = fs::read_to_string(&path).map_err(|error| format!("sentences.txt: {error}"))?;
    let (mut section, mut sentences) = (String::new(), Vec::new());
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(title) = line.strip_prefix("# ") {
            title.clone_into(&mut section);
        } else if let Some(test) = line.strip_prefix("- ") {
            let sentence: &mut Sentence = sentences
                .last_mut()
                .ok_or_else(|| format!("sentences.txt: no sentence before `{line}`"))?;
            let (file, function) = test.split_once(' ').ok_or_else(|| {
                format!("sentences.txt: expected a file and a function, got `{line}`")
            })?;
            sentence.tests.push(TestPath {
                file: file.to_owned(),
                function: function.to_owned(),
            });
        } else {
            sentences.push(Sentence {
                section: section.clone(),
                text: line.to_owned(),
                tests: Vec::new(),
            });
        }
    }
    Ok(sentences)
}
