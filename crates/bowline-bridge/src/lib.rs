//! A bridge between clients and servers of the Model Context Protocol that speak different versions of it, or use
//! different transports.
//!
//! The *front* of a bridge is the side that clients see. An *upstream* is a server behind it.
//!
//! # Feature flags
//!
//! - `auth`: OAuth for upstreams, token exchange, and a front that requires access tokens, with `bowline-auth`. Not on
//!   by default. See [`credentials`].

#![cfg_attr(docsrs, feature(doc_cfg))]

mod bridge;
pub use bridge::{Bridge, BridgeBuilder, BridgeUsage};

mod catalog;

mod client_token;
pub use client_token::FrontToken;

pub mod config;
pub use config::BridgeConfig;

pub mod credentials;

mod forward;

mod front;

mod legacy;

mod listen;

pub mod many;

mod modern;

mod owned_task;

mod parked;

pub mod pins;

mod questions;

mod rare_log;

mod relayed_state;

mod replicas;

mod servers;

mod state_keys;

mod target;
pub use target::Target;

mod tasks;

#[cfg(test)]
mod test_random;

mod upstream;

/// Compiles the code blocks of the guide as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/bridge.md")]
struct Guide;

/// Compiles the code blocks of the README as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
