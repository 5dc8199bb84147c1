//! Hints on changes of other processes.

use bowline_tasks::store::{ChangeHint, SqliteStore, TaskStore as _};
use rusqlite::Connection;

use super::{TempDir, two_processes};
use bowline_tasks::testing::{LEASE, SECOND, replica, task};

#[tokio::test]
async fn other_processes_see_removals() {
    let stores = two_processes(bowline_tasks::store::StoreLimits::new()).await;
    let deleted = stores.first.create(task(replica())).await.unwrap();
    let new = task(replica()).ttl(SECOND).removal_delay(SECOND);
    let expired = stores.first.create(new).await.unwrap();
    let mut changes = stores.second.changes();

    stores.first.delete(deleted.id).await.unwrap();
    stores.clock.advance(SECOND * 2);
    stores.first.remove_expired(9).await.unwrap();

    for removed in [deleted, expired] {
        let (id, version) = (removed.id, removed.version.next());
        while changes.next().await != Some(ChangeHint::Changed { id, version }) {}
    }
}

#[tokio::test]
async fn a_process_gets_the_hints_of_others_once_and_in_order() {
    let stores = two_processes(bowline_tasks::store::StoreLimits::new()).await;
    let mut changes = stores.second.changes();
    let mut expected = Vec::new();
    for number in 0..20 {
        // Own writes in between must neither repeat nor hide them.
        let store = [&stores.first, &stores.first, &stores.second][number % 3];
        let record = store.create(task(replica())).await.unwrap();
        expected.push((record.id, record.version));
    }

    for (id, version) in expected {
        let hint = changes.next().await;
        assert_eq!(hint, Some(ChangeHint::Changed { id, version }));
    }
}

#[tokio::test]
async fn a_process_that_missed_too_much_is_told_so() {
    let stores = two_processes(bowline_tasks::store::StoreLimits::new()).await;
    for _ in 0..50 {
        stores.first.create(task(replica())).await.unwrap();
    }
    for _ in 0..90 {
        stores.clock.advance(LEASE);
        stores.first.claim(replica(), LEASE, 50).await.unwrap();
    }

    // It had no listener, so that it did not look.
    let mut changes = stores.second.changes();

    assert_eq!(changes.next().await, Some(ChangeHint::TooMany));
    let record = stores.first.create(task(replica())).await.unwrap();
    let (id, version) = (record.id, record.version);
    assert_eq!(
        changes.next().await,
        Some(ChangeHint::Changed { id, version })
    );
}

#[tokio::test]
async fn the_log_of_changes_is_bounded() {
    let files = TempDir::new();
    let path = files.join("tasks.db");
    let clock = bowline_tasks::testing::TestClock::default();
    let store = SqliteStore::open(&path).unwrap().clock(clock.clone());
    for _ in 0..50 {
        store.create(task(replica())).await.unwrap();
    }
    for _ in 0..90 {
        clock.advance(LEASE);
        store.claim(replica(), LEASE, 50).await.unwrap();
    }

    let connection = Connection::open(&path).unwrap();
    let count = "SELECT count(*) FROM changes";
    let count: i64 = connection.query_row(count, [], |row| row.get(0)).unwrap();

    assert_eq!(count, 4096);
}
