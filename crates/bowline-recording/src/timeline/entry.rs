//! [`Entry`]: a message or an HTTP event, with the exchange it belongs to.

use std::time::Duration;

use bowline_types::ProtocolVersion;

use crate::{EndedBy, Side};

/// A message or another event of a recording, with the exchange it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The index of the event.
    pub event: usize,
    /// The number of the line in the file, from 1.
    pub line: usize,
    /// The time since the start of the recording.
    pub at: Duration,
    /// The number of the connection.
    pub connection: u64,
    /// The number of the HTTP request.
    pub http_exchange: Option<u64>,
    /// The sender, unless the recorder observed it at both sides.
    pub from: Option<Side>,
    /// The number of the [`Exchange`](super::Exchange).
    pub exchange: Option<usize>,
    /// The protocol version of the message, if it is known.
    pub version: Option<ProtocolVersion>,
    /// Whether the message was part of a batch.
    pub is_batched: bool,
    /// What it is.
    pub kind: EntryKind,
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EntryKind {
    /// A connection was opened, or the child process was started.
    Opened,
    /// A connection was closed, or the child process exited.
    Closed(EndedBy),
    /// A line of the child's standard error.
    Stderr,
    /// A request that starts an exchange.
    Request,
    /// The answer that ends an exchange.
    Answer,
    /// A second answer, or an answer after the request was cancelled.
    LateAnswer,
    /// An answer without a request.
    UnmatchedAnswer,
    /// A notification that is not a cancel.
    Notification {
        /// The method.
        method: String,
    },
    /// A cancel. Without an exchange, it names none that is known.
    Cancel,
    /// A cancel of an exchange that had ended already.
    LateCancel,
    /// Something that is not a JSON-RPC message.
    Malformed,
    /// The head of an HTTP request.
    HttpRequest,
    /// The head of an HTTP response.
    HttpResponse,
    /// The end of an HTTP exchange.
    HttpEnd,
    /// Events that the recorder did not write.
    Lost,
}
