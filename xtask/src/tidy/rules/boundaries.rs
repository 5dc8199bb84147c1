//! Boundaries: no I/O in the core, no untagged unions in messages, features on modules only, no order by chance, no
//! sleeps in tests.

use super::super::source::Source;
use super::{Project, Violation, find_lines, has_word};

/// The protocol core is a pure function of its arguments.
pub(super) fn the_core_does_no_io(project: &Project<'_>) -> Vec<Violation> {
    let advice =
        "the core has no I/O, clock or threads: take the data as an argument and return the action";
    find_lines(project.sources_in(PURE), "pure-core", advice, |line| {
        !line.in_test && IMPURE.iter().any(|word| has_word(&line.code, word))
    })
}

/// `untagged` and `flatten` of serde buffer the message and hide which variant was meant.
pub(super) fn unions_are_read_by_their_tag(project: &Project<'_>) -> Vec<Violation> {
    let advice = "select the variant by its tag or by the method, and repeat shared fields";
    find_lines(project.sources_in(CORE), "serde-unions", advice, |line| {
        has_word(&line.code, "untagged")
            || has_word(&line.code, "flatten") && !line.code.contains(".flatten()")
    })
}

/// A feature adds a module or an export, and never changes the code of one.
pub(super) fn features_only_choose_modules(project: &Project<'_>) -> Vec<Violation> {
    let advice =
        "move the code of the feature into a module, and put `cfg` on `mod` and `use` lines only";
    let mut found = Vec::new();
    for source in project.crate_sources() {
        for (index, line) in source.lines.iter().enumerate() {
            let mentions = line.code.contains("cfg") && line.code.contains("feature =");
            if mentions && !chooses_a_module(source, index) {
                found.push(source.violation("features", line, advice));
            }
        }
    }
    found
}

/// An unbiased `select!` polls in random order, and a schedule of the race hunter could not be repeated.
pub(super) fn selects_are_biased(project: &Project<'_>) -> Vec<Violation> {
    let advice = "start with `biased;`, and explain the order in a comment";
    let mut found = Vec::new();
    for source in project.sources_in(DETERMINISTIC) {
        let mut lines = source.lines.iter().filter(|line| !line.in_test);
        while let Some(line) = lines.find(|line| line.code.contains("select! {")) {
            let next = lines.clone().find(|line| !line.code.trim().is_empty());
            if !next.is_some_and(|next| next.code.trim().starts_with("biased;")) {
                found.push(source.violation("order", line, advice));
            }
        }
    }
    found
}

/// A sleep in a test is too short on a busy machine, or too long on any other.
pub(super) fn tests_do_not_sleep(project: &Project<'_>) -> Vec<Violation> {
    let advice = "wait for the event itself, or advance a paused clock with `tokio::time::advance`";
    find_lines(project.sources_in(TESTED), "sleeps", advice, |line| {
        line.in_test && SLEEPS.iter().any(|sleep| line.code.contains(sleep))
    })
}

/// Returns whether the attribute on the line at `index` belongs to a `mod` or a `use`.
fn chooses_a_module(source: &Source<'_>, index: usize) -> bool {
    let attribute = source.lines[index].code.trim();
    // Affects only documentation builds.
    if attribute
        .trim_start_matches("#!")
        .trim_start_matches("#")
        .starts_with("[cfg_attr(docsrs")
    {
        return true;
    }
    let chooses_file = attribute.starts_with("#[cfg_attr(") && attribute.contains(", path = ");
    if !attribute.starts_with("#[cfg(") && !chooses_file {
        return false;
    }
    let item = source.lines[index + 1..]
        .iter()
        .map(|line| line.code.trim())
        .find(|code| !code.is_empty() && !code.starts_with("#["))
        .unwrap_or_default();
    let item = match item.strip_prefix("pub") {
        Some(visible) => visible.split_once(')').map_or(visible, |(scope, rest)| {
            if scope.starts_with('(') {
                rest
            } else {
                visible
            }
        }),
        None => item,
    };
    let item = item.trim_start();
    item.starts_with("mod ") || item.starts_with("use ")
}

