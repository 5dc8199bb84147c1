//! `cargo xtask tidy`: the house rules that a search through the text can keep.
//!
//! Each rule is a pure function from the project's files to violations, and has a test that plants one.
//! An exception is a line in `allow.rs` with its reason; an exception that excuses nothing is a violation
//! too, so the list can only be as long as it has to be.

use std::fmt;
use std::io;
use std::path::Path;

mod allow;
mod rules;

mod project;
use project::Project;

mod source;

use crate::tree::Tree;

/// Checks the project at `root` and prints every violation; true if there is none.
#[must_use]
pub fn run(root: &Path) -> bool {
    let violations = match check(root) {
        Ok(violations) => violations,
        Err(error) => {
            println!("the project could not be read: {error}");
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

/// Every violation in the project at `root`, by rule, then by place.
///
/// # Errors
///
/// If a file cannot be read.
pub fn check(root: &Path) -> io::Result<Vec<Violation>> {
    let tree = Tree::read(root)?;
    let project = Project::new(&tree);
    let found = rules::ALL.iter().flat_map(|rule| rule(&project)).collect();
    Ok(allow::excuse(found, allow::ALLOWANCES))
}

/// One line that breaks a rule, and what to do instead.
#[derive(Debug, Clone, PartialEq)]
pub struct Violation {
    rule: &'static str,
    path: String,
    /// Counted from 1; 0 is the file as a whole.
    line: usize,
    /// The line itself, trimmed.
    text: String,
    instead: String,
}

impl Violation {
    fn new(rule: &'static str, path: &str, line: usize, text: &str, instead: &str) -> Self {
        Self {
            rule,
            path: path.to_owned(),
            line,
            text: text.trim().to_owned(),
            instead: instead.to_owned(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: [{}] {}",
            self.path, self.line, self.rule, self.instead
        )?;
        if !self.text.is_empty() {
            write!(f, "\n    {}", self.text)?;
        }
        Ok(())
    }
}
