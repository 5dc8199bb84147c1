//! The order of events must be deterministic, so that a schedule of the race hunter can be repeated.

use super::super::project::outside_tests;
use super::{Project, Violation, has_word};

/// Requires biased `select!`s and ordered maps. An unbiased `select!` polls in random order, and a hash map of the
/// standard library iterates in a different order in each run.
pub(super) fn order_is_deterministic(project: &Project<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in project.sources_in(DETERMINISTIC) {
        let lines: Vec<_> = outside_tests(source)
            .filter(|line| !line.code.trim().is_empty())
            .collect();
        for (at, line) in lines.iter().enumerate() {
            let next = lines.get(at + 1).map_or("", |next| next.code.trim());
            let advice = if line.code.contains("select! {") && !next.starts_with("biased;") {
                "start with `biased;`, and explain the order in a comment"
            } else if has_word(&line.code, "HashMap") || has_word(&line.code, "HashSet") {
                "use a BTreeMap or a BTreeSet, whose order is deterministic"
            } else {
                continue;
            };
            found.push(Violation::new(
                "order",
                source.path,
                line.number,
                line.raw,
                advice,
            ));
        }
    }
    found
}

const DETERMINISTIC: &[&str] = &["crates/bowline/src/"];

#[cfg(test)]
mod tests {
    use super::super::tests::lines;
    use super::*;

    #[test]
    fn an_unbiased_select_is_found() {
        let text =
            "tokio::select! {\n    // why\n    biased;\n}\ntokio::select! {\n    a = b => {}\n}\n";

        let found = lines(order_is_deterministic, "crates/bowline/src/a.rs", text);

        assert_eq!(found, [5]);
    }

    #[test]
    fn an_unordered_map_is_found() {
        let text = "use std::collections::HashMap;\n// HashMap\nuse std::collections::BTreeMap;\n";

        let found = lines(order_is_deterministic, "crates/bowline/src/a.rs", text);

        assert_eq!(found, [1]);
    }
}
