//! Credentials in files that only their owner can read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline::exchange::BoxFuture;
use sha2::{Digest as _, Sha256};

use super::{TokenStore, off_the_runtime};
use crate::client::credentials::Credentials;
use crate::client::user_agent::AppError;

/// Keeps the credentials for each server in a file of its own, which nobody but its owner may read.
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

    fn path(&self, server: &str) -> PathBuf {
        let name = URL_SAFE_NO_PAD.encode(Sha256::digest(server));
        self.folder.join(format!("{name}.json"))
    }
}

impl TokenStore for FileStore {
    fn load<'a>(&'a self, server: &'a str) -> BoxFuture<'a, Result<Option<Credentials>, AppError>> {
        let path = self.path(server);
        off_the_runtime(move || match fs::read(&path) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        })
    }

    fn save<'a>(
        &'a self,
        server: &'a str,
        credentials: &'a Credentials,
    ) -> BoxFuture<'a, Result<(), AppError>> {
        let (folder, path) = (self.folder.clone(), self.path(server));
        let text = serde_json::to_vec(credentials);
        off_the_runtime(move || {
            make_folder(&folder)?;
            Ok(replace(&path, &text?)?)
        })
    }
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

#[cfg(unix)]
fn create(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(not(unix))]
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
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
