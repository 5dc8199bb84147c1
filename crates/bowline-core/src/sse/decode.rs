//! The incremental decoder.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::Event;

/// Turns chunks of a stream into events.
///
/// Call [`next`](Self::next) until it gives `None`, then push the next chunk: what is kept in between is
/// at most one unfinished line and one unfinished event, both within the [`Limits`].
///
/// # Examples
///
/// ```
/// use bowline_core::sse::{Decoder, Limits};
///
/// let mut decoder = Decoder::new(Limits::default());
/// decoder.push("data: {}\n".into());
/// assert!(decoder.next().is_none(), "the event is not finished");
/// decoder.push("\n".into());
/// assert_eq!(decoder.next().unwrap()?.data, "{}");
/// # Ok::<(), bowline_core::sse::TooLarge>(())
/// ```
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    /// What was pushed and not read. Each byte is looked at once, however the stream is cut.
    chunks: VecDeque<Bytes>,
    /// The beginning of a line whose end has not come.
    unfinished: BytesMut,
    /// The last line ended in CR, so that an LF right behind it belongs to the same line end.
    after_cr: bool,
    at_start: bool,
    event: Unfinished,
    last_event_id: Option<String>,
    retry: Option<u64>,
    comments: u64,
    ended: bool,
}

/// How large a line and an event may be, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_structs,
    reason = "a line and an event are all there is to limit"
)]
pub struct Limits {
    /// The longest line, without its end.
    pub line: usize,
    /// The most that the fields of one event may add up to.
    pub event: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            line: 16 * 1024 * 1024,
            event: 16 * 1024 * 1024,
        }
    }
}

/// The stream exceeded a limit. It cannot be read on from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TooLarge {
    /// A line was longer than this.
    #[error("a line of the event stream is longer than {0} bytes")]
    Line(usize),
    /// An event was larger than this.
    #[error("an event of the event stream is larger than {0} bytes")]
    Event(usize),
}

