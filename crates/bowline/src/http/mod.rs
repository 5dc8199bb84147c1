//! Streamable HTTP: a POST and its response are an exchange.

#[cfg(feature = "http-client")]
pub mod client;

#[cfg(feature = "http-server")]
pub mod server;
#[cfg(feature = "http-server")]
pub use server::HttpService;

#[cfg(feature = "http-server")]
#[cfg_attr(bowline_no_legacy, path = "legacy_stub.rs")]
pub mod legacy;
