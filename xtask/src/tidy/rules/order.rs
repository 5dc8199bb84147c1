//! What must not decide the order in which things happen: chance.

use super::super::project::outside_tests;
use super::{Project, Violation, has_word};

/// A `select!` that is not biased rolls dice, and a hash map of the standard library is walked in another
/// order each time. A schedule that broke a law could then not be played again.
pub(super) fn chance_decides_nothing(project: &Project<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in project.sources_in(REPEATABLE) {
        let lines: Vec<_> = outside_tests(source)
            .filter(|line| !line.code.trim().is_empty())
            .collect();
        for (at, line) in lines.iter().enumerate() {
            let next = lines.get(at + 1).map_or("", |next| next.code.trim());
            let instead = if line.code.contains("select! {") && !next.starts_with("biased;") {
                "begin with `biased;`, and say in a comment why this order"
            } else if has_word(&line.code, "HashMap") || has_word(&line.code, "HashSet") {
                "use a BTreeMap or a BTreeSet, whose order is always the same"
            } else {
                continue;
            };
            found.push(Violation::new(
                "order",
                source.path,
                line.number,
                line.raw,
                instead,
            ));
        }
    }
    found
}

const REPEATABLE: &[&str] = &["crates/bowline/src/"];

#[cfg(test)]
mod tests {
    use super::super::tests::lines;
    use super::*;

    #[test]
    fn a_select_that_rolls_dice_is_found() {
        let text =
            "tokio::select! {\n    // why\n    biased;\n}\ntokio::select! {\n    a = b => {}\n}\n";

        let found = lines(chance_decides_nothing, "crates/bowline/src/a.rs", text);

        assert_eq!(found, [5]);
    }

    #[test]
    fn a_map_without_an_order_is_found() {
        let text = "use std::collections::HashMap;\n// HashMap\nuse std::collections::BTreeMap;\n";

        let found = lines(chance_decides_nothing, "crates/bowline/src/a.rs", text);

        assert_eq!(found, [1]);
    }
}
