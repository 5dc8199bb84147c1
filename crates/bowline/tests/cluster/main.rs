//! Replicas of a server in one process.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed test panics")]

mod cluster;
mod servers;

/// The laws of engines, for the one in memory.
mod memory_laws {
    bowline::cluster_laws!(bowline::testing::cluster_laws::MemoryFixture::default());
}
