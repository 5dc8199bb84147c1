//! `bowline mock` and `bowline replay` as processes, with a recording that `bowline tap` wrote of the fixture.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may panic, too"
)]

mod mock;
mod replay;
mod support;
