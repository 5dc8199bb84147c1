//! Connections over HTTP: their settings, and how one is opened.

mod config;
pub(super) use config::{HttpConfig, connect_with_headers, status_of};

#[cfg(feature = "tls")]
mod tls;

mod tool_headers;

mod fallback;

mod opening_time;

mod opener;
pub(super) use opener::HttpTransport;
