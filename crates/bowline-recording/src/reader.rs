//! [`RecordingReader`] and [`Recording`]: read recordings, within limits.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use bytes::Bytes;

use crate::format::{HeaderError, UnreadableEvent};
use crate::{Event, Header};

/// A recording in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recording {
    /// The first line.
    pub header: Header,
    /// The events, in the order of the file.
    pub events: Vec<Event>,
    /// The lines that could not be read.
    pub problems: Vec<Problem>,
}

/// A line that could not be read, such as the last line of a recording that was cut off.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
#[non_exhaustive]
pub struct Problem {
    /// The number of the line, from 1.
    pub line: usize,
    /// The reason.
    pub why: String,
}

/// The limits of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadLimits {
    /// The maximum length of a line, in bytes.
    pub max_line: usize,
    /// The maximum number of events.
    pub max_events: usize,
    /// The maximum size of the file, in bytes.
    pub max_bytes: u64,
}

/// Why a recording could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Reading failed.
    #[error("failed to read the recording")]
    Io(#[from] io::Error),
    /// The first line is not the header of a recording.
    #[error("not a recording: the first line is not a recording's header")]
    NotARecording(#[source] Option<serde_json::Error>),
    /// The recording has a version of the format that this reader does not know.
    #[error("recording has version {0} of the format, and this program reads version 1")]
    UnknownVersion(u64),
    /// A line is too long.
    #[error("line {line} exceeds the limit of {max} bytes")]
    LineTooLong {
        /// The number of the line, from 1.
        line: usize,
        /// The limit.
        max: usize,
    },
    /// There are too many events.
    #[error("recording exceeds the limit of {max} events")]
    TooManyEvents {
        /// The limit.
        max: usize,
    },
    /// The file is too large.
    #[error("recording exceeds the limit of {max} bytes")]
    TooLarge {
        /// The limit.
        max: u64,
    },
}

/// Reads the events of a recording one by one.
///
/// # Examples
///
/// ```no_run
/// use std::fs::File;
/// use std::io::BufReader;
///
/// use bowline_recording::{ReadLimits, RecordingReader};
///
/// # fn main() -> Result<(), bowline_recording::ReadError> {
/// let file = BufReader::new(File::open("session.jsonl")?);
/// let mut reader = RecordingReader::new(file, ReadLimits::default())?;
/// while let Some(event) = reader.next_event()? {
///     println!("{event:?}");
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct RecordingReader<R> {
    lines: LineReader<R>,
    header: Header,
    events: usize,
    problems: Vec<Problem>,
}

impl Recording {
    /// Creates a recording of these events.
    #[must_use]
    pub fn new(header: Header, events: Vec<Event>) -> Self {
        Self {
            header,
            events,
            problems: Vec::new(),
        }
    }

    /// Reads a file, within the default limits.
    ///
    /// # Errors
    ///
    /// If it cannot be read, is not a recording, or exceeds a limit.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ReadError> {
        Self::read(File::open(path)?, ReadLimits::default())
    }

    /// Parses the bytes of a recording, within the default limits.
    ///
    /// # Errors
    ///
    /// If they are not a recording, or exceed a limit.
    pub fn parse(bytes: &[u8]) -> Result<Self, ReadError> {
        Self::read(bytes, ReadLimits::default())
    }

    /// Reads a recording.
    ///
    /// # Errors
    ///
    /// If reading fails, or if the input is not a recording or exceeds a limit.
    pub fn read(reader: impl Read, limits: ReadLimits) -> Result<Self, ReadError> {
        let mut reader = RecordingReader::new(BufReader::new(reader), limits)?;
        let mut events = Vec::new();
        while let Some(event) = reader.next_event()? {
            events.push(event);
        }
        Ok(Self {
            header: reader.header,
            events,
            problems: reader.problems,
        })
    }
}

