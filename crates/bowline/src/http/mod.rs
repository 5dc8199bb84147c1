//! Streamable HTTP: an exchange is a POST and its response.

pub mod server;
pub use server::HttpService;

#[cfg_attr(bowline_no_legacy, path = "legacy_stub.rs")]
pub mod legacy;
