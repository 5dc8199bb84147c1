//! The Model Context Protocol without I/O.
//!
//! No runtime, socket, clock, environment or randomness enters here: time is an argument, and bytes are
//! values. What moves them is the business of the `bowline` crate.

pub mod json;

mod message;
pub use message::{
    BatchError, Malformed, Message, Notification, Outcome, RawRequest, Response, decode_batch,
    is_batch,
};

mod id;
pub use id::{CorrelationKey, Minter, other_spelling};

mod shortened;
pub use shortened::{Shortened, shortened};

pub mod mux;

pub mod era;

pub mod input;

pub mod http;

pub mod sse;

#[cfg(any(test, fuzzing))]
pub mod fuzzing;
