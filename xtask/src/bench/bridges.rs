//! The bridges that `cargo xtask bench bridge` compares `bowline bridge` with.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::{external_tools, process};

/// A published bridge, in the version that the results name.
struct OtherBridge {
    /// The name in the report.
    name: &'static str,
    version: &'static str,
    source: Source,
}

enum Source {
    /// The package, and its program.
    Npm(&'static str, &'static str),
    /// The packages, and the program.
    Pip(&'static [&'static str], &'static str),
}

/// Installs the bridges below the target folder. Returns a file with a line for each: name, version, and the words of its
/// command line, or the reason why it could not be installed. The others are still measured then.
pub(super) fn install(root: &Path) -> io::Result<PathBuf> {
    let folder = process::target_folder(root).join("bridges");
    fs::create_dir_all(&folder)?;
    let mut lines = String::new();
    for bridge in BRIDGES {
        let mut fields = vec![bridge.name.to_owned(), bridge.version.to_owned()];
        match bridge.install(root, &folder) {
            Ok(command) => {
                fields.push("command".to_owned());
                fields.extend(command);
            }
            Err(error) => {
                println!("failed to install {}: {error}", bridge.name);
                let error = error.to_string().replace(['\t', '\n'], " ");
                fields.extend(["error".to_owned(), error]);
            }
        }
        lines.push_str(&fields.join("\t"));
        lines.push('\n');
    }
    let file = folder.join("bridges.txt");
    fs::write(&file, lines)?;
    Ok(file)
}

impl OtherBridge {
    /// Returns the first words of its command line.
    fn install(&self, root: &Path, folder: &Path) -> io::Result<Vec<String>> {
        // Absolute, because the benchmark may start it in another folder.
        let folder = std::path::absolute(folder.join(self.name))?;
        let words = match self.source {
            Source::Npm(package, program) => {
                let package = format!("{package}@{}", self.version);
                external_tools::npm_install_once(&folder, &[&package])?;
                let node =
                    external_tools::node(&std::path::absolute(process::target_folder(root))?)?;
                // Not through `npx` or a shell, whose process would be measured instead.
                let program = folder.join("node_modules/.bin").join(program);
                vec![node, program.canonicalize()?]
            }
            Source::Pip(packages, program) => {
                let python = external_tools::python(&folder, packages)?;
                vec![python, folder.join("bin").join(program)]
            }
        };
        let words = words.iter().map(|word| word.display().to_string());
        Ok(words.collect())
    }
}

const BRIDGES: &[OtherBridge] = &[
    OtherBridge {
        name: "mcp-proxy",
        version: "6.7.19",
        source: Source::Npm("mcp-proxy", "mcp-proxy"),
    },
    OtherBridge {
        name: "supergateway",
        version: "4.0.0",
        source: Source::Npm("supergateway", "supergateway"),
    },
    OtherBridge {
        name: "FastMCP",
        version: "4.1.2",
        // The SDK is that of `cargo xtask interop --real`.
        source: Source::Pip(&["fastmcp==4.1.2", "mcp==2.3.0"], "fastmcp"),
    },
];
