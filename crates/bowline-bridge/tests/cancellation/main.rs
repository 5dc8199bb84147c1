//! The cancellation matrix with a bridge in the middle: each way to abandon a call × each front × each era of the
//! upstream. What the bridge sends to the upstream is recorded at the upstream's wire.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by a panic"
)]

mod cell;
mod ways;

use cell::{Cell, Front, LEGACY, MODERN};

/// Runs one way in each cell.
async fn in_each_cell(way: impl AsyncFn(Cell)) {
    for front in Front::ALL {
        for upstream in [MODERN, LEGACY] {
            println!("{front:?}, upstream at {upstream}"); // shown if it fails
            way(Cell::open(*front, upstream).await).await;
        }
    }
}
