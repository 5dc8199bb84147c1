//! `cargo xtask tidy` as a test, so that `cargo test` runs it.

use std::path::Path;

#[test]
fn the_house_rules_hold() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();

    let violations = xtask::tidy::check(root).unwrap();

    let report: Vec<String> = violations.iter().map(ToString::to_string).collect();
    assert!(violations.is_empty(), "\n{}\n", report.join("\n"));
}
