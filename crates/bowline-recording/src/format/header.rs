//! [`Header`]: the first line of a recording.

use serde::{Deserialize, Serialize};

use super::Timestamp;

/// The first line of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Header {
    /// The time at which the recorder started; events are at offsets from it.
    pub started: Timestamp,
    /// The name and version of the program that recorded, such as `bowline 0.1.0`.
    pub recorder: Option<String>,
    /// The transport that was recorded.
    pub transport: Transport,
    /// The server: a URL, or a command line.
    pub target: Option<String>,
}

/// The transport of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(
    clippy::exhaustive_enums,
    reason = "the specification defines these two transports"
)]
pub enum Transport {
    /// Lines on the standard input and output of a child process.
    Stdio,
    /// HTTP: Streamable HTTP, or HTTP+SSE of 2024-11-05.
    Http,
}

impl Header {
    /// Creates a header with the current time and without a target.
    #[must_use]
    pub fn new(transport: Transport) -> Self {
        Self {
            started: Timestamp::now(),
            recorder: None,
            transport,
            target: None,
        }
    }

    /// Sets the time at which the recorder started.
    #[must_use]
    pub fn started(mut self, started: Timestamp) -> Self {
        self.started = started;
        self
    }

    /// Sets the name and version of the recording program.
    #[must_use]
    pub fn recorder(mut self, recorder: impl Into<String>) -> Self {
        self.recorder = Some(recorder.into());
        self
    }

    /// Sets the server's URL or command line.
    #[must_use]
    pub fn target(mut self, target: impl Into<String>) -> Self {
        self.target = Some(target.into());
        self
    }

    pub(crate) fn parse(line: &[u8]) -> Result<Self, HeaderError> {
        let line: HeaderLine = serde_json::from_slice(line).map_err(HeaderError::NotAHeader)?;
        if line.format != FORMAT {
            return Err(HeaderError::Format);
        }
        if line.version != VERSION {
            return Err(HeaderError::Version(line.version));
        }
        Ok(Self {
            started: line.started,
            recorder: line.recorder,
            transport: line.transport,
            target: line.target,
        })
    }

    /// Appends the header as one line, without a line terminator.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let line = HeaderLine {
            format: FORMAT.to_owned(),
            version: VERSION,
            started: self.started,
            recorder: self.recorder.clone(),
            transport: self.transport,
            target: self.target.clone(),
        };
        serde_json::to_writer(out, &line).expect("strings and numbers have a JSON form");
    }
}

/// Why the first line is not a header.
#[derive(Debug)]
pub(crate) enum HeaderError {
    NotAHeader(serde_json::Error),
    Format,
    Version(u64),
}

#[derive(Serialize, Deserialize)]
struct HeaderLine {
    format: String,
    version: u64,
    started: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recorder: Option<String>,
    transport: Transport,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

const FORMAT: &str = "bowline-recording";

/// The version of the format that this crate reads and writes.
pub(crate) const VERSION: u64 = 1;
