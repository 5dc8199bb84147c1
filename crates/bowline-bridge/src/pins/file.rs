//! [`PinsFile`]: the file that pins are stored in.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::ChangeKind;
use super::definition::ToolDefinition;
use crate::config::shortened;

/// A file of pins that cannot be read or written.
#[derive(Debug, Error)]
#[error("{problem}")]
pub struct PinsError {
    problem: String,
    source: Option<io::Error>,
}

/// The contents of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PinsFile {
    version: u32,
    #[serde(default)]
    servers: BTreeMap<String, ServerPins>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerPins {
    #[serde(default)]
    pinned: BTreeMap<String, ToolDefinition>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    quarantined: BTreeMap<String, ToolDefinition>,
}

impl PinsError {
    pub(super) fn ambiguous(server: &str, tool: &str) -> Self {
        let (server, tool) = (shortened(server), shortened(tool));
        Self {
            problem: format!(
                "cannot accept `{tool}` of `{server}`: its definition is ambiguous, nested too deeply or too large; the \
                 server must change it"
            ),
            source: None,
        }
    }

    fn new(what: &str, path: &Path, source: io::Error) -> Self {
        Self {
            problem: format!("failed to {what} {}", path.display()),
            source: Some(source),
        }
    }
}

impl Default for PinsFile {
    fn default() -> Self {
        Self {
            version: VERSION,
            servers: BTreeMap::new(),
        }
    }
}

impl PinsFile {
    pub(super) fn read(path: &Path) -> Result<Self, PinsError> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && has_folder(path) => {
                return Ok(Self::default());
            }
            text => text.map_err(|error| PinsError::new("read", path, error))?,
        };
        let parsed: Result<Self, _> = serde_json::from_str(&text);
        let contents = parsed.map_err(|error| PinsError::new("parse", path, error.into()))?;
        if contents.version != VERSION {
            let problem = format!("expected version {VERSION}, got {}", contents.version);
            return Err(PinsError::new("parse", path, io::Error::other(problem)));
        }
        Ok(contents)
    }

    /// Replaces the file. A reader, or a crash, finds the old contents or the new, never a part.
    pub(super) fn write(&self, path: &Path) -> Result<(), PinsError> {
        let failed = |error| PinsError::new("write", path, error);
        let mut text = serde_json::to_vec_pretty(self).map_err(|error| failed(error.into()))?;
        text.push(b'\n');
        let temporary = temporary_path(path);
        let written = write_synced(&temporary, &text).and_then(|()| fs::rename(&temporary, path));
        written.map_err(|error| {
            // Nothing more can be done about a file that cannot be removed either.
            let _ = fs::remove_file(&temporary);
            failed(error)
        })
    }

    pub(super) fn is_known(&self, server: &str) -> bool {
        self.servers.contains_key(server)
    }

    /// Returns how many tools of a server are known, those twice that are pinned and quarantined.
    pub(super) fn count(&self, server: &str) -> usize {
        let pins = self.servers.get(server);
        pins.map_or(0, |pins| pins.pinned.len() + pins.quarantined.len())
    }

    /// Returns about how much the tools of a server take.
    pub(super) fn bytes(&self, server: &str) -> usize {
        let pins = self.servers.get(server);
        let tools = pins.map(|pins| pins.pinned.iter().chain(&pins.quarantined));
        let tools = tools.into_iter().flatten();
        tools.map(|(name, it)| name.len() + it.bytes()).sum()
    }

    pub(super) fn pinned(&self, server: &str, tool: &str) -> Option<&ToolDefinition> {
        self.servers.get(server)?.pinned.get(tool)
    }

    pub(super) fn quarantined(&self, server: &str, tool: &str) -> Option<&ToolDefinition> {
        self.servers.get(server)?.quarantined.get(tool)
    }

    pub(super) fn all_quarantined(&self) -> impl Iterator<Item = (&str, &str)> {
        self.servers.iter().flat_map(|(server, pins)| {
            let tools = pins.quarantined.keys();
            tools.map(move |tool| (server.as_str(), tool.as_str()))
        })
    }

    pub(super) fn apply(&mut self, server: &str, tool: &str, change: &ChangeKind) {
        let pins = self.servers.entry(server.to_owned()).or_default();
        let tool = tool.to_owned();
        match change {
            ChangeKind::Pin(definition) => {
                pins.quarantined.remove(&tool);
                pins.pinned.insert(tool, definition.clone());
            }
            ChangeKind::Quarantine(definition) => {
                pins.quarantined.insert(tool, definition.clone());
            }
            ChangeKind::Release => {
                pins.quarantined.remove(&tool);
            }
        }
    }
}

/// Returns whether a file can be there. One in a folder that does not exist could not be saved, and nothing would be
/// pinned after a restart.
fn has_folder(path: &Path) -> bool {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    folder.is_none_or(Path::is_dir)
}

/// A name in the same directory, since a file can only be renamed within its file system.
fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}

fn write_synced(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(text)?;
    file.sync_all()
}

const VERSION: u32 = 1;
