//! [`RecordingWriter`]: writes a recording line by line.

use std::io::{self, Write};

use crate::{Event, Header};

/// Writes a recording.
///
/// Each line is passed to the writer in one call of `write_all`, so that a crash cuts off at most the last line. Do not
/// wrap a file in a `BufWriter`: what it buffers is lost in a crash. To write many events at once, use
/// [`write_all`](Self::write_all).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use bowline_recording::{Event, EventKind, Header, Recording, RecordingWriter, Transport};
///
/// let mut file = Vec::new();
/// let mut writer = RecordingWriter::new(&mut file, &Header::new(Transport::Stdio))?;
/// writer.write(&Event::new(Duration::ZERO, 1, EventKind::Open))?;
///
/// assert_eq!(Recording::parse(&file).unwrap().events.len(), 1);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct RecordingWriter<W> {
    writer: W,
    /// Reused for each line.
    line: Vec<u8>,
}

impl<W: Write> RecordingWriter<W> {
    /// Writes the header.
    ///
    /// # Errors
    ///
    /// If writing fails.
    pub fn new(writer: W, header: &Header) -> io::Result<Self> {
        let mut new = Self {
            writer,
            line: Vec::new(),
        };
        header.encode(&mut new.line);
        new.line.push(b'\n');
        new.write_lines()?;
        Ok(new)
    }

    /// Writes an event.
    ///
    /// # Errors
    ///
    /// If writing fails.
    pub fn write(&mut self, event: &Event) -> io::Result<()> {
        self.write_all([event])
    }

    /// Writes events with one call of the writer.
    ///
    /// # Errors
    ///
    /// If writing fails.
    pub fn write_all<'a>(&mut self, events: impl IntoIterator<Item = &'a Event>) -> io::Result<()> {
        for event in events {
            event.encode(&mut self.line);
            self.line.push(b'\n');
        }
        self.write_lines()
    }

    /// Returns the writer.
    #[must_use]
    pub fn into_inner(self) -> W {
        self.writer
    }

    fn write_lines(&mut self) -> io::Result<()> {
        let written = self.writer.write_all(&self.line);
        self.line.clear();
        // One huge message must not keep its memory for ever.
        self.line.shrink_to(MAX_KEPT);
        written?;
        self.writer.flush()
    }
}

/// The capacity of the buffer that is kept between lines, in bytes.
const MAX_KEPT: usize = 64 * 1024;
