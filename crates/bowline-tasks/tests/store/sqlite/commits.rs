//! Group commit: what waits for the disk is committed together, each operation atomic by itself.

use std::fs;
use std::path::Path;

use bowline_tasks::store::{
    JournalEntry, JournalKind, SqliteStore, StoreError, StoreLimits, TaskChange, TaskStore as _,
};
use bowline_types::Json;

use super::{TempDir, check_integrity, close, lock, start};
use bowline_tasks::testing::{json, replica, task};

#[tokio::test]
async fn operations_that_wait_are_committed_together() {
    let files = TempDir::new();
    let path = files.join("tasks.db");
    let store = SqliteStore::open(&path).unwrap();
    let before = commits(&path);
    let locked = lock(&path);
    let new = || store.create(task(replica()));
    let mut creates: Vec<_> = (0..100).map(|_| new()).collect();
    for create in &mut creates {
        assert!(start(create).is_pending());
    }
    drop(locked);

    for create in creates {
        let record = create.await.unwrap();
        assert_eq!(store.read(record.id).await.unwrap(), Some(record));
    }

    // The writer may have taken the first operation before the others were queued.
    let count = commits(&path) - before;
    assert!((1..=2).contains(&count), "{count} commits");
}

#[tokio::test]
async fn an_operation_that_fails_changes_nothing_and_fails_no_other() {
    let files = TempDir::new();
    let path = files.join("tasks.db");
    let limits = StoreLimits::new().max_task_bytes(2000);
    let store = SqliteStore::open(&path).unwrap().limits(limits);
    let entry = JournalEntry::new(JournalKind::Step, "a", json("1"));
    let new = task(replica()).journal_entry(entry.clone());
    let kept = store.create(new).await.unwrap();
    let locked = lock(&path);

    let mut first = store.create(task(replica()));
    // Removes the journal before it turns out that the result is too large.
    let long = Json::encode(&"x".repeat(3000)).unwrap();
    let finish = TaskChange::new().complete(long);
    let mut failing = store.update(kept.id, kept.version, finish);
    let mut last = store.create(task(replica()));
    assert!(start(&mut first).is_pending());
    assert!(start(&mut failing).is_pending());
    assert!(start(&mut last).is_pending());
    drop(locked);

    let failed = failing.await;
    assert!(
        matches!(failed, Err(StoreError::TooLarge { .. })),
        "{failed:?}"
    );
    assert_eq!(store.read(kept.id).await.unwrap(), Some(kept.clone()));
    assert_eq!(store.journal(kept.id).await.unwrap(), [entry]);
    for created in [first, last] {
        let record = created.await.unwrap();
        assert_eq!(store.read(record.id).await.unwrap(), Some(record));
    }
    check_integrity(&path);
}

#[tokio::test]
async fn a_store_that_is_dropped_performs_what_it_has_accepted() {
    let files = TempDir::new();
    let path = files.join("tasks.db");
    let store = SqliteStore::open(&path).unwrap();
    let locked = lock(&path);
    let new = task(replica());
    let mut create = store.create(new.clone());
    assert!(start(&mut create).is_pending());
    drop(create);

    drop(locked);
    close(store).await;

    let store = SqliteStore::open(&path).unwrap();
    let again = store.create(new).await;
    assert!(
        matches!(again, Err(StoreError::AlreadyExists { .. })),
        "{again:?}"
    );
}

#[tokio::test]
async fn a_dropped_future_that_was_not_polled_does_nothing() {
    let files = TempDir::new();
    let store = SqliteStore::open(files.join("tasks.db")).unwrap();
    let new = task(replica());

    drop(store.create(new.clone()));

    store.create(new).await.unwrap();
}

/// Counts the commits in the log of the database.
fn commits(path: &Path) -> usize {
    let log = fs::read(path.with_extension("db-wal")).unwrap_or_default();
    let frames = log.get(32..).unwrap_or_default().chunks(24 + 4096);
    // The last frame of a commit contains the number of pages, any other zero.
    frames.filter(|frame| frame[4..8] != [0; 4]).count()
}
