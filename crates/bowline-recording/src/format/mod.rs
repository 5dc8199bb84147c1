//! The lines of a recording.

mod event;
pub(crate) use event::UnreadableEvent;
pub use event::{ChildExit, EndedBy, Event, EventKind, HttpHeader, Side};

mod header;
pub(crate) use header::HeaderError;
pub use header::{Header, Transport};

mod timestamp;
pub use timestamp::{ParseTimestampError, Timestamp};
