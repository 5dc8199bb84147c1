//! Credentials in files that only their owner can read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline::exchange::BoxFuture;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::{Saved, TokenStore, off_the_runtime};
use crate::client::credentials::Credentials;
use crate::client::user_agent::AppError;

/// Keeps the credentials for each server in a file of its own, which only its owner may read, with a lock file
/// beside it: processes may share the folder, if its file system has locks.
///
/// Outside Unix the files have whatever permissions their folder gives them.
#[derive(Clone, Debug)]
pub struct FileStore {
    folder: PathBuf,
}

impl FileStore {
    /// Keeps files in this folder, which is made if it is not there.
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
        off_the_runtime(move || read(&path))
    }

    fn save<'a>(
        &'a self,
        key: &'a str,
        credentials: &'a Credentials,
        replaces: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Saved, AppError>> {
        let (folder, path) = (self.folder.clone(), self.path(key));
        let text = serde_json::to_vec(credentials).map(Zeroizing::new);
        let replaces = replaces.map(str::to_owned);
        off_the_runtime(move || {
            make_folder(&folder)?;
            let _locked = lock(&path)?;
            let saved = Saved::if_same(read(&path)?.as_ref(), replaces.as_deref());
            if saved == Saved::Yes {
                replace(&path, &text?)?;
            }
            Ok(saved)
        })
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), AppError>> {
        let (folder, path) = (self.folder.clone(), self.path(key));
        off_the_runtime(move || {
            make_folder(&folder)?;
            let _locked = lock(&path)?;
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

/// Locks a file beside the one with the credentials, until the result is dropped. Other processes wait: what is
/// read and replaced meanwhile is one step for them.
///
/// The lock file stays. Removing it would let a process that waits for it and one that makes it anew both go on.
fn lock(path: &Path) -> io::Result<File> {
    let path = path.with_extension("lock");
    let file = create_or_open(&path)?;
    file.lock()?;
    Ok(file)
}

/// Writes a file beside the old one and puts it in its place, so that there is always a whole one.
fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let draft = path.with_extension(URL_SAFE_NO_PAD.encode(random));
    let written = create(&draft).and_then(|mut file| {
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&draft, path)
    });
    if written.is_err() {
        // What is left of a draft contains secrets; that it cannot be removed changes nothing else.
        let _ = fs::remove_file(&draft);
    }
    written
}

fn create(path: &Path) -> io::Result<File> {
    private().write(true).create_new(true).open(path)
}

fn create_or_open(path: &Path) -> io::Result<File> {
    let mut options = private();
    options.write(true).create(true).truncate(false).open(path)
}

/// Options for files that only their owner can read.
#[cfg(unix)]
fn private() -> OpenOptions {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

#[cfg(not(unix))]
fn private() -> OpenOptions {
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
