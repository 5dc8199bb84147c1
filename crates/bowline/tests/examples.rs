//! The examples in the README: their sources match, and they work with each other.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

use std::path::PathBuf;
use std::process::Command;

/// A program that cargo built from `examples/` beside this test.
fn example(name: &str) -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop(); // the file name
    path.pop(); // `deps`
    let path = path
        .join("examples")
        .join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    assert!(
        path.exists(),
        "{} is built by `cargo test` without `--test`",
        path.display()
    );
    path
}

#[test]
fn the_example_client_and_server_work_over_stdio() {
    let output = Command::new(example("sum"))
        .arg(example("calculator"))
        .output()
        .unwrap();

    assert_eq!(String::from_utf8_lossy(&output.stdout), "3\n", "{output:?}");
    assert!(output.status.success());
}

#[test]
fn the_readme_contains_the_sources_of_the_examples() {
    let readme = include_str!("../../../README.md");
    for source in [
        include_str!("../examples/calculator.rs"),
        include_str!("../examples/sum.rs"),
    ] {
        let shown = source
            .lines()
            .filter(|line| !line.starts_with("//!") && !line.starts_with("#!["));
        let shown = shown.collect::<Vec<_>>().join("\n");

        assert!(
            readme.contains(shown.trim()),
            "the README does not show:\n{}",
            shown.trim()
        );
    }
}
