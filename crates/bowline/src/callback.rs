//! Callbacks of the application: a panic of theirs is their own affair and must not take a connection down.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a callback, and logs its panic; `what` says what it is for.
pub(crate) fn contained(what: &'static str, callback: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(callback)).is_err() {
        tracing::error!("the callback for {what} panicked");
    }
}
