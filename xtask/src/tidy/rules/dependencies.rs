//! Dependencies: a closed list for the core, and a reason for each.

use super::{Project, Violation};

/// The core may depend only on listed crates.
pub(super) fn core_dependencies_are_listed(project: &Project<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (manifest, allowed) in CLOSED_LISTS {
        let text = project.tree.text(manifest).unwrap_or_default();
        for entry in entries(text, |table| {
            table == "dependencies" || table.ends_with(".dependencies")
        }) {
            if !allowed.contains(&entry.name) {
                let advice = "not in the closed list of dependencies of the core: avoid it, or add it to the list in xtask";
                found.push(Violation::new(
                    "core-dependencies",
                    manifest,
                    entry.line,
                    entry.text,
                    advice,
                ));
            }
        }
    }
    found
}

/// The manifest states why each dependency is needed.
pub(super) fn dependencies_have_reasons(project: &Project<'_>) -> Vec<Violation> {
    let manifest = "Cargo.toml";
    let text = project.tree.text(manifest).unwrap_or_default();
    entries(text, |table| table == "workspace.dependencies")
        .into_iter()
        .filter(|entry| !entry.explained && !entry.text.contains("path ="))
        .map(|entry| {
            let advice = "explain in a comment above why it is needed";
            Violation::new("reasons", manifest, entry.line, entry.text, advice)
        })
        .collect()
}

#[derive(Debug)]
struct Entry<'a> {
    name: &'a str,
    line: usize,
    text: &'a str,
    /// Whether there is a comment above it or above its group.
    explained: bool,
}

/// Returns the dependencies in the tables of a manifest for which `wanted` is true.
fn entries(manifest: &str, wanted: impl Fn(&str) -> bool) -> Vec<Entry<'_>> {
    let mut found = Vec::new();
    let mut inside = false;
    let mut explained = false;
    for (index, text) in manifest.lines().enumerate() {
        let trimmed = text.trim();
        if trimmed.is_empty() {
            explained = false;
        } else if trimmed.starts_with('#') {
            explained = true;
        } else if let Some(table) = table_name(trimmed) {
            inside = wanted(table);
            // `[dependencies.name]` is one dependency.
            if let Some((_, name)) = table.rsplit_once('.').filter(|(parent, _)| wanted(parent)) {
                found.push(Entry {
                    name,
                    line: index + 1,
                    text,
                    explained,
                });
                inside = false;
            }
        } else if let Some(name) = dependency_name(text).filter(|_| inside) {
            found.push(Entry {
                name,
                line: index + 1,
                text,
                explained,
            });
        }
    }
    found
}

fn table_name(line: &str) -> Option<&str> {
    line.strip_prefix('[')?.split(']').next()
}

/// Returns the name before `=` or `.workspace`; `None` for the indented continuation lines of a long entry.
fn dependency_name(line: &str) -> Option<&str> {
    if line.starts_with([' ', '\t', ']', '}']) {
        return None;
    }
    let (key, _) = line.split_once('=')?;
    Some(key.trim().split('.').next().unwrap_or_default())
}

const CLOSED_LISTS: [(&str, &[&str]); 2] = [
    (
        "crates/bowline-types/Cargo.toml",
        &["base64", "bytes", "serde", "serde_json", "thiserror"],
    ),
    (
        "crates/bowline-core/Cargo.toml",
        &[
            "base64",
            "bowline-types",
            "bytes",
            "http",
            "memchr", // splits objects without decoding them
            "serde",
            "serde_json",
            "sha2",
            "thiserror",
        ],
    ),
];

#[cfg(test)]
mod tests {
    use super::super::tests::lines;
    use super::*;

    #[test]
    fn a_runtime_among_the_core_s_dependencies_is_found() {
        let manifest = "[package]\nname = \"x\"\n[dependencies]\nbytes.workspace = true\ntokio = \"1\"\n[dev-dependencies]\ntokio = \"1\"\n[target.'cfg(unix)'.dependencies]\nlibc = \"1\"\n[dependencies.mio]\nversion = \"1\"\n";

        let found = lines(
            core_dependencies_are_listed,
            "crates/bowline-core/Cargo.toml",
            manifest,
        );

        assert_eq!(found, [5, 9, 10]);
    }

    #[test]
    fn a_dependency_without_a_reason_is_found() {
        let manifest = "[workspace.dependencies]\nours = { path = \"a\" }\n\n# For buffers.\nbytes = \"1\"\nserde = {\n    version = \"1\"\n}\n\ntokio = \"1\"\n";

        let found = lines(dependencies_have_reasons, "Cargo.toml", manifest);

        assert_eq!(found, [10], "serde belongs to the group that is explained");
    }
}
