//! `README.md`, the index of the examples, and the programs in the README of the project.

const MANIFEST: &str = include_str!("../../Cargo.toml");
const INDEX: &str = include_str!("../../README.md");

/// The names of the examples, in the order of the manifest.
fn names() -> Vec<&'static str> {
    let targets = MANIFEST.split("[[example]]\nname = \"").skip(1);
    targets
        .map(|target| target.split('"').next().unwrap())
        .collect()
}

fn source(name: &str) -> String {
    let path = format!("{}/{name}.rs", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn the_index_lists_the_examples_in_order() {
    let rows = INDEX.lines().filter_map(|line| line.strip_prefix("| [`"));
    let listed: Vec<_> = rows.map(|row| row.split('`').next().unwrap()).collect();

    assert_eq!(listed, names());
    for name in listed {
        assert!(INDEX.contains(&format!("[`{name}`]({name}.rs)")), "{name}");
    }
}

#[test]
fn each_example_documents_its_command() {
    for name in names() {
        let source = source(name);
        let docs = source.lines().take_while(|line| line.starts_with("//!"));
        let docs = docs.collect::<Vec<_>>().join("\n");

        assert!(
            docs.contains(&format!("cargo run --example {name}")),
            "{name}"
        );
    }
}

#[test]
fn the_examples_are_found_from_the_root() {
    let workspace = include_str!("../../../Cargo.toml");

    assert!(workspace.contains("default-members = [\"crates/bowline-cli\", \"examples\"]"));
    // `cargo run` without a name must mean the command.
    assert!(!MANIFEST.contains("[[bin]]"));
}

#[test]
fn the_readme_contains_the_calculator_and_its_client() {
    let readme = include_str!("../../../README.md");
    for name in ["calculator", "sum"] {
        let source = source(name);
        let shown = source.lines().filter(|line| !line.starts_with("//!"));
        let shown = shown.collect::<Vec<_>>().join("\n");

        assert!(
            readme.contains(shown.trim()),
            "the README does not show:\n{}",
            shown.trim()
        );
    }
}
