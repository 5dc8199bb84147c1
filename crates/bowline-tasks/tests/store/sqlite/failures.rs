//! Full disks, locks, and databases that cannot be written or read.

use std::fs;
use std::task::Poll;
use std::time::Duration;

use bowline_tasks::store::{
    SqliteStore, StoreError, StoreLimits, TaskChange, TaskRecord, TaskStore as _, Updated,
};
use bowline_types::Json;
use rusqlite::Connection;

use super::{TempDir, check_integrity, lock, start};
use bowline_tasks::testing::{replica, task};

#[tokio::test]
async fn a_full_disk_loses_nothing_and_the_store_recovers() {
    let files = TempDir::new();
    let path = files.join("tasks.db");
    let store = SqliteStore::open(&path).unwrap();
    store.set_writer_pragma("max_page_count", 40).await.unwrap();
    let mut stored: Vec<TaskRecord> = Vec::new();

    let error = loop {
        match store.create(task(replica()).arguments(text(2000))).await {
            Ok(record) => stored.push(record),
            Err(error) => break error,
        }
    };

    assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
    assert!(error.to_string().contains("no space left"), "{error}");
    assert!(stored.len() > 10);
    let long = TaskChange::new().complete(text(30_000));
    let last = stored.pop().unwrap();
    let finish = store.update(last.id, last.version, long.clone()).await;
    assert!(matches!(finish, Err(StoreError::Full { .. })), "{finish:?}");
    assert_eq!(store.read(last.id).await.unwrap(), Some(last.clone()));

    store
        .set_writer_pragma("max_page_count", 1000)
        .await
        .unwrap();
    let finish = store.update(last.id, last.version, long).await;
    assert_eq!(finish.unwrap(), Updated::Done(last.version.next()));
    store.create(task(replica())).await.unwrap();
    for record in stored {
        assert_eq!(store.read(record.id).await.unwrap(), Some(record));
    }
    check_integrity(&path);
}

#[tokio::test]
async fn a_task_that_does_not_fit_on_the_disk_fails_alone() {
    let files = TempDir::new();
    let path = files.join("tasks.db");
    let store = SqliteStore::open(&path).unwrap();
    store
        .set_writer_pragma("max_page_count", 100)
        .await
        .unwrap();
    let locked = lock(&path);
    // They wait for the lock, and are committed together.
    let mut creates: Vec<_> = [10, 10, 10, 1_000_000, 10, 10]
        .map(|length| store.create(task(replica()).arguments(text(length))))
        .into();
    for create in &mut creates {
        assert!(start(create).is_pending());
    }
    drop(locked);

    let large = creates.remove(3);
    for create in creates {
        let record = create.await.unwrap();
        assert_eq!(store.read(record.id).await.unwrap(), Some(record));
    }
    let refused = large.await;
    assert!(
        matches!(refused, Err(StoreError::Full { .. })),
        "{refused:?}"
    );
    check_integrity(&path);
}

#[tokio::test]
async fn a_database_that_another_process_locks_is_busy_and_can_be_read() {
    let files = TempDir::new();
    let path = files.join("tasks.db");
    let store = SqliteStore::open(&path)
        .unwrap()
        .busy_timeout(Duration::ZERO);
    let record = store.create(task(replica())).await.unwrap();
    let locked = lock(&path);

    let refused = store.create(task(replica())).await.unwrap_err();

    assert!(matches!(refused, StoreError::Busy { .. }), "{refused:?}");
    assert!(refused.is_transient());
    assert_eq!(store.read(record.id).await.unwrap(), Some(record));
    drop(locked);
    store.create(task(replica())).await.unwrap();
}

