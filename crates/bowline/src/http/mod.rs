//! Streamable HTTP: a POST and its response are an exchange.

pub mod client;
