//! The file of a recording.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use bowline_recording::Timestamp;

/// Creates a file that did not exist before, readable by its owner only.
///
/// A host may start the same command several times, so an existing file is neither an error nor overwritten: `a.jsonl`
/// becomes `a-2.jsonl`. In a folder, the file is named after the time.
pub(super) fn create(path: &Path) -> io::Result<(File, PathBuf)> {
    let path = match path.is_dir() {
        true => path.join(format!("{}.jsonl", Timestamp::now()).replace(':', "-")),
        false => path.to_owned(),
    };
    for number in 1..MAX_FILES {
        let candidate = numbered(&path, number);
        match open_new(&candidate) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(file) => return Ok((file, candidate)),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn open_new(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    options.open(path)
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    if number == 1 {
        return path.to_owned();
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let name = match path.extension() {
        Some(extension) => format!("{stem}-{number}.{}", extension.to_string_lossy()),
        None => format!("{stem}-{number}"),
    };
    path.with_file_name(name)
}

const MAX_FILES: u32 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_existing_file_is_not_overwritten() {
        let folder = std::env::temp_dir().join(format!("bowline-record-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("a.jsonl");

        let names = [(); 3].map(|()| create(&path).unwrap().1);
        let in_folder = create(&folder).unwrap().1;

        assert_eq!(
            names,
            ["a.jsonl", "a-2.jsonl", "a-3.jsonl"].map(|name| folder.join(name))
        );
        assert_eq!(in_folder.parent(), Some(folder.as_path()));
        assert!(create(&folder.join("missing").join("a.jsonl")).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
