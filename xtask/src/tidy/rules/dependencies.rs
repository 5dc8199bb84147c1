//! Dependencies: few, and each with a reason.

use super::{Project, Violation};

/// What the core may depend on is a closed list.
pub(super) fn the_core_depends_on_little(project: &Project<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (manifest, allowed) in CLOSED_LISTS {
        let text = project.tree.text(manifest).unwrap_or_default();
        for entry in entries(text, |table| {
            table == "dependencies" || table.ends_with(".dependencies")
        }) {
            if !allowed.contains(&entry.name) {
                let instead = "the protocol core has a closed list of dependencies: do without, or argue for it in xtask";
                found.push(Violation::new(
                    "core-dependencies",
                    manifest,
                    entry.line,
                    entry.text,
                    instead,
                ));
            }
        }
    }
    found
}

/// A dependency must be better than the fifty lines it replaces; the manifest says why it is.
pub(super) fn dependencies_have_reasons(project: &Project<'_>) -> Vec<Violation> {
    let manifest = "Cargo.toml";
    let text = project.tree.text(manifest).unwrap_or_default();
    entries(text, |table| table == "workspace.dependencies")
        .into_iter()
        .filter(|entry| !entry.explained && !entry.text.contains("path ="))
        .map(|entry| {
            let instead = "say in a comment above why it is worth having";
            Violation::new("reasons", manifest, entry.line, entry.text, instead)
        })
        .collect()
}

#[derive(Debug)]
struct Entry<'a> {
    name: &'a str,
    line: usize,
    text: &'a str,
    /// Whether a comment stands above it, or above the group it is in.
    explained: bool,
}

/// The dependencies in those tables of a manifest that `wanted` names.
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
            // `[dependencies.name]` is a dependency in itself.
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

/// The name before `=` or `.workspace`; nothing for the later lines of a long entry, which are indented.
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
            the_core_depends_on_little,
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
