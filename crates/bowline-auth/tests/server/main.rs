//! The resource server: admitted, refused and malicious requests.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

mod support;

mod attacks;
mod binding;
mod bound_to_principal;
mod introspection;
mod issuers;
mod keys;
mod layer;
mod scopes;
mod static_tokens;
