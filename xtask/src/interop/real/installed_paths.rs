//! `InstalledPaths`: installs a program, and replaces the placeholders in its command line.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::peers::{PROGRAMS, build_in, copy_programs, folder_of};
use super::peers::{Package, RealPeer, ToolCase};
use crate::{external_tools, process};

/// The paths of an installed program.
#[derive(Debug)]
pub(super) struct InstalledPaths {
    /// The placeholders and their values.
    filled: Vec<(&'static str, String)>,
}

impl InstalledPaths {
    /// Installs the program, if necessary.
    pub(super) fn install(root: &Path, peer: &RealPeer, data: &Path) -> io::Result<Self> {
        let folder = folder_of(root, peer.name);
        copy_programs(root, "real", &folder)?;
        let mut filled = vec![("{programs}", folder.clone()), ("{data}", data.to_owned())];
        match &peer.package {
            Package::Npm(packages) => {
                external_tools::npm_install_once(&folder, packages)?;
                filled.push(("{bin}", folder.join("node_modules/.bin")));
                let node = external_tools::node(&process::target_folder(root))?;
                filled.push(("{node}", node));
            }
            Package::Pip(packages) => {
                let checks = root.join(PROGRAMS).join("python/checks.py");
                fs::copy(checks, folder.join("checks.py"))?;
                let python = external_tools::python(&folder.join("packages"), packages)?;
                filled.push(("{bin}", folder.join("packages/bin")));
                filled.push(("{python}", python));
            }
            Package::Cargo(programs) => {
                filled.push(("{bin}", build_in(root, programs, &folder)?));
            }
        }
        let filled = filled.into_iter();
        let filled = filled.map(|(name, path)| (name, path.display().to_string()));
        Ok(Self {
            filled: filled.collect(),
        })
    }

    /// Splits a command line into words, and replaces the placeholders.
    pub(super) fn words(&self, line: &str, port: u16) -> Vec<String> {
        let words = line.split_whitespace().map(|word| self.fill(word));
        let port = port.to_string();
        words.map(|word| word.replace(PORT, &port)).collect()
    }

    fn fill(&self, text: &str) -> String {
        let filled = self.filled.iter();
        filled.fold(text.to_owned(), |text, (name, path)| {
            text.replace(name, path)
        })
    }
}

impl ToolCase {
    /// Returns the options of our client for this case.
    pub(super) fn words(&self, paths: &InstalledPaths) -> Vec<String> {
        let mut words = vec!["--tool", self.tool, self.arguments, self.expected];
        if let Some((tool, arguments)) = self.slow {
            words.extend(["--slow", tool, arguments]);
        }
        words.into_iter().map(|word| paths.fill(word)).collect()
    }
}

/// Creates the data for servers of files and repositories: a file, and a repository without a commit.
pub(super) fn data(root: &Path) -> io::Result<PathBuf> {
    let data = process::target_folder(root).join("interop/data");
    let repository = data.join("repository");
    fs::create_dir_all(&repository)?;
    fs::write(data.join("hello.txt"), "Hello from a file.\n")?;
    let mut git = Command::new("git");
    git.args(["init", "--quiet"]).arg(&repository);
    match process::run(&mut git) {
        Ok(true) => Ok(data.canonicalize()?),
        Ok(false) => Err(io::Error::other("git failed to create a repository")),
        Err(_) => Err(io::Error::other("git is not installed")),
    }
}

const PORT: &str = "{port}";

#[cfg(test)]
mod tests {
    use super::super::peers::{PEERS, Role};
    use super::*;

    fn paths() -> InstalledPaths {
        let names = ["{programs}", "{data}", "{bin}", "{node}", "{python}"];
        let filled = names.map(|name| (name, "/path with spaces".to_owned()));
        InstalledPaths {
            filled: filled.into(),
        }
    }

    #[test]
    fn a_path_with_spaces_stays_one_word() {
        let words = paths().words("env PORT={port} {bin}/server stdio", 3000);

        assert_eq!(
            words,
            ["env", "PORT=3000", "/path with spaces/server", "stdio"]
        );
    }

    #[test]
    fn every_placeholder_of_the_table_is_replaced() {
        for peer in PEERS {
            for launch in peer.launches {
                let mut words = paths().words(launch.start, 3000);
                if let Role::Server(case) = &launch.role {
                    words.push(case.tool.to_owned());
                    words.extend(case.words(&paths()));
                }
                let is_filled = |word: &String| !word.contains("{b") && !word.contains("{p");
                assert!(words.iter().all(is_filled), "{}: {words:?}", peer.name);
            }
        }
    }
}
