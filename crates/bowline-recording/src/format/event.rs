//! [`Event`]: every line of a recording but the first.

use std::time::Duration;

use bowline_core::{Message, decode_batch, is_batch};
use bowline_types::Json;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// An observation of the recorder.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// The time since [`Header::started`](super::Header::started), in microseconds on disk.
    pub at: Duration,
    /// The number of the connection: the child process, or the client's TCP connection.
    pub connection: u64,
    /// The number of the HTTP request that the event belongs to, unique in the recording. Absent on stdio.
    pub exchange: Option<u64>,
    /// The number of the line in the file, from 1; 0 if the event was not read from a file.
    pub line: usize,
    /// What was observed.
    pub kind: EventKind,
}

/// What was observed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// A connection was opened, or the child process was started.
    Open,
    /// A connection was closed, or the child process exited.
    Close {
        /// Which side closed it first.
        by: EndedBy,
        /// How the child process exited.
        exit: Option<ChildExit>,
    },
    /// A line that the child process wrote to its standard error.
    Stderr {
        /// The line, without its terminator.
        text: String,
    },
    /// A JSON-RPC message, or a batch of them.
    Message {
        /// The sender.
        from: Side,
        /// The message as it was sent; an array is a batch.
        message: Json,
    },
    /// A line, body or SSE event that is not a JSON-RPC message.
    Malformed {
        /// The sender.
        from: Side,
        /// What was sent, perhaps shortened. Bytes that are not UTF-8 are replaced.
        text: String,
        /// Why it is not a message.
        why: String,
    },
    /// The head of an HTTP request.
    Request {
        /// The HTTP method.
        method: String,
        /// The path and query.
        path: String,
        /// The headers, in order.
        headers: Vec<HttpHeader>,
    },
    /// The head of an HTTP response.
    Response {
        /// The status code.
        status: u16,
        /// The headers, in order.
        headers: Vec<HttpHeader>,
    },
    /// The end of an HTTP exchange. An end by the client that is not complete is a cancellation in the modern era.
    End {
        /// The side whose action ended the exchange.
        by: EndedBy,
        /// Whether the response was complete.
        complete: bool,
    },
    /// Events that the recorder did not write.
    Lost {
        /// How many.
        count: u64,
        /// The reason.
        why: String,
    },
}

/// One side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(
    clippy::exhaustive_enums,
    reason = "the protocol has clients and servers"
)]
pub enum Side {
    /// The client.
    Client,
    /// The server.
    Server,
}

/// What ended a connection or an HTTP exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(
    clippy::exhaustive_enums,
    reason = "the recorder is the only party besides both sides"
)]
pub enum EndedBy {
    /// The client.
    Client,
    /// The server.
    Server,
    /// The recorder, such as when it is told to stop or cannot reach the server.
    Tap,
}

/// How a child process exited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ChildExit {
    /// It exited with this code.
    Code(i32),
    /// A signal killed it.
    Signal(i32),
}

/// A header of an HTTP message: `["name", "value"]` on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::exhaustive_structs, reason = "a header has a name and a value")]
pub struct HttpHeader(
    /// The name, in lower case.
    pub String,
    /// The value, perhaps redacted.
    pub String,
);

impl Side {
    /// Returns the other side.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    /// Returns `client` or `server`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

impl From<Side> for EndedBy {
    fn from(side: Side) -> Self {
        match side {
            Side::Client => Self::Client,
            Side::Server => Self::Server,
        }
    }
}

impl EndedBy {
    /// Returns `client`, `server` or `tap`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
            Self::Tap => "tap",
        }
    }
}

impl EventKind {
    /// Returns the event of a line, body or SSE event: a message, or something malformed. `None` if it is blank.
    #[must_use]
    pub fn of_frame(from: Side, frame: &Bytes) -> Option<Self> {
        let trimmed = frame.trim_ascii();
        if trimmed.is_empty() {
            return None;
        }
        let frame = frame.slice_ref(trimmed);
        let why = match is_batch(&frame) {
            false => Message::decode(&frame).err().map(|error| error.to_string()),
            true => decode_batch(&frame, usize::MAX)
                .err()
                .map(|error| error.to_string()),
        };
        Some(match (why, std::str::from_utf8(&frame)) {
            // Decoding has checked that it is JSON.
            (None, Ok(_)) => Self::Message {
                from,
                message: Json::from_valid(frame),
            },
            (why, _) => Self::Malformed {
                from,
                text: shorten(&frame),
                why: why.unwrap_or_default(),
            },
        })
    }
}

