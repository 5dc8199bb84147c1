//! Running callbacks of the application so that their panics do not end a connection's task.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a callback, and logs its panic. `what` names the event it handles.
pub(crate) fn catch_panic(what: &'static str, callback: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(callback)).is_err() {
        tracing::error!("the callback for {what} panicked");
    }
}
