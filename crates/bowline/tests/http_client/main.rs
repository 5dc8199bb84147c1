//! The HTTP client against a scripted peer: what it posts, what it makes of the answers, what letting go does.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says by panicking what it saw"
)]

mod closing;
mod http2_faults;
mod legacy;
mod letting_go;
mod modern;
mod pool;
mod proxies;
mod refused;
mod scripted;
mod shared_connection;
mod stalled;
mod wire_faults;
