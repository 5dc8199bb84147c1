//! [`Machine`], what the places of configuration files depend on. A value, so that tests can be any machine.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Which rules for paths apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Platform {
    Linux,
    MacOs,
    Windows,
}

/// The home directory, the environment and the current directory of a user.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) platform: Platform,
    /// `None` if it is not known; only the files of projects are found then.
    pub(crate) home: Option<PathBuf>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) cwd: PathBuf,
}

impl Machine {
    /// Returns this machine.
    pub(crate) fn current() -> Self {
        let platform = if cfg!(windows) {
            Platform::Windows
        } else if cfg!(target_os = "macos") {
            Platform::MacOs
        } else {
            Platform::Linux
        };
        let home = std::env::home_dir().filter(|home| home.is_absolute());
        // Values that are not Unicode cannot be the value of any member of a file.
        let env = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        Self {
            platform,
            home,
            env: env.collect(),
            cwd: std::env::current_dir().unwrap_or_default(),
        }
    }

    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.env.get(name).map(String::as_str)
    }

    /// Returns the absolute path in a variable.
    pub(super) fn path_variable(&self, name: &str) -> Option<PathBuf> {
        let value = self.variable(name).filter(|value| !value.is_empty());
        value.map(PathBuf::from)
    }

    /// The folder for the settings of programs by the rules of the XDG base directories: on Linux, and on macOS for
    /// programs that follow them there too.
    pub(super) fn xdg_config(&self) -> Option<PathBuf> {
        self.path_variable("XDG_CONFIG_HOME")
            .or_else(|| self.home_path(".config"))
    }

    /// The folder for the settings of programs by the rules of the platform.
    pub(super) fn config(&self) -> Option<PathBuf> {
        match self.platform {
            Platform::Linux => self.xdg_config(),
            Platform::MacOs => self.home_path("Library/Application Support"),
            Platform::Windows => {
                let set = self.path_variable("APPDATA");
                set.or_else(|| self.home_path("AppData/Roaming"))
            }
        }
    }

    /// The folder for settings that stay on this machine (Windows only).
    pub(super) fn local_app_data(&self) -> Option<PathBuf> {
        let set = self.path_variable("LOCALAPPDATA");
        set.or_else(|| self.home_path("AppData/Local"))
    }

    pub(super) fn home_path(&self, path: &str) -> Option<PathBuf> {
        self.home.as_ref().map(|home| home.join(path))
    }

    /// Returns the directories that may contain project files, the nearest first: the current one and those above it, up
    /// to the root of the repository or below the home directory.
    pub(super) fn project_dirs(&self, exists: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
        let mut dirs = Vec::new();
        for dir in self.cwd.ancestors().take(MAX_ANCESTORS) {
            let is_home = self.home.as_deref() == Some(dir);
            if is_home && !dirs.is_empty() {
                break;
            }
            dirs.push(dir.to_owned());
            if exists(&dir.join(".git")) {
                break;
            }
        }
        dirs
    }
}

/// Access to files, so that tests need none.
pub(crate) trait Files {
    /// Returns the text of a file; `None` if there is no such file.
    fn read(&self, path: &Path) -> io::Result<Option<String>>;

    fn exists(&self, path: &Path) -> bool;
}

/// The files of this machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiskFiles;

impl Files for DiskFiles {
    fn read(&self, path: &Path) -> io::Result<Option<String>> {
        let is_missing = |error: &io::Error| {
            matches!(
                error.kind(),
                io::ErrorKind::NotFound
                    | io::ErrorKind::NotADirectory
                    | io::ErrorKind::IsADirectory
            )
        };
        let file = match std::fs::metadata(path) {
            // A pipe would never end.
            Ok(metadata) if !metadata.is_file() => return Ok(None),
            Ok(_) => std::fs::File::open(path)?,
            Err(error) if is_missing(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            let message = format!("the file exceeds the limit of {MAX_FILE_BYTES} bytes");
            return Err(io::Error::other(message));
        }
        let text = String::from_utf8(bytes);
        text.map(Some)
            .map_err(|_| io::Error::other("the file is not UTF-8"))
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }
}

const MAX_ANCESTORS: usize = 64;
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;