impl Decoder {
    /// A decoder at the start of a stream.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            chunks: VecDeque::new(),
            unfinished: BytesMut::new(),
            after_cr: false,
            at_start: true,
            event: Unfinished::default(),
            last_event_id: None,
            retry: None,
            comments: 0,
            ended: false,
        }
    }

    /// Takes the next chunk of the stream. After an error it is thrown away.
    pub fn push(&mut self, chunk: Bytes) {
        if !self.ended && !chunk.is_empty() {
            self.chunks.push_back(chunk);
        }
    }

    /// The next whole event, or `None` if more bytes are needed.
    ///
    /// An event that the stream ends in the middle of is never given.
    ///
    /// # Errors
    ///
    /// If a limit was exceeded; from then on there is nothing but `None`.
    #[allow(
        clippy::should_implement_trait,
        reason = "`None` means not yet, which an iterator's end does not"
    )]
    pub fn next(&mut self) -> Option<Result<Event, TooLarge>> {
        loop {
            let event = match self.line() {
                Ok(None) => return None,
                Ok(Some(line)) => self.read_line(&line),
                Err(error) => Err(error),
            };
            match event {
                Ok(None) => {}
                Ok(Some(event)) => return Some(Ok(event)),
                Err(error) => return Some(Err(self.end(error))),
            }
        }
    }

    /// The id that a client names to resume the stream after the events read so far.
    #[must_use]
    pub fn last_event_id(&self) -> Option<&str> {
        self.last_event_id.as_deref()
    }

    /// The last wait before reconnecting that the stream asked for, in milliseconds.
    ///
    /// It counts even when it stood in a block without data, which is no event.
    #[must_use]
    pub fn retry(&self) -> Option<u64> {
        self.retry
    }

    /// The number of comments so far: lines that carry nothing, which servers send to keep a stream alive.
    #[must_use]
    pub fn comments(&self) -> u64 {
        self.comments
    }

    /// Takes the next whole line, without its end.
    fn line(&mut self) -> Result<Option<Bytes>, TooLarge> {
        while let Some(chunk) = self.chunks.front_mut() {
            if std::mem::take(&mut self.after_cr) && chunk.first() == Some(&b'\n') {
                let _ = chunk.split_to(1);
            }
            let end = chunk.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let part = chunk.split_to(end.unwrap_or(chunk.len()));
            if end.is_some() {
                self.after_cr = chunk.split_to(1)[0] == b'\r';
            }
            if chunk.is_empty() {
                self.chunks.pop_front();
            }
            let line = match (end, self.unfinished.is_empty()) {
                // The common case: a line within one chunk is a slice of it.
                (Some(_), true) => Some(part),
                (Some(_), false) => {
                    self.unfinished.extend_from_slice(&part);
                    Some(self.unfinished.split().freeze())
                }
                (None, _) => {
                    self.unfinished.extend_from_slice(&part);
                    None
                }
            };
            let line = line.map(|line| self.without_mark(line));
            let length = line
                .as_ref()
                .map_or_else(|| self.unfinished_length(), Bytes::len);
            if length > self.limits.line {
                return Err(TooLarge::Line(self.limits.line));
            }
            if line.is_some() {
                return Ok(line);
            }
        }
        Ok(None)
    }

    /// A byte order mark may stand before the first line, and does not belong to it.
    fn without_mark(&mut self, mut line: Bytes) -> Bytes {
        if std::mem::take(&mut self.at_start) && line.starts_with(BYTE_ORDER_MARK) {
            let _ = line.split_to(BYTE_ORDER_MARK.len());
        }
        line
    }

    /// How long the line is so far, not counting what may turn out to be a byte order mark.
    fn unfinished_length(&self) -> usize {
        let marked = self.at_start
            && (self.unfinished.starts_with(BYTE_ORDER_MARK)
                || BYTE_ORDER_MARK.starts_with(&self.unfinished));
        let mark = if marked { BYTE_ORDER_MARK.len() } else { 0 };
        self.unfinished.len().saturating_sub(mark)
    }

    fn read_line(&mut self, line: &Bytes) -> Result<Option<Event>, TooLarge> {
        if line.is_empty() {
            return Ok(self.dispatch());
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let (name, value) = match colon {
            Some(0) => {
                self.comments += 1;
                return Ok(None);
            }
            Some(at) => (&line[..at], line.slice(at + 1..)),
            None => (&line[..], Bytes::new()),
        };
        let value = match value.first() {
            Some(b' ') => value.slice(1..),
            _ => value,
        };
        match name {
            b"data" => self.event.data.push(&value),
            b"event" => self.event.name = Some(text(&value)),
            b"id" if !value.contains(&0) => self.event.id = Some(text(&value)),
            b"retry" => self.event.retry = milliseconds(&value).or(self.event.retry),
            _ => {}
        }
        if self.event.size() > self.limits.event {
            return Err(TooLarge::Event(self.limits.event));
        }
        Ok(None)
    }

    /// Ends the event. Without data there is none, but its id and retry count all the same.
    fn dispatch(&mut self) -> Option<Event> {
        let Unfinished {
            name,
            data,
            id,
            retry,
        } = std::mem::take(&mut self.event);
        if let Some(id) = &id {
            self.last_event_id = (!id.is_empty()).then(|| id.clone());
        }
        self.retry = retry.or(self.retry);
        Some(Event {
            name: name.filter(|name| !name.is_empty()),
            data: data.joined()?,
            id,
            retry,
        })
    }

    fn end(&mut self, error: TooLarge) -> TooLarge {
        let limits = self.limits;
        let (last_event_id, retry) = (self.last_event_id.take(), self.retry);
        *self = Self {
            last_event_id,
            retry,
            comments: self.comments,
            ended: true,
            ..Self::new(limits)
        };
        error
    }
}

/// The fields of an event whose blank line has not come.
#[derive(Debug, Default)]
struct Unfinished {
    name: Option<String>,
    data: Lines,
    id: Option<String>,
    retry: Option<u64>,
}

impl Unfinished {
    fn size(&self) -> usize {
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        self.data.len() + length(&self.name) + length(&self.id)
    }
}

/// Lines of data. One line, which is all that a message needs, stays a slice of the chunk it came in.
#[derive(Debug, Default)]
enum Lines {
    #[default]
    None,
    One(Bytes),
    Many(BytesMut),
}

impl Lines {
    fn push(&mut self, line: &Bytes) {
        match self {
            Self::None => *self = Self::One(line.clone()),
            Self::One(first) => {
                let mut lines = BytesMut::with_capacity(first.len() + 1 + line.len());
                lines.extend_from_slice(first);
                join(&mut lines, line);
                *self = Self::Many(lines);
            }
            Self::Many(lines) => join(lines, line),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::One(line) => line.len(),
            Self::Many(lines) => lines.len(),
        }
    }

    fn joined(self) -> Option<Bytes> {
        match self {
            Self::None => None,
            Self::One(line) => Some(line),
            Self::Many(lines) => Some(lines.freeze()),
        }
    }
}

fn join(lines: &mut BytesMut, line: &[u8]) {
    lines.extend_from_slice(b"\n");
    lines.extend_from_slice(line);
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

/// Reads digits and nothing else; what does not fit is ignored like what is no number.
fn milliseconds(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";
