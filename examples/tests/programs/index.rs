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
fn each_example_is_run_by_a_test() {
    let tests = [
        include_str!("clients.rs"),
        include_str!("durable_job.rs"),
        include_str!("many_servers.rs"),
        include_str!("servers.rs"),
        include_str!("web.rs"),
    ];

    for name in names() {
        let quoted = format!("\"{name}\"");
        assert!(tests.iter().any(|test| test.contains(&quoted)), "{name}");
    }
}

/// The programs that were also written with the first version of the API and with another SDK, to compare them. Those
/// had 198 and 273 lines (`sqlite`), 177 and 294 (`many_servers`).
#[test]
fn typical_programs_are_short() {
    for (name, max_lines) in [
        ("files", 80),
        ("sqlite", 170),
        ("ask_a_person", 90),
        ("long_job", 75),
        ("axum_bearer", 75),
        ("many_servers", 150),
        ("test_your_server", 110),
    ] {
        let lines = source(name).lines().count();
        assert!(lines <= max_lines, "{name} has {lines} lines");
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
