//! `cargo xtask tidy`: the house rules that a text search can check.
//!
//! Each rule is a pure function from the files of the project to violations, and has a test with a violation.
//! Exceptions are listed in `allow.rs` with a reason; an unused exception is a violation too.

use std::fmt;
use std::io;
use std::path::Path;

mod allow;
mod rules;

mod project;
use project::Project;

mod source;

use crate::tree::Tree;

/// Checks the project at `root` and prints every violation; returns whether there is none.
#[must_use]
pub fn run(root: &Path) -> bool {
    let violations = match check(root) {
        Ok(violations) => violations,
        Err(error) => {
            println!("failed to read the project: {error}");
            return false;
        }
    };
    for violation in &violations {
        println!("{violation}");
    }
    match violations.len() {
        0 => println!("tidy: {} rules hold", rules::ALL.len()),
        count => println!("tidy: {count} violations"),
    }
    violations.is_empty()
}

/// Returns all violations in the project at `root`, ordered by rule and location.
///
/// # Errors
///
/// If a file cannot be read.
pub fn check(root: &Path) -> io::Result<Vec<Violation>> {
    let tree = Tree::read(root)?;
    let project = Project::new(&tree);
    let found = rules::ALL.iter().flat_map(|rule| rule(&project)).collect();
    Ok(allow::apply_allowances(found, allow::ALLOWANCES))
}

/// One line that violates a rule, with advice.
#[derive(Debug, Clone, PartialEq)]
pub struct Violation {
    rule: &'static str,
    path: String,
    /// Counted from 1; 0 means the whole file.
    line: usize,
    /// The line itself, trimmed.
    text: String,
    advice: String,
}

impl Violation {
    fn new(rule: &'static str, path: &str, line: usize, text: &str, advice: &str) -> Self {
        Self {
            rule,
            path: path.to_owned(),
            line,
            text: text.trim().to_owned(),
            advice: advice.to_owned(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: [{}] {}",
            self.path, self.line, self.rule, self.advice
        )?;
        if !self.text.is_empty() {
            write!(f, "\n    {}", self.text)?;
        }
        Ok(())
    }
}
