//! The laws of task stores, for every store of this crate, and what happens when one fails.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed test panics")]

#[cfg(feature = "sqlite")]
mod sqlite;

mod memory {
    bowline_tasks::task_store_laws!(bowline_tasks::testing::memory);
}

#[cfg(feature = "sqlite")]
mod sqlite_laws {
    bowline_tasks::task_store_laws!(crate::sqlite::two_processes);
}
