//! The specification's own examples and schemas.
//!
//! They are not part of this repository. `BOWLINE_SPEC` names a folder with `schema-<revision>.json` for
//! every revision and `examples-<revision>/<definition>/*.json`.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use bowline_types::ProtocolVersion;
use serde_json::{Value, json};

use crate::golden::{Example, check_round_trips, examples, goldens};
use crate::registry::{NO_TYPES, TYPES};

#[test]
fn official_examples_are_encoded_as_they_were_written() {
    let Some(spec) = spec("official examples") else {
        return;
    };
    let folder = spec.join(format!("examples-{}", ProtocolVersion::LATEST));

    let count = check_round_trips(&examples(&folder));

    assert_ne!(count, 0, "{} has no examples", folder.display());
    println!("official examples: {count} of {count} round-trip");
}

#[test]
fn our_examples_are_valid_by_the_official_schemas() {
    let Some(spec) = spec("validation of our examples") else {
        return;
    };
    let schemas = schemas(&spec);
    let goldens = goldens();

    let faults: Vec<String> = goldens
        .iter()
        .filter_map(|golden| invalid(golden, &schemas))
        .collect();

    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let count = goldens.len();
    println!("our own examples: {count} of {count} are valid by the official schemas");
}

#[test]
fn every_official_definition_is_a_type_or_has_a_reason_not_to_be() {
    let Some(spec) = spec("coverage of definitions") else {
        return;
    };
    let official: BTreeSet<String> = schemas(&spec)
        .values()
        .flat_map(|schema| schema.definitions().keys().cloned().collect::<Vec<_>>())
        .collect();

    let ours: BTreeSet<String> = TYPES
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .chain(NO_TYPES.iter().map(|(name, _)| (*name).to_owned()))
        .collect();

    let difference: Vec<&String> = official.symmetric_difference(&ours).collect();
    assert!(difference.is_empty(), "on one side only: {difference:?}");
    println!("official definitions: {} accounted for", official.len());
}

/// Returns the folder with the specification, or prints that the test did not run.
fn spec(what: &str) -> Option<PathBuf> {
    let folder = env::var_os("BOWLINE_SPEC").map(PathBuf::from);
    if folder.is_none() {
        println!("{what}: did not run, because BOWLINE_SPEC is not set");
    }
    folder
}

/// The schema of one revision.
struct Schema {
    document: Value,
    /// Where the definitions are: `definitions` in older revisions, `$defs` in newer ones.
    section: &'static str,
}

impl Schema {
    fn definitions(&self) -> &serde_json::Map<String, Value> {
        self.document[self.section].as_object().unwrap()
    }

    /// Returns a self-contained schema of one definition.
    fn of(&self, definition: &str) -> Value {
        let mut schema = json!({
            "$schema": self.document["$schema"],
            "allOf": [{"$ref": format!("#/{}/{definition}", self.section)}],
        });
        schema[self.section] = self.document[self.section].clone();
        schema
    }
}

fn schemas(spec: &Path) -> BTreeMap<String, Schema> {
    ProtocolVersion::ALL
        .iter()
        .map(|version| {
            let path = spec.join(format!("schema-{version}.json"));
            let document: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
            let section = if document.get("$defs").is_some() {
                "$defs"
            } else {
                "definitions"
            };
            (version.to_string(), Schema { document, section })
        })
        .collect()
}

/// Validates an example with the schema of its revision, or the latest with its definition, and returns the error.
fn invalid(example: &Example, schemas: &BTreeMap<String, Schema>) -> Option<String> {
    let path = example.path.display();
    let schema = match &example.revision {
        Some(revision) => schemas.get(revision),
        None => schemas
            .values()
            .rev()
            .find(|schema| schema.definitions().contains_key(&example.definition)),
    };
    let Some(schema) =
        schema.filter(|schema| schema.definitions().contains_key(&example.definition))
    else {
        return Some(format!("{path}: unknown definition"));
    };
    let validator = jsonschema::validator_for(&schema.of(&example.definition))
        .unwrap_or_else(|error| panic!("{path}: {error}"));
    validator
        .validate(&example.message)
        .err()
        .map(|error| format!("{path}: {error}"))
}
