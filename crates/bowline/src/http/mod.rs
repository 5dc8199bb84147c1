//! The Streamable HTTP transport: each POST with its response is one exchange.

#[doc(inline)]
pub use bowline_core::http::RedactedUrl;

#[cfg(feature = "http-client")]
pub mod client;

#[cfg(feature = "tls")]
mod pem;

#[cfg(feature = "http-server")]
pub mod server;
#[cfg(feature = "http-server")]
pub use server::HttpService;

#[cfg(feature = "http-server")]
#[cfg_attr(not(feature = "legacy"), path = "legacy_disabled.rs")]
pub mod legacy;
