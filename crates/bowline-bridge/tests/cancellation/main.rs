//! The cancellation matrix with a bridge in the middle: each way to abandon a call × each front × each upstream. What
//! the upstream gets is recorded at its end of the wire.
//!
//! `cargo test -p scenarios --test matrix` runs the same cells, each in a process of its own, and writes the table
//! in `scenarios/CANCELLATION.md`.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by a panic"
)]

mod cell;
mod child;
mod column;
mod server;
mod ways;

use column::{Front, LEGACY, MODERN, Upstream};
use ways::Way;

// Those in child processes need a program that serves: `scenarios` runs them.
const _: () = assert!(Upstream::ALL.len() == 7 + 2, "the others have a test below");

/// Runs each way with each front.
async fn run_all(upstream: Upstream) {
    for way in Way::ALL {
        for front in Front::ALL {
            if way.not_applicable(*front, upstream).is_none() {
                println!("{}: {front}, upstream {upstream}", way.name); // shown if it fails
                way.run(*front, upstream).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_call_is_cancelled_at_a_modern_upstream_over_a_wire() {
    run_all(Upstream::Wire(MODERN)).await;
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_call_is_cancelled_at_a_legacy_upstream_over_a_wire() {
    run_all(Upstream::Wire(LEGACY)).await;
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_call_is_cancelled_at_a_modern_upstream_over_http() {
    run_all(Upstream::Http(MODERN)).await;
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_call_is_cancelled_at_a_legacy_upstream_over_http() {
    run_all(Upstream::Http(LEGACY)).await;
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_call_is_cancelled_at_a_modern_upstream_over_http_2() {
    run_all(Upstream::Http2(MODERN)).await;
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_call_is_cancelled_at_a_legacy_upstream_over_http_2() {
    run_all(Upstream::Http2(LEGACY)).await;
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_call_is_cancelled_at_an_upstream_over_http_sse() {
    run_all(Upstream::HttpSse).await;
}
