//! [`ConfigError`]: why a configuration is invalid, and where.

use std::fmt;
use std::path::{Path, PathBuf};

/// A configuration that cannot be read, or is invalid.
///
/// It names the file, the server and the member, as far as there are such.
///
/// # Examples
///
/// ```
/// use bowline_bridge::BridgeConfig;
///
/// let text = r#"{"mcpServers": {"files": {"command": "npx", "bridge": {"prefx": "fs"}}}}"#;
/// let error = BridgeConfig::from_json(text).unwrap_err();
/// assert_eq!(error.server(), Some("files"));
/// assert_eq!(error.member(), Some("bridge.prefx"));
/// let text = "server `files`: `bridge.prefx`: unknown member; did you mean `prefix`?";
/// assert_eq!(error.to_string(), text);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    file: Option<PathBuf>,
    server: Option<String>,
    member: Option<String>,
    problem: String,
}

impl ConfigError {
    pub(super) fn new(problem: impl Into<String>) -> Self {
        Self {
            file: None,
            server: None,
            member: None,
            problem: problem.into(),
        }
    }

    pub(super) fn in_file(mut self, file: &Path) -> Self {
        self.file = Some(file.to_owned());
        self
    }

    pub(super) fn in_server(mut self, server: &str) -> Self {
        self.server = Some(server.to_owned());
        self
    }

    pub(super) fn in_member(mut self, member: impl Into<String>) -> Self {
        self.member = Some(member.into());
        self
    }

    /// Returns the file, if the configuration was read from one.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Returns the name of the server in `mcpServers`, if one is at fault.
    #[must_use]
    pub fn server(&self) -> Option<&str> {
        self.server.as_deref()
    }

    /// Returns the path of the member, with dots, within the server or within the file.
    #[must_use]
    pub fn member(&self) -> Option<&str> {
        self.member.as_deref()
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}: ", file.display())?;
        }
        if let Some(server) = &self.server {
            write!(f, "server `{}`: ", shortened(server))?;
        }
        if let Some(member) = &self.member {
            write!(f, "`{}`: ", shortened(member))?;
        }
        f.write_str(&self.problem)
    }
}

impl std::error::Error for ConfigError {}

/// Returns a text without control characters, cut after 100 characters.
pub(crate) fn shortened(text: &str) -> String {
    let mut short: String = (text.chars().take(MAX_SHOWN))
        .map(|character| {
            if character.is_control() {
                ' '
            } else {
                character
            }
        })
        .collect();
    if text.chars().nth(MAX_SHOWN).is_some() {
        short.push('…');
    }
    short
}

const MAX_SHOWN: usize = 100;
