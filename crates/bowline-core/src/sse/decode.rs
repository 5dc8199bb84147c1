//! The incremental SSE decoder.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::SseEvent;

/// Decodes the chunks of a stream into events.
///
/// Call [`next`](Self::next) until it returns `None`, then push the next chunk. The decoder then buffers at most one
/// unfinished line and one unfinished event, both within the [`DecoderLimits`].
///
/// # Examples
///
/// ```
/// use bowline_core::sse::{Decoder, DecoderLimits};
///
/// let mut decoder = Decoder::new(DecoderLimits::default());
/// decoder.push("data: {}\n".into());
/// assert!(decoder.next().is_none(), "the event is not finished");
/// decoder.push("\n".into());
/// assert_eq!(decoder.next().unwrap()?.data, "{}");
/// # Ok::<(), bowline_core::sse::SseLimitExceeded>(())
/// ```
#[derive(Debug)]
pub struct Decoder {
    limits: DecoderLimits,
    /// The unread chunks. Each byte is scanned once, however the stream is split.
    chunks: VecDeque<Bytes>,
    /// The beginning of an unfinished line.
    unfinished: BytesMut,
    /// The last line ended in CR: an LF right after it belongs to the same line break.
    after_cr: bool,
    at_start: bool,
    event: UnfinishedEvent,
    last_event_id: Option<String>,
    retry: Option<u64>,
    comments: u64,
    ended: bool,
}

/// The limits of a [`Decoder`], in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_structs,
    reason = "a line and an event are all that is buffered"
)]
pub struct DecoderLimits {
    /// The maximum length of a line, without its line break.
    pub line: usize,
    /// The maximum total length of the fields of an event.
    pub event: usize,
}

impl Default for DecoderLimits {
    fn default() -> Self {
        Self {
            line: 16 * 1024 * 1024,
            event: 16 * 1024 * 1024,
        }
    }
}

/// The stream exceeded a limit and cannot be decoded further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SseLimitExceeded {
    /// A line exceeds this many bytes.
    #[error("SSE line exceeds the limit of {0} bytes")]
    Line(usize),
    /// An event exceeds this many bytes.
    #[error("SSE event exceeds the limit of {0} bytes")]
    Event(usize),
}

impl Decoder {
    /// Creates a decoder at the start of a stream.
    #[must_use]
    pub fn new(limits: DecoderLimits) -> Self {
        Self {
            limits,
            chunks: VecDeque::new(),
            unfinished: BytesMut::new(),
            after_cr: false,
            at_start: true,
            event: UnfinishedEvent::default(),
            last_event_id: None,
            retry: None,
            comments: 0,
            ended: false,
        }
    }

    /// Adds the next chunk of the stream. Ignored after an error.
    pub fn push(&mut self, chunk: Bytes) {
        if !self.ended && !chunk.is_empty() {
            self.chunks.push_back(chunk);
        }
    }

    /// Returns the next event, or `None` if more bytes are needed.
    ///
    /// An event without its final blank line is never returned.
    ///
    /// # Errors
    ///
    /// If a limit is exceeded. Later calls return `None`.
    #[allow(
        clippy::should_implement_trait,
        reason = "`None` means not yet, which an iterator's end does not"
    )]
    pub fn next(&mut self) -> Option<Result<SseEvent, SseLimitExceeded>> {
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

    /// Returns the last event id, with which a client resumes the stream after the events so far.
    #[must_use]
    pub fn last_event_id(&self) -> Option<&str> {
        self.last_event_id.as_deref()
    }

    /// Returns the last `retry` of the stream: the delay before reconnecting, in milliseconds.
    ///
    /// It counts even in a block without data, which is not an event.
    #[must_use]
    pub fn retry(&self) -> Option<u64> {
        self.retry
    }

    /// Returns the number of comments so far, which servers send to keep a stream open.
    #[must_use]
    pub fn comments(&self) -> u64 {
        self.comments
    }

    /// Returns the bytes of the line and the event that are not finished.
    #[must_use]
    pub fn unfinished_bytes(&self) -> usize {
        self.unfinished.len() + self.event.size()
    }

    /// Takes the next complete line, without its line break.
    fn line(&mut self) -> Result<Option<Bytes>, SseLimitExceeded> {
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
            let line = line.map(|line| self.without_byte_order_mark(line));
            let length = line
                .as_ref()
                .map_or_else(|| self.unfinished_length(), Bytes::len);
            if length > self.limits.line {
                return Err(SseLimitExceeded::Line(self.limits.line));
            }
            if line.is_some() {
                return Ok(line);
            }
        }
        Ok(None)
    }

    /// Removes a byte order mark from the first line.
    fn without_byte_order_mark(&mut self, mut line: Bytes) -> Bytes {
        if std::mem::take(&mut self.at_start) && line.starts_with(BYTE_ORDER_MARK) {
            let _ = line.split_to(BYTE_ORDER_MARK.len());
        }
        line
    }

    /// Returns the length of the unfinished line, without what is or may become a byte order mark.
    fn unfinished_length(&self) -> usize {
        let marked = self.at_start
            && (self.unfinished.starts_with(BYTE_ORDER_MARK)
                || BYTE_ORDER_MARK.starts_with(&self.unfinished));
        let mark = if marked { BYTE_ORDER_MARK.len() } else { 0 };
        self.unfinished.len().saturating_sub(mark)
    }

    fn read_line(&mut self, line: &Bytes) -> Result<Option<SseEvent>, SseLimitExceeded> {
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
            return Err(SseLimitExceeded::Event(self.limits.event));
        }
        Ok(None)
    }

    /// Ends the event. Without data there is no event, but `id` and `retry` still apply.
    fn dispatch(&mut self) -> Option<SseEvent> {
        let UnfinishedEvent {
            name,
            data,
            id,
            retry,
        } = std::mem::take(&mut self.event);
        if let Some(id) = &id {
            self.last_event_id = (!id.is_empty()).then(|| id.clone());
        }
        self.retry = retry.or(self.retry);
        Some(SseEvent {
            name: name.filter(|name| !name.is_empty()),
            data: data.joined()?,
            id,
            retry,
        })
    }

    fn end(&mut self, error: SseLimitExceeded) -> SseLimitExceeded {
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

/// The fields of an unfinished event.
#[derive(Debug, Default)]
struct UnfinishedEvent {
    name: Option<String>,
    data: DataLines,
    id: Option<String>,
    retry: Option<u64>,
}

impl UnfinishedEvent {
    fn size(&self) -> usize {
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        self.data.len() + length(&self.name) + length(&self.id)
    }
}

/// The lines of data. A single line, as every message is, stays a slice of its chunk.
#[derive(Debug, Default)]
enum DataLines {
    #[default]
    None,
    One(Bytes),
    Many(BytesMut),
}

impl DataLines {
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

/// Parses digits only. A number out of range is ignored like any other invalid value.
fn milliseconds(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";
