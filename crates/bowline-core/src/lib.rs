//! The Model Context Protocol without I/O.
//!
//! This crate uses no runtime, socket, clock, environment variable or source of randomness: the current time is an
//! argument, and input and output are byte buffers. The `bowline` crate does the I/O.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod json;

mod message;
pub use message::{
    BatchError, Malformed, Message, Notification, Outcome, RawRequest, Response, decode_batch,
    is_batch,
};

mod id;
pub use id::{CorrelationKey, RequestIdGenerator, alternate_id};

mod shortened;
pub use shortened::{Shortened, shortened};

mod output_limit;
pub use output_limit::OutputLimit;

mod capabilities;
pub use capabilities::{ServerCapability, restrict_filter};

pub mod drain;

pub mod mux;

pub mod era;

pub mod input;

pub mod http;

pub mod sse;

/// Compiles the code block of the README as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
