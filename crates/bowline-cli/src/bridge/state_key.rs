//! [`StateKeySource`]: where the key comes from that seals what clients keep of parked calls.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use bowline::client::ServerConfig;
use bowline::seal::Sealer;
use bowline_bridge::config::StateKey;

use super::BoxError;

/// Where the key of parked calls comes from. The option itself never contains it, because other users of the machine can
/// read the arguments of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StateKeySource {
    /// A text with `${NAME}`.
    Variable(String),
    /// A file. A missing one is created with a random key.
    File(PathBuf),
}

impl StateKeySource {
    /// Parses the value of `--state-key`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text.strip_prefix('@') {
            Some(file) if !file.is_empty() => Ok(Self::File(file.into())),
            None if text.contains("${") => Ok(Self::Variable(text.to_owned())),
            // Without the text, which may be a key.
            _ => Err("expected `@FILE`, or `${NAME}` for an environment variable".to_owned()),
        }
    }

    /// Reads the key, and creates a missing file. Blocks the calling thread.
    pub(crate) fn sealer(&self) -> Result<Sealer, BoxError> {
        let text = match self {
            Self::Variable(text) => ServerConfig::expand(text, |name| std::env::var(name).ok())
                .map_err(|error| format!("--state-key: {error}"))?,
            Self::File(file) => read_or_create(file)?,
        };
        let key = StateKey::decode(text.trim()).ok_or(
            "--state-key: expected 32 bytes in base64, or as 64 hexadecimal digits, in the file or variable",
        )?;
        Ok(Sealer::new(key))
    }
}

fn read_or_create(file: &Path) -> Result<String, BoxError> {
    match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create(file).map_err(|error| failed("create", file, &error))?;
            // That of another process, if it was faster.
            fs::read_to_string(file).map_err(|error| failed("read", file, &error))
        }
        text => text.map_err(|error| failed("read", file, &error)),
    }
}

/// Creates a file with a random key, unless there is one. Another process finds no file, or all of it.
fn create(file: &Path) -> io::Result<()> {
    let mut key = [0; 32];
    getrandom::fill(&mut key).map_err(io::Error::other)?;
    let digits: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = file.with_file_name(name);
    // A link, because renaming would replace the file of another process.
    let created = write_private(&temporary, &format!("{digits}\n"))
        .and_then(|()| fs::hard_link(&temporary, file));
    // Nothing more can be done about a file that cannot be removed.
    let _ = fs::remove_file(&temporary);
    match created {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        created => created,
    }
}

/// Writes a file that only its owner can read.
fn write_private(file: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut opened = options.open(file)?;
    opened.write_all(text.as_bytes())?;
    opened.sync_all()
}

fn failed(what: &str, file: &Path, error: &io::Error) -> BoxError {
    format!("--state-key: failed to {what} {}: {error}", file.display()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_itself_is_not_an_argument() {
        let file = StateKeySource::parse("@a/b");
        assert_eq!(file, Ok(StateKeySource::File("a/b".into())));
        assert!(StateKeySource::parse("${KEY}").is_ok());
        let key = "07".repeat(32);
        for wrong in [key.as_str(), "@", ""] {
            let error = StateKeySource::parse(wrong).unwrap_err();
            assert!(!error.contains(&key), "{error}");
        }
    }

    #[test]
    fn a_variable_that_is_not_set_is_named() {
        let source = StateKeySource::Variable("${BOWLINE_TEST_UNSET}".to_owned());
        let error = source.sealer().unwrap_err().to_string();
        assert!(error.contains("BOWLINE_TEST_UNSET"), "{error}");
    }
}