/// Returns the text, of which the middle is left out if it is long.
fn shorten(frame: &[u8]) -> String {
    let Some(left_out) = frame.len().checked_sub(MAX_MALFORMED).filter(|it| *it > 0) else {
        return String::from_utf8_lossy(frame).into_owned();
    };
    let (start, end) = frame.split_at(MAX_MALFORMED / 2);
    let end = &end[end.len() - MAX_MALFORMED / 2..];
    let (start, end) = (String::from_utf8_lossy(start), String::from_utf8_lossy(end));
    format!("{start} … {left_out} bytes … {end}")
}

impl Event {
    /// Creates an event that belongs to no HTTP request.
    #[must_use]
    pub fn new(at: Duration, connection: u64, kind: EventKind) -> Self {
        Self {
            at,
            connection,
            exchange: None,
            line: 0,
            kind,
        }
    }

    /// Sets the number of the HTTP request.
    #[must_use]
    pub fn exchange(mut self, exchange: u64) -> Self {
        self.exchange = Some(exchange);
        self
    }

    /// Returns about how many bytes the event has, most of which the recorded sides decide.
    #[must_use]
    pub fn size(&self) -> usize {
        let headers = |headers: &[HttpHeader]| -> usize {
            headers
                .iter()
                .map(|HttpHeader(name, value)| name.len() + value.len() + 8)
                .sum()
        };
        EVENT_SIZE
            + match &self.kind {
                EventKind::Open | EventKind::Close { .. } | EventKind::End { .. } => 0,
                EventKind::Stderr { text } | EventKind::Lost { why: text, .. } => text.len(),
                EventKind::Message { message, .. } => message.as_bytes().len(),
                EventKind::Malformed { text, why, .. } => text.len() + why.len(),
                EventKind::Request {
                    method,
                    path,
                    headers: list,
                } => method.len() + path.len() + headers(list),
                EventKind::Response { headers: list, .. } => headers(list),
            }
    }

    /// Parses a line. `None` is an event of a kind that this version does not know.
    pub(crate) fn parse(line: &Bytes) -> Result<Option<Self>, UnreadableEvent> {
        let text = std::str::from_utf8(line).map_err(|_| UnreadableEvent::NotUtf8)?;
        let read: EventLine<'_> =
            serde_json::from_str(text).map_err(UnreadableEvent::NotAnEvent)?;
        let Some(kind) = read.kind(line) else {
            return Ok(None);
        };
        Ok(Some(Self {
            at: Duration::from_micros(read.at),
            connection: read.connection,
            exchange: read.exchange,
            line: 0,
            kind: kind?,
        }))
    }

    /// Appends the event as one line, without a line terminator.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let message = match &self.kind {
            EventKind::Message { message, .. } => Some(one_line(message)),
            _ => None,
        };
        let line = EventLine::of(self, message.as_deref());
        serde_json::to_writer(out, &line).expect("strings and numbers have a JSON form");
    }
}

/// Returns the text with line breaks replaced by spaces. In valid JSON, line breaks occur only between tokens.
fn one_line(json: &Json) -> Box<RawValue> {
    let text = json.as_str().replace(['\n', '\r'], " ");
    RawValue::from_string(text).unwrap_or_else(|_| {
        // A `Json` that was made of text which is not JSON: record it as a string instead of losing it.
        let text = serde_json::to_string(json.as_str()).unwrap_or_default();
        RawValue::from_string(text).unwrap_or_else(|_| RawValue::NULL.to_owned())
    })
}

/// Why a line is not an event.
#[derive(Debug)]
pub(crate) enum UnreadableEvent {
    NotUtf8,
    NotAnEvent(serde_json::Error),
    Missing(&'static str),
}

/// A line with the members of all kinds of events.
#[derive(Default, Serialize, Deserialize)]
struct EventLine<'a> {
    at: u64,
    #[serde(default)]
    connection: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exchange: Option<u64>,
    event: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<Side>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<EndedBy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    complete: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exit: Option<ChildExit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    method: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    headers: Option<Vec<HttpHeader>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    message: Option<&'a RawValue>,
}

