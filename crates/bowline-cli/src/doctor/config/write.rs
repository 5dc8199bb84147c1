//! Replaces a file at once, after a copy of it was made.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Writes `text` in place of `expected`, and returns the path of the copy of the old file.
///
/// # Errors
///
/// If the file has another content than `expected` meanwhile, or cannot be written. It then is as it was.
pub(crate) fn replace(file: &Path, expected: &str, text: &str) -> io::Result<PathBuf> {
    // The file itself, if this is a link to it.
    let file = file.canonicalize()?;
    if fs::read_to_string(&file)? != expected {
        return Err(io::Error::other("the file was changed meanwhile"));
    }
    let backup = copy_beside(&file)?;
    let temporary = beside(&file, "bowline-new");
    let written = write_new(&temporary, &file, text).and_then(|()| fs::rename(&temporary, &file));
    if let Err(error) = written {
        // Both are of no use then. The old file was not touched.
        let _ = fs::remove_file(&temporary);
        let _ = fs::remove_file(&backup);
        return Err(error);
    }
    Ok(backup)
}

fn write_new(path: &Path, like: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::File::create_new(path)?;
    // Before the text is written: it may contain secrets.
    file.set_permissions(fs::metadata(like)?.permissions())?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Copies a file to a name that is free, with its permissions.
fn copy_beside(file: &Path) -> io::Result<PathBuf> {
    for number in 1..=MAX_BACKUPS {
        let suffix = match number {
            1 => "bowline-backup".to_owned(),
            number => format!("bowline-backup-{number}"),
        };
        let backup = beside(file, &suffix);
        match write_new(&backup, file, &fs::read_to_string(file)?) {
            Ok(()) => return Ok(backup),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(format!(
        "there are {MAX_BACKUPS} backups of it already"
    )))
}

fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    PathBuf::from(name)
}

const MAX_BACKUPS: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("bowline-write-{}-{name}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        folder
    }

    #[test]
    fn the_old_file_is_kept_beside_the_new_one_under_a_free_name() {
        let folder = folder("kept");
        let file = folder.join("mcp.json");
        fs::write(&file, "one").unwrap();

        let first = replace(&file, "one", "two").unwrap();
        let second = replace(&file, "two", "three").unwrap();

        assert_eq!(fs::read_to_string(&file).unwrap(), "three");
        assert_eq!(fs::read_to_string(&first).unwrap(), "one");
        assert_eq!(fs::read_to_string(&second).unwrap(), "two");
        assert!(first.ends_with("mcp.json.bowline-backup"));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 3);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_file_that_was_changed_meanwhile_is_not_touched() {
        let folder = folder("changed");
        let file = folder.join("mcp.json");
        fs::write(&file, "other").unwrap();

        assert!(replace(&file, "one", "two").is_err());

        assert_eq!(fs::read_to_string(&file).unwrap(), "other");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(folder).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn links_and_permissions_stay() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};

        let folder = folder("links");
        let (file, link) = (folder.join("real.json"), folder.join("mcp.json"));
        fs::write(&file, "one").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        symlink(&file, &link).unwrap();

        let backup = replace(&link, "one", "two").unwrap();

        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "two");
        for path in [&file, &backup] {
            assert_eq!(
                fs::metadata(path).unwrap().permissions().mode() & 0o777,
                0o600
            );
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
