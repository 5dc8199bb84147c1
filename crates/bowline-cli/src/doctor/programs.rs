//! Finds programs that are installed and not in the PATH.

use std::path::{Path, PathBuf};

/// Returns the full path of a program in the folders where installers put programs.
pub(crate) fn find_elsewhere(program: &str) -> Option<String> {
    let home = std::env::var_os("HOME").or_else(|| std::env::var_os("USERPROFILE"));
    find_in(program, &folders(home.as_deref().map(Path::new)))
}

/// Returns the full path of a program in one of these folders.
pub(crate) fn find_in(program: &str, folders: &[PathBuf]) -> Option<String> {
    if program.is_empty() || Path::new(program).components().count() != 1 {
        return None;
    }
    let names = [
        program.to_owned(),
        format!("{program}.exe"),
        format!("{program}.cmd"),
    ];
    let paths = folders
        .iter()
        .flat_map(|folder| names.iter().map(move |name| folder.join(name)));
    let found = paths.into_iter().find(|path| path.is_file())?;
    Some(found.to_string_lossy().into_owned())
}

fn folders(home: Option<&Path>) -> Vec<PathBuf> {
    let system = [
        "/usr/local/bin",
        "/opt/homebrew/bin",
        "/usr/bin",
        "/snap/bin",
    ];
    let own = [
        ".local/bin",
        ".cargo/bin",
        ".npm-global/bin",
        ".bun/bin",
        ".deno/bin",
        "go/bin",
    ];
    let system = system.iter().map(PathBuf::from);
    let own = home
        .into_iter()
        .flat_map(|home| own.iter().map(move |folder| home.join(folder)));
    own.chain(system).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_its_name_only() {
        let folder = std::env::temp_dir();
        let name = format!("bowline-doctor-{}", std::process::id());
        let path = folder.join(&name);
        std::fs::write(&path, "").unwrap();

        let found = find_in(&name, std::slice::from_ref(&folder));
        let nested = find_in(&format!("x/{name}"), &[folder]);

        assert_eq!(found.map(PathBuf::from), Some(path.clone()));
        assert_eq!(nested, None);
        std::fs::remove_file(path).unwrap();
    }
}
