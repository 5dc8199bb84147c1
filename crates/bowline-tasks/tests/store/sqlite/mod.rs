//! `SqliteStore`: what it does when its file, its disk or its process fails.

use std::sync::Arc;

use bowline_tasks::store::{SqliteStore, StoreLimits};

use crate::fixture::{Stores, TempDir, TestClock};

/// Two stores on one file.
pub(crate) fn two_processes(limits: StoreLimits) -> Stores {
    let files = TempDir::new();
    let clock = TestClock::default();
    let open = || {
        let store = SqliteStore::open(files.join("tasks.db")).unwrap();
        Arc::new(store.limits(limits).clock(clock.clone()))
    };
    Stores {
        first: open(),
        second: open(),
        clock: clock.clone(),
        _files: Some(files),
    }
}
