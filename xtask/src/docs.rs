//! `cargo xtask docs`: builds the guide in `docs/` with mdBook into the target folder. `tidy` checks its links, and its
//! code blocks are doctests of `bowline` and `bowline-auth`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use crate::markdown::links;
use crate::{external_tools, process};

/// Builds the guide; returns whether that succeeded, with all pages.
pub(crate) fn run(root: &Path) -> io::Result<bool> {
    let unlisted = Guide::read(&root.join("docs"))?.unlisted();
    for problem in &unlisted {
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
    Ok(unlisted.is_empty() && is_built)
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

    /// Returns a line for each page that the table of contents does not list, which mdBook would leave out.
    fn unlisted(&self) -> Vec<String> {
        let contents = self.0.get(CONTENTS).map_or("", String::as_str);
        let listed: BTreeSet<&str> = links(contents).map(|(_, page)| page).collect();
        let pages = self.0.keys().map(String::as_str);
        let unlisted = pages.filter(|page| *page != CONTENTS && !listed.contains(page));
        unlisted
            .map(|page| format!("docs/{page} is not listed in {CONTENTS}"))
            .collect()
    }
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
    fn the_guide_lists_its_pages() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");

        let unlisted = Guide::read(&docs).unwrap().unlisted();

        assert_eq!(unlisted, Vec::<String>::new());
    }

    #[test]
    fn an_unlisted_page_is_found() {
        let guide = guide(&[(CONTENTS, "[A](a.md)"), ("a.md", ""), ("b.md", "")]);

        assert_eq!(guide.unlisted(), ["docs/b.md is not listed in SUMMARY.md"]);
    }
}
