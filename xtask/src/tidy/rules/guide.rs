//! Rules for what users read: the guide, the READMEs and the front page.

use super::super::{Project, Violation};
use crate::markdown::{anchors, links};
use crate::tree::{File, Tree};

/// Links to files, headings, and items of the reference lead somewhere.
pub(super) fn links_lead_somewhere(project: &Project<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut report = |file: &File, line: usize, link: &str, problem: &str| {
        found.push(Violation::new("links", &file.path, line, link, problem));
    };
    for file in project.tree.files() {
        let text = file.text().unwrap_or_default();
        if file.path.ends_with(".md") {
            for (line, link) in links(text) {
                if let Some(problem) = problem_of(link, &file.path, text, project.tree) {
                    report(file, line, link, &problem);
                }
            }
        } else if file.path.starts_with("crates/bowline/src/") {
            for (line, anchor) in links_to_front_page(text) {
                let page = project.tree.text(FRONT_PAGE).unwrap_or_default();
                if !anchors(page).contains(anchor) {
                    report(file, line, anchor, "the front page has no such heading");
                }
            }
        }
    }
    found
}

/// Returns what is wrong with a link in the document at `path`.
fn problem_of(link: &str, path: &str, text: &str, tree: &Tree) -> Option<String> {
    if UNPUBLISHED.iter().any(|start| link.starts_with(start)) {
        return Some("nothing is published yet, so the page does not exist".to_owned());
    }
    let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
    let is_rustdoc = path.contains("/src/");
    if link.contains(':') || is_rustdoc && !target.is_empty() {
        return None; // another site, or an item, which rustdoc checks
    }
    let (target, page) = match target {
        "" => (path.to_owned(), Some(text)),
        _ => {
            let target = resolve(path, target);
            let page = tree.text(&target);
            (target, page)
        }
    };
    let folder = format!("{target}/");
    let is_folder = || {
        let mut files = tree.files().iter();
        target.is_empty() || files.any(|file| file.path.starts_with(&folder))
    };
    match page {
        None if !is_folder() => Some(format!("there is no `{target}`")),
        Some(page) if !anchor.is_empty() && !anchors(page).contains(anchor) => {
            Some(format!("`{target}` has no such heading"))
        }
        _ => None,
    }
}

/// The pages of our crates. `RELEASING.md` says that this goes with the first release.
const UNPUBLISHED: [&str; 2] = [
    "https://docs.rs/bowline",
    "https://crates.io/crates/bowline",
];

/// Returns the path, from the root of the project, of `target` as linked from the file at `path`.
fn resolve(path: &str, target: &str) -> String {
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Iterates over the headings of the front page that doc comments link to, with the numbers of their lines.
fn links_to_front_page(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines()).flat_map(|(number, line)| {
        line.split("](crate#")
            .skip(1)
            .filter_map(|rest| rest.split_once(')'))
            .map(move |(anchor, _)| (number, anchor))
    })
}

/// Every page of the guide is a doctest, so that its code compiles.
pub(super) fn pages_are_doctests(project: &Project<'_>) -> Vec<Violation> {
    let advice = "include it in `crates/bowline/src/guide.rs`, so that its code blocks run";
    let mut found = Vec::new();
    for file in project.tree.files() {
        let Some(page) = file.path.strip_prefix("docs/") else {
            continue;
        };
        let included = format!("docs/{page}\")]");
        let is_included = |line: &super::Line<'_>| line.raw.contains(&included);
        let mut sources = project.crate_sources();
        if page.ends_with(".md")
            && page != "SUMMARY.md"
            && !sources.any(|source| source.lines.iter().any(is_included))
        {
            found.push(Violation::new("guide", &file.path, 0, page, advice));
        }
    }
    found
}

/// The front page lists all features of the SDK.
pub(super) fn features_are_listed(project: &Project<'_>) -> Vec<Violation> {
    let manifest = "crates/bowline/Cargo.toml";
    let text = project.tree.text(manifest).unwrap_or_default();
    let page = project.tree.text(FRONT_PAGE).unwrap_or_default();
    let advice = "add it to the table of features on the front page";
    let (before, features) = text.split_once("[features]\n").unwrap_or_default();
    let features = features.split("\n[").next().unwrap_or_default();
    let first_line = before.lines().count() + 2;
    let mut found = Vec::new();
    for (number, line) in (first_line..).zip(features.lines()) {
        let Some((name, _)) = line.split_once(" = [") else {
            continue;
        };
        if name != "default" && !page.contains(&format!("\n| `{name}` |")) {
            found.push(Violation::new("features", manifest, number, line, advice));
        }
    }
    found
}

