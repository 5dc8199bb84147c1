//! The parts of the Streamable HTTP transport that need no I/O: admission, header rules, status codes.

pub mod admission;

pub mod challenge;

pub mod headers;

#[cfg_attr(not(feature = "legacy"), path = "http/legacy_disabled.rs")]
pub mod legacy;

pub mod media;

pub mod paths;

mod redacted_url;
pub use redacted_url::RedactedUrl;

pub mod source_policy;

pub mod status;
