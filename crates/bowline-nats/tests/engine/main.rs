//! The laws of clusters, and two servers, on a real NATS. Run by `cargo xtask cluster`.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed test panics")]

mod fixture;
mod restart;

mod laws {
    bowline::cluster_laws!(crate::fixture::NatsFixture);
}