impl<'a> EventLine<'a> {
    /// Returns the kind, or `None` if it is unknown.
    fn kind(&self, line: &Bytes) -> Option<Result<EventKind, UnreadableEvent>> {
        let kind = match self.event.as_str() {
            "open" => Ok(EventKind::Open),
            "close" => self.close(),
            "stderr" => self.text().map(|text| EventKind::Stderr { text }),
            "message" => self.message(line),
            "malformed" => self.malformed(),
            "request" => self.request(),
            "response" => self.response(),
            "end" => self.end(),
            "lost" => Ok(EventKind::Lost {
                count: self.count.unwrap_or(1),
                why: self.why.clone().unwrap_or_default(),
            }),
            _ => return None,
        };
        Some(kind)
    }

    fn close(&self) -> Result<EventKind, UnreadableEvent> {
        Ok(EventKind::Close {
            by: self.by()?,
            exit: self.exit,
        })
    }

    fn message(&self, line: &Bytes) -> Result<EventKind, UnreadableEvent> {
        let message = self.message.ok_or(UnreadableEvent::Missing("message"))?;
        Ok(EventKind::Message {
            from: self.from()?,
            message: Json::from_raw(line, message),
        })
    }

    fn malformed(&self) -> Result<EventKind, UnreadableEvent> {
        Ok(EventKind::Malformed {
            from: self.from()?,
            text: self.text()?,
            why: self.why.clone().unwrap_or_default(),
        })
    }

    fn request(&self) -> Result<EventKind, UnreadableEvent> {
        let method = self.method.clone();
        Ok(EventKind::Request {
            method: method.ok_or(UnreadableEvent::Missing("method"))?,
            path: self.path.clone().unwrap_or_default(),
            headers: self.headers.clone().unwrap_or_default(),
        })
    }

    fn response(&self) -> Result<EventKind, UnreadableEvent> {
        Ok(EventKind::Response {
            status: self.status.ok_or(UnreadableEvent::Missing("status"))?,
            headers: self.headers.clone().unwrap_or_default(),
        })
    }

    fn end(&self) -> Result<EventKind, UnreadableEvent> {
        Ok(EventKind::End {
            by: self.by()?,
            complete: self.complete.ok_or(UnreadableEvent::Missing("complete"))?,
        })
    }

    fn from(&self) -> Result<Side, UnreadableEvent> {
        self.from.ok_or(UnreadableEvent::Missing("from"))
    }

    fn by(&self) -> Result<EndedBy, UnreadableEvent> {
        self.by.ok_or(UnreadableEvent::Missing("by"))
    }

    fn text(&self) -> Result<String, UnreadableEvent> {
        let text = self.text.clone();
        text.ok_or(UnreadableEvent::Missing("text"))
    }

    fn of(event: &Event, message: Option<&'a RawValue>) -> Self {
        let mut line = Self {
            at: u64::try_from(event.at.as_micros()).unwrap_or(u64::MAX),
            connection: event.connection,
            exchange: event.exchange,
            message,
            ..Self::default()
        };
        let name = match &event.kind {
            EventKind::Open => "open",
            EventKind::Close { by, exit } => {
                (line.by, line.exit) = (Some(*by), *exit);
                "close"
            }
            EventKind::Stderr { text } => {
                line.text = Some(text.clone());
                "stderr"
            }
            EventKind::Message { from, .. } => {
                line.from = Some(*from);
                "message"
            }
            EventKind::Malformed { from, text, why } => {
                line.from = Some(*from);
                (line.text, line.why) = (Some(text.clone()), Some(why.clone()));
                "malformed"
            }
            EventKind::Request {
                method,
                path,
                headers,
            } => {
                (line.method, line.path) = (Some(method.clone()), Some(path.clone()));
                line.headers = Some(headers.clone());
                "request"
            }
            EventKind::Response { status, headers } => {
                (line.status, line.headers) = (Some(*status), Some(headers.clone()));
                "response"
            }
            EventKind::End { by, complete } => {
                (line.by, line.complete) = (Some(*by), Some(*complete));
                "end"
            }
            EventKind::Lost { count, why } => {
                (line.count, line.why) = (Some(*count), Some(why.clone()));
                "lost"
            }
        };
        line.event = name.to_owned();
        line
    }
}

/// The number of bytes of a malformed frame that are kept.
const MAX_MALFORMED: usize = 64 * 1024;

/// About the size of an event without texts, on disk and in memory.
const EVENT_SIZE: usize = 128;
