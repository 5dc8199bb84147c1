//! Server-sent events (SSE): an incremental decoder, and an encoder.
//!
//! ```text
//! push(chunk) ──▶ lines ──▶ fields of one event ──blank line──▶ next() = Some(Ok(event))
//!                   │                 │
//!                   └── too long ─────┴── too large ──────────▶ next() = Some(Err(…)), then always None
//! ```
//!
//! The events do not depend on how the bytes are split into chunks.

mod decode;
pub use decode::{Decoder, DecoderLimits, SseLimitExceeded};

mod encode;
pub use encode::{KEEP_ALIVE, encode, encode_comment, encode_frame, encode_message};

use bytes::Bytes;

/// One event of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_structs,
    reason = "these are the fields that the format defines"
)]
pub struct SseEvent {
    /// The type: the field `event`. Absent means `message`.
    pub name: Option<String>,
    /// The lines of the field `data`, joined by `\n`. Not checked to be UTF-8.
    pub data: Bytes,
    /// The field `id`, which sets the last event id of the stream. An empty one clears it.
    pub id: Option<String>,
    /// The field `retry`: the delay before reconnecting, in milliseconds.
    pub retry: Option<u64>,
}

impl SseEvent {
    /// Creates an event with `data` only.
    #[must_use]
    pub fn new(data: impl Into<Bytes>) -> Self {
        Self {
            data: data.into(),
            ..Self::default()
        }
    }

    /// Creates an event that carries a JSON-RPC message. It is named `message`, which is the default: some clients
    /// ignore an event without a name.
    #[must_use]
    pub fn message(frame: impl Into<Bytes>) -> Self {
        Self {
            name: Some("message".to_owned()),
            ..Self::new(frame)
        }
    }

    /// Returns whether the type is `message`, the type of JSON-RPC messages.
    #[must_use]
    pub fn is_message(&self) -> bool {
        matches!(self.name.as_deref(), None | Some("message"))
    }
}

#[cfg(test)]
mod tests;
