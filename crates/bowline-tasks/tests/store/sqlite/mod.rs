//! `SqliteStore`: what it does when its file, its disk or its process fails.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bowline_tasks::store::{SqliteStore, StoreError, StoreFuture, StoreLimits, TaskStore as _};
use rusqlite::Connection;

use bowline_tasks::testing::{Stores, StoresFuture, TestClock};

mod commits;
mod crash;
mod failures;
#[cfg(target_os = "linux")]
mod full_disk;
mod hints;
mod opening;

mod temp_dir;
use temp_dir::TempDir;

/// Two stores on one file.
pub(crate) fn two_processes(limits: StoreLimits) -> StoresFuture {
    let files = TempDir::new();
    let clock = TestClock::default();
    let open = || {
        let store = SqliteStore::open(files.join("tasks.db")).unwrap();
        Arc::new(store.limits(limits).clock(clock.clone()))
    };
    let stores = Stores {
        first: open(),
        second: open(),
        clock: clock.clone(),
        files: Box::new(files),
    };
    Box::pin(std::future::ready(stores))
}

/// Drops a store and waits until its writer has ended.
async fn close(store: SqliteStore) {
    let mut changes = store.changes();
    drop(store);
    while changes.next().await.is_some() {}
}

/// A connection that holds the lock of writers until it is dropped or rolled back.
fn lock(path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    connection
}

/// A command that runs a test in another process, where [`is_child`] returns true.
fn this_test_binary(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", test, "--nocapture"])
        .env(CHILD_VARIABLE, test);
    command
}

/// Returns whether this process was started by a test, to do its part of it.
fn is_child() -> bool {
    std::env::var_os(CHILD_VARIABLE).is_some()
}

const CHILD_VARIABLE: &str = "BOWLINE_TEST_CHILD";

/// Queues an operation, which does not end before it is awaited.
fn start<T>(operation: &mut StoreFuture<'_, T>) -> Poll<Result<T, StoreError>> {
    let mut context = Context::from_waker(Waker::noop());
    operation.as_mut().poll(&mut context)
}

/// Checks that the tables agree with each other.
fn check_integrity(path: &Path) {
    let connection = Connection::open(path).unwrap();
    let one = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, String>(0));
    assert_eq!(one("PRAGMA integrity_check").unwrap(), "ok");
    let dangling = one("SELECT \"table\" FROM pragma_foreign_key_check");
    assert_eq!(dangling, Err(rusqlite::Error::QueryReturnedNoRows));
    let stored = "SELECT format('%d %d %d', count(*), count(r.leased_until), total(t.bytes + r.journal_bytes))
        FROM tasks t JOIN runs r ON r.task = t.number";
    let counted =
        "SELECT format('%d %d %d', tasks, unfinished, bytes) FROM principals WHERE id = 0";
    assert_eq!(one(stored).unwrap(), one(counted).unwrap());
    let journal =
        "SELECT format('%d', total(64 + octet_length(name) + octet_length(value))) FROM journal";
    let counted = "SELECT format('%d', total(journal_bytes)) FROM runs";
    assert_eq!(one(journal).unwrap(), one(counted).unwrap());
    let of_principals = "SELECT format('%d %d %d', total(tasks), total(unfinished), total(bytes))
        FROM principals WHERE id > 0";
    assert_eq!(one(stored).unwrap(), one(of_principals).unwrap());
}
