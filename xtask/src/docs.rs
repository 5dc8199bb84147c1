//! `cargo xtask docs`: checks the links of the guide in `docs/`, and builds it with mdBook into the target folder. Its
//! code blocks are doctests of `bowline` and `bowline-auth`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use crate::{external_tools, process};

/// Builds the guide; returns whether its links are good and mdBook succeeded.
pub(crate) fn run(root: &Path) -> io::Result<bool> {
    let broken = Guide::read(&root.join("docs"))?.broken_links();
    for problem in &broken {
        println!("{problem}");
    }
    let target = process::target_folder(root);
    let mdbook = external_tools::cargo_install(root, "mdbook", VERSION)?;
    let mut build = Command::new(mdbook);
    build.arg("build").arg(root.join("docs"));
    build.arg("--dest-dir").arg(target.join("guide"));
    let is_built = process::run(&mut build)?;
    if is_built {
        println!("the guide is in {}", target.join("guide").display());
    }
    Ok(broken.is_empty() && is_built)
}

/// The pages of the guide, by file name.
#[derive(Debug)]
struct Guide(BTreeMap<String, String>);

impl Guide {
    fn read(folder: &Path) -> io::Result<Self> {
        let mut pages = BTreeMap::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "md") {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                pages.insert(name.into_owned(), fs::read_to_string(&path)?);
            }
        }
        Ok(Self(pages))
    }

    /// Returns a line for each link that leads nowhere, and for each page that the table of contents does not list.
    fn broken_links(&self) -> Vec<String> {
        let mut broken = Vec::new();
        for (name, text) in &self.0 {
            for link in links(text) {
                let (page, anchor) = link.split_once('#').unwrap_or((link, ""));
                let page = if page.is_empty() { name } else { page };
                match self.0.get(page) {
                    None => broken.push(format!("docs/{name}: `{link}`: there is no such page")),
                    Some(text) if anchor.is_empty() || anchors(text).contains(anchor) => {}
                    Some(_) => {
                        broken.push(format!("docs/{name}: `{link}`: there is no such heading"));
                    }
                }
            }
        }
        let contents = self.0.get(CONTENTS).map_or("", String::as_str);
        let listed: BTreeSet<&str> = links(contents).collect();
        let pages = self.0.keys().map(String::as_str);
        let unlisted = pages.filter(|page| *page != CONTENTS && !listed.contains(page));
        broken.extend(unlisted.map(|page| format!("docs/{page} is not listed in {CONTENTS}")));
        broken
    }
}

/// Iterates over the links to other pages of the guide, outside of code blocks.
fn links(text: &str) -> impl Iterator<Item = &str> {
    prose(text)
        .flat_map(|line| line.split("](").skip(1))
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target)
        .filter(|target| !target.contains("://") && !target.starts_with(".."))
}

/// Returns the anchors that mdBook gives to the headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter_map(|line| line.strip_prefix('#'));
    let anchor = |heading: &str| {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        });
        kept.collect()
    };
    headings.map(anchor).collect()
}

/// Iterates over the lines that are not in code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

const CONTENTS: &str = "SUMMARY.md";
const VERSION: &str = "0.5.4";

#[cfg(test)]
mod tests {
    use super::*;

    fn guide(pages: &[(&str, &str)]) -> Guide {
        let pages = pages.iter();
        Guide(
            pages
                .map(|(name, text)| (name.to_string(), text.to_string()))
                .collect(),
        )
    }

    #[test]
    fn the_links_of_the_guide_lead_somewhere() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");

        let broken = Guide::read(&docs).unwrap().broken_links();

        assert_eq!(broken, Vec::<String>::new());
    }

    #[test]
    fn missing_pages_missing_headings_and_unlisted_pages_are_found() {
        let guide = guide(&[
            (CONTENTS, "[A](a.md)"),
            (
                "a.md",
                "# One & two\n[x](b.md) [y](c.md) [z](#one--two) [w](b.md#no)\n```text\n[v](d.md)\n```",
            ),
            (
                "b.md",
                "see <https://example.org> and [e](https://example.org/f.md)",
            ),
        ]);

        let broken = guide.broken_links();

        assert_eq!(
            broken,
            [
                "docs/a.md: `c.md`: there is no such page",
                "docs/a.md: `b.md#no`: there is no such heading",
                "docs/b.md is not listed in SUMMARY.md",
            ]
        );
    }
}
