//! The resource server: who comes in, who does not, and what attackers get.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on stops"
)]

mod support;

mod attacks;
mod binding;
mod bound_to_principal;
mod introspection;
mod issuers;
mod keys;
mod layer;
mod scopes;
