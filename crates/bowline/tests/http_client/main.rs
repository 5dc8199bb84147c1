//! The HTTP client against scripted servers: the requests it sends, how it handles responses, how it cancels.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod authorization;
mod cancellation;
mod close_on_drop;
mod connection;
mod flow_control;
mod http2_faults;
mod http2_retries;
mod http2_server;
mod legacy;
mod legacy_cancels;
mod legacy_http_sse;
mod legacy_lost_sessions;
mod legacy_model;
mod legacy_server;
mod legacy_sessions;
mod liveness;
mod modern;
mod pool;
mod private_cache;
mod proxies;
mod read_budget;
mod response_drain;
mod response_faults;
mod scripted_server;
mod shared_connection;
mod slow_opening;
mod stalled_server;