/// Every method that requests input documents that the handler runs again.
pub(super) fn input_requests_warn_of_reruns(project: &Project<'_>) -> Vec<Violation> {
    let advice = "document that **the handler runs again from its beginning**, with a link to the front page";
    let mut found = Vec::new();
    let in_file = |path: &str| path.ends_with("/exchange/input/pending_input.rs");
    for source in project.crate_sources().filter(|it| in_file(it.path)) {
        for line in &source.lines {
            let is_request = REQUESTING.iter().any(|start| line.raw.starts_with(start));
            let docs = source.docs_above(line.number);
            let warns = docs.contains("**the handler runs again from its beginning**");
            if is_request && !(warns && docs.contains("](crate#asking-people)")) {
                found.push(source.violation("reruns", line, advice));
            }
        }
    }
    found
}

const FRONT_PAGE: &str = "crates/bowline/src/docs/front_page.md";

const REQUESTING: [&str; 3] = ["    pub fn elicit", "    pub fn sample", "    pub fn roots"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    fn violations(rule: super::super::Rule, files: &[(&str, &str)]) -> Vec<String> {
        let tree = tree(files);
        let found = rule(&Project::new(&tree));
        let shown = found
            .iter()
            .map(|it| format!("{}:{} {}", it.path, it.line, it.text));
        shown.collect()
    }

    #[test]
    fn a_link_to_a_missing_file_heading_or_item_is_found() {
        let files = [
            ("README.md", "[a](docs/a.md) [b](docs/b.md) [c](docs)"),
            ("docs/a.md", "# One\n[x](../README.md) [y](#one)\n[z](#two)"),
            (
                "docs/d.md",
                "[m](https://docs.rs/bowline/latest/bowline/) [n](https://docs.rs/tower)",
            ),
            (
                FRONT_PAGE,
                "# Errors\n[`Server`](Server) [e](#errors) [f](#error)",
            ),
            (
                "crates/bowline/src/a.rs",
                "/// See [errors](crate#errors), [it](crate#it).",
            ),
        ];

        let found = violations(links_lead_somewhere, &files);

        let expected = [
            "README.md:1 docs/b.md",
            "docs/a.md:3 #two",
            "docs/d.md:1 https://docs.rs/bowline/latest/bowline/",
            "crates/bowline/src/docs/front_page.md:2 #error",
            "crates/bowline/src/a.rs:1 it",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_page_that_is_not_a_doctest_is_found() {
        let guide = "#[doc = include_str!(\"../../../docs/a.md\")]\nstruct A;";
        let files = [
            ("crates/bowline/src/guide.rs", guide),
            ("docs/SUMMARY.md", ""),
            ("docs/a.md", ""),
            ("docs/b.md", ""),
        ];

        assert_eq!(violations(pages_are_doctests, &files), ["docs/b.md:0 b.md"]);
    }

    #[test]
    fn a_feature_that_the_front_page_does_not_list_is_found() {
        let manifest = "[package]\n[features]\ndefault = [\"tls\"]\ntls = []\nzlib = []\n[lints]\n";
        let files = [
            ("crates/bowline/Cargo.toml", manifest),
            (FRONT_PAGE, "# Features\n| `tls` | yes | TLS |"),
        ];

        let found = violations(features_are_listed, &files);

        assert_eq!(found, ["crates/bowline/Cargo.toml:5 zlib = []"]);
    }

    #[test]
    fn a_method_that_requests_input_without_the_warning_is_found() {
        let path = "crates/bowline/src/exchange/input/pending_input.rs";
        let text = "    /// Requests it. **the handler runs again from its beginning**\n    \
                    /// [front page](crate#asking-people)\n    ///\n    pub fn roots(&self) {}\n\n    \
                    /// Requests it.\n    pub fn sample(&self) {}\n";

        let found = violations(input_requests_warn_of_reruns, &[(path, text)]);

        assert_eq!(found, [format!("{path}:7 pub fn sample(&self) {{}}")]);
    }
}