const PURE: &[&str] = &["crates/bowline-core/src/", "crates/bowline-types/src/"];
const CORE: &[&str] = &["crates/bowline-core/src/"];
const DETERMINISTIC: &[&str] = &["crates/bowline/src/"];
const TESTED: &[&str] = &["crates/", "scenarios/", "examples/", "conformance/"];

/// Of the standard library only: `xtask/tests/dependencies.rs` checks the other crates.
const IMPURE: [&str; 7] = [
    "Instant::now",
    "SystemTime",
    "std::env",
    "std::fs",
    "std::net",
    "std::process",
    "std::thread",
];

const SLEEPS: [&str; 2] = ["thread::sleep", "time::sleep("];

#[cfg(test)]
mod tests {
    use super::super::tests::lines;
    use super::*;

    #[test]
    fn a_clock_in_the_core_is_found_and_one_in_its_tests_is_not() {
        let text = "//! x\nfn a() { std::time::Instant::now(); }\n#[cfg(test)]\nmod tests {\n fn b() { Instant::now(); }\n}\n";

        let found = lines(the_core_does_no_io, "crates/bowline-core/src/a.rs", text);

        assert_eq!(found, [2]);
        assert!(lines(the_core_does_no_io, "crates/bowline/src/a.rs", text).is_empty());
    }

    #[test]
    fn every_impure_word_is_found() {
        for word in IMPURE {
            let text = format!("use {word}::x;");
            let found = lines(the_core_does_no_io, "crates/bowline-types/src/a.rs", &text);
            assert_eq!(found, [1], "{word}");
        }
    }

    #[test]
    fn words_in_comments_and_strings_are_ignored() {
        let text = "// not std::fs\nconst A: &str = \"std::fs\";\n";

        assert!(lines(the_core_does_no_io, "crates/bowline-core/src/a.rs", text).is_empty());
    }

    #[test]
    fn an_untagged_union_in_the_core_is_found_and_a_flattened_iterator_is_not() {
        let text = "#[serde(untagged)]\nenum A {}\n#[serde(flatten)]\nx.flatten()\n";

        let found = lines(
            unions_are_read_by_their_tag,
            "crates/bowline-core/src/a.rs",
            text,
        );

        assert_eq!(found, [1, 3]);
    }

    #[test]
    fn a_feature_on_a_function_is_found() {
        let text = "#[cfg(feature = \"x\")]\nfn a() {}\nif cfg!(feature = \"x\") {}\n#[cfg_attr(feature = \"x\", derive(A))]\nstruct A;\n";

        let found = lines(
            features_only_choose_modules,
            "crates/bowline/src/a.rs",
            text,
        );

        assert_eq!(found, [1, 3, 4]);
    }

    #[test]
    fn a_feature_on_a_module_or_an_export_is_allowed() {
        let text = "#[cfg(feature = \"x\")]\n#[cfg_attr(docsrs, doc(cfg(feature = \"x\")))]\npub mod a;\n#[cfg(feature = \"x\")]\npub(crate) use a::A;\n#[cfg(all(unix, feature = \"x\"))]\nmod b {}\n#[cfg_attr(not(feature = \"x\"), path = \"c_disabled.rs\")]\nmod c;\n";

        let found = lines(
            features_only_choose_modules,
            "crates/bowline/src/lib.rs",
            text,
        );

        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn an_unbiased_select_is_found() {
        let text =
            "tokio::select! {\n    // why\n    biased;\n}\ntokio::select! {\n    a = b => {}\n}\n";

        let found = lines(selects_are_biased, "crates/bowline/src/a.rs", text);

        assert_eq!(found, [5]);
    }

    #[test]
    fn a_sleep_is_found_in_tests_only() {
        let sleep = "tokio::time::sleep(second).await;\n";

        assert_eq!(lines(tests_do_not_sleep, "crates/a/tests/a.rs", sleep), [1]);
        assert_eq!(lines(tests_do_not_sleep, "scenarios/src/a.rs", sleep), [1]);
        assert!(lines(tests_do_not_sleep, "crates/a/src/a.rs", sleep).is_empty());
    }
}