impl<R: BufRead> RecordingReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    ///
    /// If reading fails, or if the first line is not a header or exceeds a limit.
    pub fn new(reader: R, limits: ReadLimits) -> Result<Self, ReadError> {
        let mut lines = LineReader {
            reader,
            limits,
            line: 0,
            bytes: 0,
        };
        let first = lines.next_line()?;
        let first = first.ok_or(ReadError::NotARecording(None))?;
        let header = Header::parse(&first.text).map_err(|error| match error {
            HeaderError::NotAHeader(error) => ReadError::NotARecording(Some(error)),
            HeaderError::Format => ReadError::NotARecording(None),
            HeaderError::Version(version) => ReadError::UnknownVersion(version),
        })?;
        Ok(Self {
            lines,
            header,
            events: 0,
            problems: Vec::new(),
        })
    }

    /// Returns the header.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the lines that could not be read so far.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Reads the next event. `None` is the end of the recording.
    ///
    /// Blank lines and events of unknown kinds are skipped; unreadable lines are added to the
    /// [problems](Self::problems).
    ///
    /// # Errors
    ///
    /// If reading fails or a limit is exceeded.
    pub fn next_event(&mut self) -> Result<Option<Event>, ReadError> {
        while let Some(line) = self.lines.next_line()? {
            if line.text.trim_ascii().is_empty() {
                continue;
            }
            match Event::parse(&line.text) {
                Ok(None) => {}
                Ok(Some(mut event)) => {
                    self.count_one()?;
                    event.line = self.lines.line;
                    return Ok(Some(event));
                }
                Err(why) => {
                    self.count_one()?;
                    self.problems.push(Problem {
                        line: self.lines.line,
                        why: describe(&why, line.is_terminated),
                    });
                }
            }
        }
        Ok(None)
    }

    fn count_one(&mut self) -> Result<(), ReadError> {
        let max = self.lines.limits.max_events;
        if self.events >= max {
            return Err(ReadError::TooManyEvents { max });
        }
        self.events += 1;
        Ok(())
    }
}

fn describe(why: &UnreadableEvent, is_terminated: bool) -> String {
    match why {
        _ if !is_terminated => "the last line is incomplete; the recorder did not finish it".into(),
        UnreadableEvent::NotUtf8 => "not UTF-8".into(),
        UnreadableEvent::NotAnEvent(error) => format!("not an event: {error}"),
        UnreadableEvent::Missing(member) => format!("not an event: missing member `{member}`"),
    }
}

/// Reads lines, none of which is held in memory beyond the limit.
#[derive(Debug)]
struct LineReader<R> {
    reader: R,
    limits: ReadLimits,
    /// The number of the last line, from 1.
    line: usize,
    bytes: u64,
}

struct Line {
    text: Bytes,
    is_terminated: bool,
}

impl<R: BufRead> LineReader<R> {
    fn next_line(&mut self) -> Result<Option<Line>, ReadError> {
        let max = self.limits.max_line;
        // One byte for the terminator, and one to see that the line is longer.
        let most = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(2);
        let mut text = Vec::new();
        let read = (&mut self.reader).take(most).read_until(b'\n', &mut text)?;
        if read == 0 {
            return Ok(None);
        }
        self.line = self.line.saturating_add(1);
        self.bytes = self
            .bytes
            .saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
        let is_terminated = text.last() == Some(&b'\n');
        if is_terminated {
            text.pop();
        }
        if text.last() == Some(&b'\r') {
            text.pop();
        }
        if text.len() > max {
            let line = self.line;
            return Err(ReadError::LineTooLong { line, max });
        }
        if self.bytes > self.limits.max_bytes {
            let max = self.limits.max_bytes;
            return Err(ReadError::TooLarge { max });
        }
        Ok(Some(Line {
            text: text.into(),
            is_terminated,
        }))
    }
}

impl ReadLimits {
    /// Sets the maximum length of a line, in bytes.
    #[must_use]
    pub fn max_line(mut self, max: usize) -> Self {
        self.max_line = max;
        self
    }

    /// Sets the maximum number of events.
    #[must_use]
    pub fn max_events(mut self, max: usize) -> Self {
        self.max_events = max;
        self
    }

    /// Sets the maximum size of the file, in bytes.
    #[must_use]
    pub fn max_bytes(mut self, max: u64) -> Self {
        self.max_bytes = max;
        self
    }
}

impl Default for ReadLimits {
    fn default() -> Self {
        Self {
            max_line: 64 * 1024 * 1024,
            max_events: 1_000_000,
            max_bytes: 1024 * 1024 * 1024,
        }
    }
}
