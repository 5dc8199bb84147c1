//! Authorization for the Model Context Protocol: OAuth for clients and for resource servers.
//!
//! The flow of a client is a state machine without I/O: it is handed responses and answers with what to do
//! next. The adapters that perform requests, listen for redirects and keep tokens are thin.

pub mod client;

#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod server;

mod text;

/// The code of the guide is tested like any other.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/authorization.md")]
struct Guide;
