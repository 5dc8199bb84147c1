//! `cargo xtask otel`: compares the names of telemetry with the semantic conventions that OpenTelemetry publishes on
//! PyPI, which is pinned.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::{external_tools, process};

/// Compares the names; returns whether all of ours are published, and all published ones of MCP are ours.
pub(crate) fn run(root: &Path) -> io::Result<bool> {
    let folder = process::target_folder(root).join("otel");
    external_tools::python(&folder, &[PACKAGE])?;
    let published = Published::read(&package_folder(&folder)?)?;
    let ours = fs::read_to_string(root.join(NAMES))?;
    let problems = compare(&ours, &published);
    for problem in &problems {
        println!("{NAMES}: {problem}");
    }
    let count = names_of(&ours, "attribute").len() + names_of(&ours, "metric").len();
    println!("{count} names were compared with {PACKAGE}");
    Ok(problems.is_empty() && count > 0)
}

/// What the package contains.
struct Published {
    /// Every text in it.
    texts: BTreeSet<String>,
    /// The names of attributes and metrics of MCP.
    mcp: BTreeSet<String>,
    /// The versions of the conventions that it knows.
    schemas: BTreeSet<String>,
}

impl Published {
    fn read(folder: &Path) -> io::Result<Self> {
        let mut published = Self {
            texts: BTreeSet::new(),
            mcp: BTreeSet::new(),
            schemas: BTreeSet::new(),
        };
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder)? {
                let path = entry?.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|it| it == "py") {
                    published.add(&path, &fs::read_to_string(&path)?);
                }
            }
        }
        Ok(published)
    }

    fn add(&mut self, path: &Path, text: &str) {
        let name = path.file_name().unwrap_or_default();
        // `NAME: Final = "name"`
        let constants = text.lines().filter(|line| line.contains("Final = "));
        let values: Vec<String> = constants.filter_map(quoted).collect();
        if name == "mcp_attributes.py" || name == "mcp_metrics.py" {
            self.mcp.extend(values.iter().cloned());
        }
        if name == "schemas.py" {
            self.schemas.extend(text.lines().filter_map(quoted));
        }
        self.texts.extend(values);
    }
}

fn compare(ours: &str, published: &Published) -> Vec<String> {
    let mut names = names_of(ours, "attribute");
    names.extend(names_of(ours, "metric"));
    let unknown = names.difference(&published.texts);
    let mut problems: Vec<String> = unknown
        .map(|it| format!("`{it}` is not published"))
        .collect();
    let missing = published.mcp.difference(&names);
    problems.extend(missing.map(|it| format!("`{it}` is published, and missing here")));
    let schema = ours.lines().find(|line| line.contains("SCHEMA_URL"));
    let schema = schema.and_then(quoted).unwrap_or_default();
    if !published.schemas.contains(&schema) {
        problems.push(format!("the package does not know the schema `{schema}`"));
    }
    problems
}

/// Returns the texts of the constants in a module of the file.
fn names_of(file: &str, module: &str) -> BTreeSet<String> {
    let start = format!("pub mod {module} {{");
    let lines = file.lines().skip_while(|line| *line != start);
    let lines = lines.take_while(|line| *line != "}");
    let constants = lines.filter(|line| line.trim_start().starts_with("pub const"));
    constants.filter_map(quoted).collect()
}

/// Returns the first text in quotes of a line.
fn quoted(line: &str) -> Option<String> {
    let (_, rest) = line.split_once('"')?;
    let (text, _) = rest.split_once('"')?;
    Some(text.to_owned())
}

fn package_folder(environment: &Path) -> io::Result<PathBuf> {
    for entry in fs::read_dir(environment.join("lib"))? {
        let folder = entry?.path().join("site-packages/opentelemetry/semconv");
        if folder.exists() {
            return Ok(folder);
        }
    }
    Err(io::Error::other("the package has no folder `semconv`"))
}

const PACKAGE: &str = "opentelemetry-semantic-conventions==0.66b2";
const NAMES: &str = "crates/bowline/src/telemetry/names.rs";

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "pub const SCHEMA_URL: &str = \"s/1\";\npub mod attribute {\n    pub const A: &str = \"mcp.a\";\n}\npub mod metric {\n    pub const B: &str = \"mcp.b\";\n    pub const ALL: [&str; 1] = [B];\n}\n";

    fn published(mcp: &[&str]) -> Published {
        let set = |texts: &[&str]| texts.iter().map(|&it| it.to_owned()).collect();
        Published {
            texts: set(mcp),
            mcp: set(mcp),
            schemas: set(&["s/1"]),
        }
    }

    #[test]
    fn equal_names_are_accepted() {
        assert!(compare(OURS, &published(&["mcp.a", "mcp.b"])).is_empty());
    }

    #[test]
    fn a_name_that_only_one_side_has_is_found() {
        let problems = compare(OURS, &published(&["mcp.a", "mcp.c"]));

        assert_eq!(
            problems,
            [
                "`mcp.b` is not published",
                "`mcp.c` is published, and missing here"
            ]
        );
    }

    #[test]
    fn an_unknown_schema_is_found() {
        let ours = OURS.replace("s/1", "s/2");

        let problems = compare(&ours, &published(&["mcp.a", "mcp.b"]));

        assert_eq!(problems, ["the package does not know the schema `s/2`"]);
    }
}
