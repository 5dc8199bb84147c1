//! [`FileStore`]: credentials in files that only their owner can read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline::exchange::BoxFuture;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::{SaveOutcome, TokenStore, run_blocking};
use crate::client::credentials::Credentials;
use crate::client::user_agent::AppError;

/// Stores the credentials for each key in a file with mode 0600, next to a lock file. Processes can share the folder if
/// its file system supports locks.
///
/// On other systems than Unix, the files inherit the permissions of their folder.
#[derive(Clone, Debug)]
pub struct FileStore {
    folder: PathBuf,
}

impl FileStore {
    /// Creates a store in this folder, which is created when needed.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
        }
    }

    fn path(&self, key: &str) -> PathBuf {
        let name = URL_SAFE_NO_PAD.encode(Sha256::digest(key));
        self.folder.join(format!("{name}.json"))
    }
}

impl TokenStore for FileStore {
    fn load<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Credentials>, AppError>> {
        let path = self.path(key);
        run_blocking(move || read(&path))
    }

    fn save<'a>(
        &'a self,
        key: &'a str,
        credentials: &'a Credentials,
        replaces: Option<&'a str>,
    ) -> BoxFuture<'a, Result<SaveOutcome, AppError>> {
        let (folder, path) = (self.folder.clone(), self.path(key));
        let text = serde_json::to_vec(credentials).map(Zeroizing::new);
        let replaces = replaces.map(str::to_owned);
        run_blocking(move || {
            make_folder(&folder)?;
            let _lock = lock(&path)?;
            let saved = SaveOutcome::compare_versions(read(&path)?.as_ref(), replaces.as_deref());
            if saved == SaveOutcome::Saved {
                replace(&path, &text?)?;
            }
            Ok(saved)
        })
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), AppError>> {
        let (folder, path) = (self.folder.clone(), self.path(key));
        run_blocking(move || {
            make_folder(&folder)?;
            let _lock = lock(&path)?;
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
                _ => Ok(()),
            }
        })
    }
}

fn read(path: &Path) -> Result<Option<Credentials>, AppError> {
    match fs::read(path).map(Zeroizing::new) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Locks the lock file next to `path` until the result is dropped, so that other processes see a read and replace as
/// one step.
///
/// The lock file is never removed: a process waiting for the removed file and one that created it anew would both hold
/// a lock.
fn lock(path: &Path) -> io::Result<File> {
    let path = path.with_extension("lock");
    let file = create_or_open(&path)?;
    file.lock()?;
    Ok(file)
}

/// Writes a temporary file and renames it over `path`, so that readers never see a partial file.
fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let temporary = path.with_extension(URL_SAFE_NO_PAD.encode(random));
    let written = create(&temporary).and_then(|mut file| {
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    });
    if written.is_err() {
        // A partial file contains secrets. The first error is reported, not that of the removal.
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn create(path: &Path) -> io::Result<File> {
    private_options().write(true).create_new(true).open(path)
}

fn create_or_open(path: &Path) -> io::Result<File> {
    let mut options = private_options();
    options.write(true).create(true).truncate(false).open(path)
}

/// Returns options for files that only their owner can read.
#[cfg(unix)]
fn private_options() -> OpenOptions {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

#[cfg(not(unix))]
fn private_options() -> OpenOptions {
    OpenOptions::new()
}

#[cfg(unix)]
fn make_folder(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
}

#[cfg(not(unix))]
fn make_folder(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)
}
