//! [`CrateName`], a name that Cargo accepts for a package.

use std::str::FromStr;

/// The name of a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CrateName(String);

impl CrateName {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for CrateName {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let wrong = |why: &str| Err(format!("`{name}` cannot be the name of a package: {why}"));
        let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let Some(first) = name.chars().next() else {
            return wrong("it is empty");
        };
        if !first.is_ascii_alphabetic() {
            return wrong("it must start with a letter");
        }
        if !name.chars().all(is_letter) {
            return wrong("use letters, digits, `-` and `_`");
        }
        if name.len() > MAX_LENGTH {
            return wrong("it is longer than 64 characters");
        }
        let module = name.replace('-', "_").to_ascii_lowercase();
        if KEYWORDS.contains(&module.as_str()) {
            return wrong("it is a keyword of Rust");
        }
        if TAKEN.contains(&module.as_str()) {
            return wrong("a library that the project uses, or Cargo itself, has this name");
        }
        Ok(Self(name.to_owned()))
    }
}

/// The limit of crates.io.
const MAX_LENGTH: usize = 64;
const TAKEN: [&str; 11] = [
    "bowline",
    "tokio",
    "test",
    "core",
    "std",
    "alloc",
    "proc_macro",
    "build",
    "deps",
    "examples",
    "incremental",
];
const KEYWORDS: [&str; 51] = [
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate",
    "do", "dyn", "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl",
    "in", "let", "loop", "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref",
    "return", "self", "static", "struct", "super", "trait", "true", "try", "type", "typeof",
    "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_packages_are_accepted_and_others_are_not() {
        for name in ["weather", "my-server", "a1_b"] {
            assert_eq!(name.parse::<CrateName>().unwrap().as_str(), name);
        }
        for name in [
            "",
            "1st",
            "-x",
            "a b",
            "../x",
            "a/b",
            "wörter",
            "async",
            "tokio",
            "test",
            &"x".repeat(65),
        ] {
            let error = name.parse::<CrateName>().unwrap_err();
            assert!(error.contains("cannot be the name"), "{error}");
        }
    }
}
