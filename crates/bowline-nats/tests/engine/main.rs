//! The laws of clusters, and two servers, on a real NATS. Run by `cargo xtask cluster`.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed test panics")]

mod fixture;

/// The engine is killed and started again, and slowed down.
mod restart {
    bowline::engine_restart_laws!("nats", crate::fixture::connect);
}

mod laws {
    bowline::cluster_laws!(crate::fixture::NatsFixture);
}
