//! Our own examples, in `tests/golden/<definition>/`.
//!
//! The name of an example for an older revision ends in `@` and the revision.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::registry::{TYPES, round_trip};

/// One example message.
pub(crate) struct Example {
    pub(crate) path: PathBuf,
    /// The name of the definition.
    pub(crate) definition: String,
    /// The revision, if it is not the latest.
    pub(crate) revision: Option<String>,
    pub(crate) message: Value,
}

/// Returns our own examples.
pub(crate) fn goldens() -> Vec<Example> {
    examples(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden"))
}

/// Returns the examples in `folder`, which has one folder per definition.
pub(crate) fn examples(folder: &Path) -> Vec<Example> {
    entries(folder)
        .iter()
        .flat_map(|folder| entries(folder))
        .map(|path| {
            let stem = path.file_stem().unwrap().to_str().unwrap();
            let definition = path.parent().unwrap().file_name().unwrap();
            Example {
                definition: definition.to_str().unwrap().to_owned(),
                revision: stem
                    .split_once('@')
                    .map(|(_, revision)| revision.to_owned()),
                message: serde_json::from_slice(&fs::read(&path).unwrap())
                    .unwrap_or_else(|error| panic!("{}: {error}", path.display())),
                path,
            }
        })
        .collect()
}

/// Fails with all errors of the examples, or returns their number.
pub(crate) fn check_round_trips(examples: &[Example]) -> usize {
    let faults: Vec<String> = examples.iter().filter_map(fault).collect();

    assert!(faults.is_empty(), "{}", faults.join("\n"));
    examples.len()
}

fn fault(example: &Example) -> Option<String> {
    let path = example.path.display();
    let Some(round_trip) = round_trip(&example.definition) else {
        return Some(format!("{path}: no type is registered"));
    };
    match round_trip(example.message.clone()) {
        Ok(encoded) if encoded == example.message => None,
        Ok(encoded) => Some(format!("{path}: {} became {encoded}", example.message)),
        Err(error) => Some(format!("{path}: {error}")),
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    entries
}

#[test]
fn our_examples_are_encoded_as_they_were_written() {
    let count = check_round_trips(&goldens());

    println!("our own examples: {count} of {count} round-trip");
}

#[test]
fn every_type_has_an_example() {
    let goldens = goldens();

    let without: Vec<&str> = TYPES
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| !goldens.iter().any(|golden| golden.definition == *name))
        .collect();

    assert!(without.is_empty(), "no example of {without:?}");
}
