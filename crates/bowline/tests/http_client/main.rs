//! The HTTP client against a scripted peer: what it posts, what it makes of the answers, what letting go does.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says by panicking what it saw"
)]

mod cached;
mod closing;
mod ends_of_answers;
mod flow_control;
mod http2_faults;
mod http2_peer;
mod http2_retries;
mod legacy;
mod legacy_cancels;
mod legacy_model;
mod legacy_server;
mod legacy_sessions;
mod legacy_two_endpoints;
mod letting_go;
mod liveness;
mod modern;
mod pool;
mod proxies;
mod refused;
mod scripted;
mod shared_connection;
mod stalled;
mod wire_faults;
