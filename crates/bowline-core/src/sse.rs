//! Server-Sent Events: bytes to events, and events to bytes.
//!
//! ```text
//! push(chunk) ──▶ lines ──▶ fields of one event ──blank line──▶ next() = Some(Ok(event))
//!                   │                 │
//!                   └── too long ─────┴── too large ──────────▶ next() = Some(Err(…)), then None for ever
//! ```
//!
//! How the bytes are cut into chunks never shows in the events.

mod decode;
pub use decode::{Decoder, Limits, TooLarge};

mod encode;
pub use encode::{KEEP_ALIVE, encode, encode_comment, encode_frame, encode_message};

use bytes::Bytes;

/// One event of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_structs,
    reason = "these are the fields that the format defines"
)]
pub struct Event {
    /// The event's type; absent means `message`.
    pub name: Option<String>,
    /// The lines of data, joined by `\n`. Not checked to be UTF-8: that is for whoever decodes it.
    pub data: Bytes,
    /// The id this event sets for the stream. An empty one takes back the ids before it.
    pub id: Option<String>,
    /// How long to wait before connecting again, in milliseconds.
    pub retry: Option<u64>,
}

impl Event {
    /// An event that carries `data` and nothing else.
    #[must_use]
    pub fn new(data: impl Into<Bytes>) -> Self {
        Self {
            data: data.into(),
            ..Self::default()
        }
    }

    /// Whether it is of the type that carries messages. Events of other types are for others, and ignored.
    #[must_use]
    pub fn is_message(&self) -> bool {
        matches!(self.name.as_deref(), None | Some("message"))
    }
}

#[cfg(test)]
mod tests;
