//! Boundaries: no I/O in the core, no untagged unions in messages, features on modules only.

use super::super::project::outside_tests;
use super::super::source::Source;
use super::{Project, Violation, has_word};

/// The protocol core is a pure function of its arguments.
pub(super) fn the_core_does_no_io(project: &Project<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in project.sources_in(PURE) {
        for line in outside_tests(source) {
            for (word, advice) in IMPURE {
                if has_word(&line.code, word) {
                    found.push(Violation::new(
                        "pure-core",
                        source.path,
                        line.number,
                        line.raw,
                        advice,
                    ));
                }
            }
        }
    }
    found
}

/// `untagged` and `flatten` of serde buffer the message and hide which variant was meant.
pub(super) fn unions_are_read_by_their_tag(project: &Project<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in project.sources_in(CORE) {
        for line in &source.lines {
            if has_word(&line.code, "untagged")
                || has_word(&line.code, "flatten") && !line.code.contains(".flatten()")
            {
                let advice =
                    "select the variant by its tag or by the method, and repeat shared fields";
                found.push(Violation::new(
                    "serde-unions",
                    source.path,
                    line.number,
                    line.raw,
                    advice,
                ));
            }
        }
    }
    found
}

/// A feature adds a module or an export, and never changes the code of one.
pub(super) fn features_only_choose_modules(project: &Project<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in project.crate_sources() {
        for (index, line) in source.lines.iter().enumerate() {
            let mentions = line.code.contains("cfg") && line.code.contains("feature =");
            if mentions && !chooses_a_module(source, index) {
                let advice = "move the code of the feature into a module, and put `cfg` on `mod` and `use` lines only";
                found.push(Violation::new(
                    "features",
                    source.path,
                    line.number,
                    line.raw,
                    advice,
                ));
            }
        }
    }
    found
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

const IMPURE: [(&str, &str); 13] = [
    ("tokio", NO_RUNTIME),
    ("async_std", NO_RUNTIME),
    ("std::thread", NO_RUNTIME),
    ("Instant::now", NO_CLOCK),
    ("SystemTime", NO_CLOCK),
    ("std::net", NO_IO),
    ("std::fs", NO_IO),
    ("std::env", NO_IO),
    ("std::process", NO_IO),
    ("rand", NO_RANDOMNESS),
    ("getrandom", NO_RANDOMNESS),
    ("HashMap", NO_HASH_ORDER),
    ("HashSet", NO_HASH_ORDER),
];

const NO_RUNTIME: &str = "the core has no runtime: return the action and let `bowline` perform it";
const NO_CLOCK: &str = "the core has no clock: take the time as an argument";
const NO_IO: &str = "the core does no I/O: take the data as an argument";
const NO_RANDOMNESS: &str = "the core has no randomness: take the bytes as an argument";
const NO_HASH_ORDER: &str = "iteration order must be deterministic: use a BTreeMap or a BTreeSet";

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
        for (word, _) in IMPURE {
            let text = format!("use {word}::x;");
            let found = lines(the_core_does_no_io, "crates/bowline-types/src/a.rs", &text);
            assert_eq!(found, [1], "{word}");
        }
    }

    #[test]
    fn words_in_comments_and_strings_are_ignored() {
        let text = "// not tokio\nconst A: &str = \"tokio\";\n";

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
}
