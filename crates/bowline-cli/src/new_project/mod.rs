//! `bowline new`: writes a small server project that compiles, with a test.

mod name;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::OutputOptions;
use name::CrateName;

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct NewOptions {
    /// The name of the project, and of the folder that is created for it.
    name: CrateName,
    /// The folder of a clone of the SDK's repository, which the project depends on: the SDK is not published yet.
    #[arg(long, value_name = "SDK_CHECKOUT")]
    path: PathBuf,
    #[command(flatten)]
    output: OutputOptions,
}

/// Writes the project into a new folder in the current one.
///
/// # Errors
///
/// If the folder exists, or cannot be written.
pub(crate) fn run(options: &NewOptions) -> Result<Exit, Failure> {
    let name = options.name.as_str();
    let current = std::env::current_dir()
        .map_err(|error| Failure::other("failed to read the current folder").caused_by(error))?;
    let folder = current.join(name);
    let bowline = path_dependency(&current.join(&options.path))?;
    let files = render(name, &bowline, &folder);
    write(&folder, &files)?;

    let output = options.output.output();
    if output.is_json() {
        let names: Vec<_> = files.iter().map(|(path, _)| *path).collect();
        output.json(&json!({"name": name, "folder": folder.to_string_lossy(), "files": names}))?;
    } else {
        output.line(format!("created {name}: {}", summary(&files)))?;
        output.line(format!("next: cd {name} && cargo test"))?;
    }
    Ok(Exit::Success)
}

fn summary(files: &[(&str, String)]) -> String {
    files
        .iter()
        .map(|(path, _)| *path)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Returns the dependency on a checkout.
fn path_dependency(checkout: &Path) -> Result<String, Failure> {
    let sdk = checkout.join("crates").join("bowline");
    if !sdk.join("Cargo.toml").is_file() {
        let message = format!(
            "{} is not a checkout of the SDK: it has no crates/bowline",
            checkout.display()
        );
        return Err(Failure::usage(message)
            .hint("give the folder with the workspace's Cargo.toml, with --path SDK_CHECKOUT"));
    }
    let sdk = sdk.canonicalize().unwrap_or(sdk);
    // A JSON string is a TOML string, too.
    let path = json!(sdk.to_string_lossy());
    Ok(format!("{{ path = {path} }}"))
}

/// Returns the files of a project with their paths.
fn render(name: &str, bowline: &str, folder: &Path) -> Vec<(&'static str, String)> {
    let folder = folder.to_string_lossy().replace('\\', "/");
    let fill = |template: &str| {
        let text = template
            .replace("{{name}}", name)
            .replace("{{bowline}}", bowline);
        text.replace("{{folder}}", &folder)
    };
    TEMPLATES
        .iter()
        .map(|(path, template)| (*path, fill(template)))
        .collect()
}

/// Writes the files into a folder that does not exist yet.
fn write(folder: &Path, files: &[(&str, String)]) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::other(format!("failed to write {}", folder.display())).caused_by(error)
    };
    if let Err(error) = fs::create_dir(folder) {
        if error.kind() == std::io::ErrorKind::AlreadyExists {
            let message = format!("{} exists already", folder.display());
            return Err(
                Failure::other(message).hint("choose another name, or remove the folder first")
            );
        }
        return Err(failed(error));
    }
    fs::create_dir(folder.join("src")).map_err(failed)?;
    for (path, text) in files {
        // The folder is new, so that a file which exists was put there by another process meanwhile.
        let mut file = fs::File::create_new(folder.join(path)).map_err(failed)?;
        file.write_all(text.as_bytes()).map_err(failed)?;
    }
    Ok(())
}

const TEMPLATES: [(&str, &str); 4] = [
    ("Cargo.toml", include_str!("template/Cargo.toml.txt")),
    ("src/main.rs", include_str!("template/main.rs.txt")),
    ("README.md", include_str!("template/README.md.txt")),
    (".gitignore", include_str!("template/gitignore.txt")),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_filled_completely() {
        let files = render("weather", "{ path = \"sdk\" }", Path::new("/tmp/weather"));

        for (path, text) in &files {
            assert!(!text.contains("{{"), "{path}: {text}");
        }
        assert!(files[0].1.contains("bowline = { path = \"sdk\" }"));
        assert!(files[2].1.contains("/tmp/weather/target/release/weather"));
    }

    #[test]
    fn a_folder_that_exists_is_not_touched() {
        let folder = std::env::temp_dir().join(format!("bowline-new-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();

        let refused = write(&folder, &render("weather", "\"0.1\"", &folder));

        assert!(refused.unwrap_err().to_string().contains("exists already"));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn a_checkout_is_recognized() {
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");

        let dependency = path_dependency(&checkout).unwrap();

        assert!(dependency.starts_with("{ path = \""), "{dependency}");
        assert!(path_dependency(Path::new("/nowhere")).is_err());
    }
}
