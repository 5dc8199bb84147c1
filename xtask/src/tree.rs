//! `Tree`: the files of the project in memory, which `tidy` checks and `mutants` copies.

use std::fs;
use std::io;
use std::path::Path;

/// All files of the project, sorted by path.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    files: Vec<File>,
}

/// The path and content of one file.
#[derive(Debug)]
pub(crate) struct File {
    /// Relative to the root, with `/` between folders.
    pub(crate) path: String,
    pub(crate) bytes: Vec<u8>,
}

impl Tree {
    /// Reads everything below `root` except build output, version control and installed packages.
    pub(crate) fn read(root: &Path) -> io::Result<Self> {
        let mut files = Vec::new();
        collect(root, "", &mut files)?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { files })
    }

    pub(crate) fn files(&self) -> &[File] {
        &self.files
    }

    /// Returns the content of the file at `path`, if it exists and is text.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|file| file.path == path)?.text()
    }
}

impl File {
    /// Returns the content, unless it is binary.
    pub(crate) fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.bytes).ok()
    }
}

fn collect(folder: &Path, prefix: &str, files: &mut Vec<File>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // A module may have the name of the folder for build output.
        let is_module = prefix.ends_with("src/") && name == "target";
        if SKIPPED.contains(&name.as_str()) && !is_module {
            continue;
        }
        let path = format!("{prefix}{name}");
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), &format!("{path}/"), files)?;
        } else if entry.path().is_file() {
            // Also a link to a file, such as the licenses of the crates.
            let bytes = fs::read(entry.path())?;
            files.push(File { path, bytes });
        }
    }
    Ok(())
}

/// Names of files and folders that are skipped in every folder. In a worktree, `.git` is a file.
const SKIPPED: [&str; 5] = [".git", "target", "node_modules", ".venv", "__pycache__"];

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Builds a tree from paths and texts.
    pub(crate) fn tree(files: &[(&str, &str)]) -> Tree {
        let files = files
            .iter()
            .map(|(path, text)| File {
                path: (*path).to_owned(),
                bytes: text.as_bytes().to_vec(),
            })
            .collect();
        Tree { files }
    }

    #[test]
    fn the_project_contains_this_file_and_no_build_output() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();

        let tree = Tree::read(root).unwrap();

        assert!(tree.text("xtask/src/tree.rs").is_some());
        assert!(
            tree.files()
                .iter()
                .all(|file| !file.path.contains("target/debug/"))
        );
    }
}
