//! OAuth 2.1 authorization for the Model Context Protocol: tokens for clients, token checks for resource servers.
//!
//! [`client`] obtains access tokens; its protocol logic is a state machine without I/O, and thin adapters send
//! requests, listen for redirects and store tokens. [`server`] verifies access tokens in a tower layer.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod client;
pub mod server;

mod sanitize;

mod sync;

/// Compiles the code blocks of the guide as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/authorization.md")]
struct Guide;

/// Compiles the code blocks of the README as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
