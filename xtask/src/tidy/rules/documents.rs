//! Documents: cancel-safety sections, reasons of dependencies, metadata of packages, paths in ARCHITECTURE.md, and no
//! paths of one machine.

use super::{Project, Violation};
use crate::tree::Tree;

/// Dropping a future cancels its operation, so each public async function documents its cancel safety.
pub(super) fn async_functions_document_cancel_safety(project: &Project<'_>) -> Vec<Violation> {
    let advice =
        "add a section `# Cancel safety`: the state after the future was dropped at an await";
    let mut found = Vec::new();
    for source in project.crate_sources() {
        for line in source.lines.iter().filter(|line| !line.in_test) {
            let public = line.code.trim_start().starts_with("pub async fn ");
            if public && !source.docs_above(line.number).contains("# Cancel safety") {
                found.push(source.violation("cancel-safety", line, advice));
            }
        }
    }
    found
}

/// The manifest states above each dependency, or above its group, why it is needed.
pub(super) fn dependencies_have_reasons(project: &Project<'_>) -> Vec<Violation> {
    let manifest = "Cargo.toml";
    let advice = "explain in a comment above why it is needed";
    let mut found = Vec::new();
    let (mut is_inside, mut is_explained) = (false, false);
    let text = project.tree.text(manifest).unwrap_or_default();
    for (index, line) in text.lines().enumerate() {
        match line.chars().next() {
            None => is_explained = false,
            Some('#') => is_explained = true,
            Some('[') => is_inside = line == "[workspace.dependencies]",
            Some(first) => {
                let is_entry = is_inside && first.is_alphanumeric() && !line.contains("path =");
                if is_entry && !is_explained {
                    found.push(Violation::new("reasons", manifest, index + 1, line, advice));
                }
            }
        }
    }
    found
}

/// Every crate in `crates/` has the metadata that crates.io shows, a README and the licenses.
pub(super) fn crates_can_be_published(project: &Project<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in project.tree.files() {
        let folder = file.path.strip_suffix("/Cargo.toml");
        let Some(folder) = folder.filter(|folder| folder.starts_with("crates/")) else {
            continue;
        };
        let manifest = file.text().unwrap_or_default();
        let has_key = |key: &&str| {
            manifest.lines().any(|line| {
                let rest = line.strip_prefix(*key).unwrap_or_default();
                rest.starts_with(" = ") || rest.starts_with(".workspace = ")
            })
        };
        let keys = METADATA.iter().filter(|key| !has_key(key));
        let keys = keys.map(|key| format!("add `{key}`, which crates.io shows"));
        let is_missing = |name: &&&str| project.tree.text(&format!("{folder}/{name}")).is_none();
        let files = PACKAGE_FILES.iter().filter(is_missing);
        let files = files.map(|name| format!("add {folder}/{name}, which the package contains"));
        for advice in keys.chain(files) {
            found.push(Violation::new("packages", &file.path, 0, "", &advice));
        }
    }
    found
}

const METADATA: [&str; 6] = [
    "description",
    "license",
    "rust-version",
    "include",
    "keywords",
    "categories",
];

const PACKAGE_FILES: [&str; 3] = ["README.md", "LICENSE-APACHE", "LICENSE-MIT"];

/// All paths in ARCHITECTURE.md exist.
pub(super) fn architecture_paths_exist(project: &Project<'_>) -> Vec<Violation> {
    let document = "ARCHITECTURE.md";
    let mut found = Vec::new();
    let text = project.tree.text(document).unwrap_or_default();
    for (index, line) in text.lines().enumerate() {
        // Every second part is between backticks.
        for quoted in line.split('`').skip(1).step_by(2) {
            for path in alternatives(quoted) {
                if looks_like_a_path(&path) && !exists(&path, project.tree) {
                    let advice = format!("`{path}` does not exist: update the page");
                    let at = index + 1;
                    found.push(Violation::new("architecture", document, at, line, &advice));
                }
            }
        }
    }
    found
}

/// No file names a folder of one machine.
pub(super) fn no_machine_paths(project: &Project<'_>) -> Vec<Violation> {
    let advice = "use a path relative to the project, or an invented one such as file:///project";
    let mut found = Vec::new();
    for file in project.tree.files() {
        for (index, line) in file.text().unwrap_or_default().lines().enumerate() {
            let named = MACHINE_FOLDERS.iter().any(|folder| {
                // After a letter it is part of a URL.
                line.match_indices(&format!("/{folder}/"))
                    .any(|(at, _)| !line[..at].ends_with(char::is_alphanumeric))
            });
            if named {
                let at = index + 1;
                found.push(Violation::new(
                    "machine-paths",
                    &file.path,
                    at,
                    line,
                    advice,
                ));
            }
        }
    }
    found
}

