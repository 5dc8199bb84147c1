//! Recordings of Model Context Protocol traffic.
//!
//! A recording is a text file with one JSON object per line: a [`Header`], then one [`Event`] per line, in the order in
//! which the recorder observed them. `bowline tap` writes recordings; [`RecordingReader`] and [`RecordingWriter`] read
//! and write them. A recording that was cut off by a crash is readable up to its last complete line.
//!
//! ```
//! use bowline_recording::{EventKind, Recording};
//!
//! let text = concat!(
//!     r#"{"format":"bowline-recording","version":1,"started":"2026-07-28T12:00:00Z","transport":"stdio"}"#, "\n",
//!     r#"{"at":0,"connection":1,"event":"open"}"#, "\n",
//!     r#"{"at":12,"connection":1,"event":"message","from":"client","message":{"jsonrpc":"2.0","id":1,"method":"ping"}}"#, "\n",
//!     r#"{"at":15,"connection":1,"event":"mess"#,
//! );
//!
//! let recording = Recording::parse(text.as_bytes())?;
//! assert_eq!(recording.events.len(), 2);
//! assert!(matches!(recording.events[1].kind, EventKind::Message { .. }));
//! assert_eq!(recording.problems.len(), 1, "the last line is incomplete");
//! # Ok::<(), bowline_recording::ReadError>(())
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

mod check;
pub use check::{Finding, Law, LawLevel, Report, all_laws, check};

mod conversation;

mod diff;
pub use diff::{
    Diff, DiffOptions, ExchangeChange, JsonChange, ParsePathError, PathPattern, diff, json_diff,
};

mod export;
pub use export::{to_har, to_otlp};

mod format;
pub use format::{
    ChildExit, EndedBy, Event, EventKind, Header, HttpHeader, ParseTimestampError, Side, Timestamp,
    Transport,
};

mod mock;
pub use mock::{DropAfter, InjectedFailure, Latency, Mock, MockBuilder, Unmatched};

mod reader;
pub use reader::{Problem, ReadError, ReadLimits, Recording, RecordingReader};

mod recorder;
pub use recorder::{Recorder, RecorderOptions, RecorderThread};

mod redact;
pub use redact::Redactor;

mod replay;
pub use replay::{ConnectedReplay, Pacing, Replay, ReplayOutcome, ReplayReport, ReplayedRequest};

mod timeline;
pub use timeline::{
    Answer, Cancel, CancelForm, Entry, EntryKind, Exchange, ExchangeNotification, ExchangeState,
    HttpEnd, HttpExchange, Timeline,
};

mod writer;
pub use writer::RecordingWriter;

/// Compiles the code blocks of the guide as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/mock.md")]
struct MockGuide;

#[cfg(test)]
mod script;

/// Compiles the code block of the README as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