#[tokio::test]
async fn too_many_operations_are_refused_and_the_others_performed() {
    let files = TempDir::new();
    let path = files.join("tasks.db");
    let store = SqliteStore::open(&path).unwrap();
    let store = store.busy_timeout(Duration::from_secs(600));
    let locked = lock(&path);
    let absent = bowline_tasks::TaskId::random().unwrap();
    let mut deletes: Vec<_> = (0..6000).map(|_| store.delete(absent)).collect();
    let mut accepted = Vec::new();
    for mut delete in deletes.drain(..) {
        match start(&mut delete) {
            Poll::Pending => accepted.push(delete),
            Poll::Ready(Err(StoreError::Busy { reason, .. })) => {
                assert_eq!(reason, "too many operations wait for it");
            }
            Poll::Ready(other) => panic!("expected a full queue, got {other:?}"),
        }
    }
    drop(locked);

    // The queue, and what the writer has taken from it before.
    let count = accepted.len();
    assert!((4096..=4096 + 256).contains(&count), "{count}");
    for delete in accepted {
        assert!(!delete.await.unwrap());
    }
}

#[tokio::test]
async fn a_database_that_cannot_be_written_can_be_read() {
    let files = TempDir::new();
    let path = files.join("tasks.db");
    let store = SqliteStore::open(&path).unwrap();
    let record = store.create(task(replica())).await.unwrap();
    store.set_writer_pragma("query_only", 1).await.unwrap();

    let refused = store.create(task(replica())).await.unwrap_err();

    assert!(
        matches!(refused, StoreError::ReadOnly { .. }),
        "{refused:?}"
    );
    assert_eq!(store.read(record.id).await.unwrap(), Some(record));
}

#[tokio::test]
async fn damage_is_reported_and_not_returned() {
    let files = TempDir::new();
    let path = files.join("tasks.db");
    let store = SqliteStore::open(&path).unwrap();
    let record = store.create(task(replica())).await.unwrap();
    let connection = Connection::open(&path).unwrap();

    for damage in [
        "UPDATE tasks SET status = 'unknown'",
        "UPDATE tasks SET status = 'completed', outcome = NULL",
        "UPDATE tasks SET status = 'working', version = -1",
        "UPDATE tasks SET version = 1, questions = '{'",
        "UPDATE tasks SET questions = '[]'",
        "UPDATE tasks SET questions = NULL; UPDATE runs SET owner = x'00'",
    ] {
        connection.execute_batch(damage).unwrap();
        let found = store.read(record.id).await;
        let is_reported = matches!(found, Err(StoreError::Corrupt { .. }));
        assert!(is_reported, "{damage}: {found:?}");
    }
}

#[tokio::test]
async fn damaged_pages_are_reported() {
    let files = TempDir::new();
    let path = files.join("tasks.db");
    let store = SqliteStore::open(&path).unwrap();
    let record = store.create(task(replica())).await.unwrap();
    let connection = Connection::open(&path).unwrap();
    let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
    connection.query_row(checkpoint, [], |_| Ok(())).unwrap();
    let mut content = fs::read(&path).unwrap();
    content[4096..].fill(0xaa);
    let copy = files.join("copy.db");
    fs::write(&copy, &content).unwrap();

    let found = match SqliteStore::open(&copy) {
        Ok(store) => store.read(record.id).await.map(drop),
        Err(error) => Err(error),
    };

    assert!(
        matches!(found, Err(StoreError::Corrupt { .. })),
        "{found:?}"
    );
}

#[tokio::test]
async fn a_clock_that_panics_fails_later_operations_instead_of_blocking_them() {
    let files = TempDir::new();
    let store = SqliteStore::open(files.join("tasks.db")).unwrap();
    let store = store.clock(|| panic!("the clock of a test"));

    for _ in 0..2 {
        let created = store.create(task(replica())).await;
        let is_closed = matches!(created, Err(StoreError::Unavailable { .. }));
        assert!(is_closed, "{created:?}");
    }
}

#[tokio::test]
async fn what_a_store_prints_contains_no_data() {
    let files = TempDir::new();
    let store = SqliteStore::open(files.join("tasks.db")).unwrap();
    let store = store.limits(StoreLimits::new().max_tasks(7));
    let new = task(replica()).principal("secret").arguments(text(3));
    store.create(new).await.unwrap();

    let text = format!("{store:?}");

    assert!(
        text.contains("tasks.db") && text.contains("max_tasks: 7"),
        "{text}"
    );
    assert!(!text.contains("secret") && !text.contains("xxx"), "{text}");
}

/// A JSON text of about this length.
fn text(length: usize) -> Json {
    Json::encode(&"x".repeat(length)).unwrap()
}