/// Expands `a/{b,c}.rs` to `a/b.rs` and `a/c.rs`.
fn alternatives(path: &str) -> Vec<String> {
    let braces = path
        .split_once('{')
        .and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
    match braces {
        None => vec![path.to_owned()],
        Some((before, (inside, after))) => inside
            .split(',')
            .map(|choice| format!("{before}{}{after}", choice.trim()))
            .collect(),
    }
}

/// Requires an ending or a known folder, because methods (`tools/call`) and media types have slashes too.
fn looks_like_a_path(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/*".contains(c);
    let in_folder = |folder: &str| {
        text.strip_prefix(folder)
            .is_some_and(|rest| rest.starts_with('/'))
    };
    text.chars().all(plain)
        && text.len() > 1
        && (text.ends_with('/')
            || FOLDERS.iter().any(|folder| in_folder(folder))
            || ENDINGS.iter().any(|ending| text.ends_with(ending)))
}

/// Returns whether the path of a file or folder of the project is this path or ends with it.
fn exists(path: &str, tree: &Tree) -> bool {
    let place = path.split('*').next().unwrap_or_default();
    let place = place.trim_end_matches('/');
    tree.files().iter().any(|file| {
        format!("/{}", file.path)
            .match_indices(&format!("/{place}"))
            .any(|(at, matched)| {
                let rest = &file.path[(at + matched.len() - 1).min(file.path.len())..];
                rest.is_empty() || rest.starts_with('/') || path.contains('*')
            })
    })
}

const FOLDERS: [&str; 9] = [
    "crates",
    "examples",
    "scenarios",
    "conformance",
    "bench",
    "fuzz",
    "xtask",
    "mutants",
    ".ci",
];

const ENDINGS: [&str; 6] = [".rs", ".md", ".toml", ".patch", ".json", ".lock"];

const MACHINE_FOLDERS: [&str; 4] = ["work", "root", "home", "Users"];

#[cfg(test)]
mod tests {
    use super::super::tests::lines;
    use super::*;
    use crate::tree::tests::tree;

    #[test]
    fn an_async_function_without_cancel_safety_docs_is_found() {
        let text = "/// A.\npub async fn a() {}\n\n/// B.\n///\n/// # Cancel safety\n///\n/// Safe.\n#[inline]\npub async fn b() {}\n";

        let found = lines(
            async_functions_document_cancel_safety,
            "crates/a/src/a.rs",
            text,
        );

        assert_eq!(found, [2]);
    }

    #[test]
    fn a_missing_path_in_the_architecture_is_found() {
        let page = "`crates/a/src/{b,c}.rs`, `era/b.rs`\n`tools/call`, `text/event-stream`, `a::b`\n`src/b.rs`, `crates/*/src/`, `crates/z/`, `b.rs`, `rc/b.rs`\n";
        let tree = tree(&[("ARCHITECTURE.md", page), ("crates/a/src/b.rs", "")]);

        let found = architecture_paths_exist(&Project::new(&tree));

        let missing: Vec<&str> = found
            .iter()
            .filter_map(|violation| violation.advice.split('`').nth(1))
            .collect();
        assert_eq!(
            missing,
            ["crates/a/src/c.rs", "era/b.rs", "crates/z/", "rc/b.rs"]
        );
    }

    #[test]
    fn a_machine_folder_is_found_in_any_text() {
        for folder in MACHINE_FOLDERS {
            let text = format!("cd /{folder}/me\n\nfile:///{folder}/me");
            assert_eq!(
                lines(no_machine_paths, "README.md", &text),
                [1, 3],
                "{folder}"
            );
        }
        assert!(lines(no_machine_paths, "README.md", "https://example.com/home/").is_empty());
    }

    #[test]
    fn a_crate_without_metadata_or_readme_is_found() {
        let manifest = "[package]\ndescription = \"A\"\nlicense.workspace = true\nrust-version.workspace = true\n\
                        include.workspace = true\nkeywords = []\n# categories = []\n";
        let tree = tree(&[
            ("crates/a/Cargo.toml", manifest),
            ("crates/a/LICENSE-APACHE", "a"),
            ("crates/a/LICENSE-MIT", "m"),
            ("crates/a/src/README.md", ""),
            ("xtask/Cargo.toml", ""),
        ]);

        let found = crates_can_be_published(&Project::new(&tree));

        let advice: Vec<&str> = found.iter().map(|it| it.advice.as_str()).collect();
        assert_eq!(advice.len(), 2, "{advice:?}");
        assert!(advice[0].contains("`categories`"), "{advice:?}");
        assert!(advice[1].contains("crates/a/README.md"), "{advice:?}");
    }

    #[test]
    fn a_dependency_without_a_reason_is_found() {
        let manifest = "[workspace.dependencies]\nours = { path = \"a\" }\n\n# For buffers.\nbytes = \"1\"\nserde = {\n    version = \"1\"\n}\n\ntokio = \"1\"\n";

        let found = lines(dependencies_have_reasons, "Cargo.toml", manifest);

        assert_eq!(found, [10], "serde belongs to the group that is explained");
    }
}
