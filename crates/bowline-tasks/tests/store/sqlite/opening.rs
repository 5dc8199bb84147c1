//! What `SqliteStore::open` accepts, refuses and creates.

use std::fs;
use std::path::{Path, PathBuf};

use bowline_tasks::store::{SqliteStore, StoreError, TaskStore as _};
use rusqlite::Connection;

use super::{TempDir, close, is_child, this_test_binary};
use bowline_tasks::testing::{replica, task};

#[tokio::test]
async fn a_store_that_is_opened_again_has_its_tasks() {
    let files = TempDir::new();
    let path = files.join("tasks.db");
    let store = SqliteStore::open(&path).unwrap();
    let record = store
        .create(task(replica()).principal("ada"))
        .await
        .unwrap();
    close(store).await;

    let store = SqliteStore::open(&path).unwrap();

    assert_eq!(store.read(record.id).await.unwrap(), Some(record.clone()));
    let page = store.list("ada", None, 9).await.unwrap();
    assert_eq!(page.tasks, [record.summary()]);
}

#[tokio::test]
async fn a_store_that_many_open_at_once_is_created_once() {
    let files = TempDir::new();
    let path = files.join("tasks.db");
    let open = |path: PathBuf| std::thread::spawn(move || SqliteStore::open(path).unwrap());
    let opened: Vec<_> = (0..8).map(|_| open(path.clone())).collect();
    let stores: Vec<_> = opened.into_iter().map(|one| one.join().unwrap()).collect();

    let record = stores[0].create(task(replica())).await.unwrap();

    for store in &stores {
        assert_eq!(store.read(record.id).await.unwrap(), Some(record.clone()));
    }
}

#[cfg(unix)]
#[tokio::test]
async fn only_the_owner_may_access_the_files() {
    use std::os::unix::fs::PermissionsExt as _;

    let files = TempDir::new();
    let path = files.join("tasks.db");
    let store = SqliteStore::open(&path).unwrap();
    store.create(task(replica())).await.unwrap();

    for name in ["tasks.db", "tasks.db-wal", "tasks.db-shm"] {
        let mode = fs::metadata(files.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn a_path_is_not_a_uri_or_a_name_of_sqlite() {
    if is_child() {
        return open_relative_paths();
    }
    let files = TempDir::new();
    let mut command = this_test_binary("sqlite::opening::a_path_is_not_a_uri_or_a_name_of_sqlite");

    let status = command.current_dir(files.join("")).status().unwrap();

    assert!(status.success());
    for name in RELATIVE_PATHS {
        assert!(files.join(name).exists(), "{name}");
    }
}

/// The part of a process in another directory.
fn open_relative_paths() {
    for name in RELATIVE_PATHS {
        drop(SqliteStore::open(name).unwrap());
    }
}

#[test]
fn a_newer_schema_is_refused_and_unchanged() {
    let files = TempDir::new();
    let path = files.join("tasks.db");
    drop(SqliteStore::open(&path).unwrap());
    let connection = Connection::open(&path).unwrap();
    connection.pragma_update(None, "user_version", 2).unwrap();

    let refused = SqliteStore::open(&path).unwrap_err();

    let StoreError::NewerSchema {
        found: 2,
        supported: 1,
        ..
    } = refused
    else {
        panic!("expected a newer schema, got {refused:?}");
    };
    assert!(
        refused
            .to_string()
            .contains("tasks.db has schema version 2")
    );
    let version: i64 = connection.pragma_query_one(None, "user_version").unwrap();
    assert_eq!(version, 2);
}

#[test]
fn a_database_of_another_application_is_refused_and_unchanged() {
    for schema in [
        "CREATE TABLE notes (text TEXT)",
        "PRAGMA application_id = 252006674",
        "PRAGMA user_version = 7",
        "PRAGMA application_id = 252006674; PRAGMA user_version = 1; CREATE TABLE tasks (id BLOB)",
    ] {
        let files = TempDir::new();
        let path = files.join("other.db");
        Connection::open(&path)
            .unwrap()
            .execute_batch(schema)
            .unwrap();
        let before = fs::read(&path).unwrap();

        let refused = SqliteStore::open(&path).unwrap_err();

        assert!(
            matches!(refused, StoreError::ForeignData { .. }),
            "{refused:?}"
        );
        assert_eq!(fs::read(&path).unwrap(), before, "{schema}");
    }
}

#[test]
fn a_file_that_is_not_a_database_is_refused_and_unchanged() {
    let files = TempDir::new();
    let path = files.join("tasks.db");
    for content in [b"x".repeat(3), b"not a database\n".repeat(1000)] {
        fs::write(&path, &content).unwrap();

        assert_corrupt(&path);

        assert_eq!(fs::read(&path).unwrap(), content);
    }
}

#[tokio::test]
async fn a_truncated_database_is_refused() {
    let files = TempDir::new();
    let path = files.join("tasks.db");
    let store = SqliteStore::open(&path).unwrap();
    for _ in 0..100 {
        store.create(task(replica())).await.unwrap();
    }
    let connection = Connection::open(&path).unwrap();
    let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
    connection.query_row(checkpoint, [], |_| Ok(())).unwrap();
    let content = fs::read(&path).unwrap();

    // SQLite treats a file of one byte as an empty one.
    for length in [2, 99, 512, 4096, content.len() / 2, content.len() - 4096] {
        let copy = files.join("copy.db");
        fs::write(&copy, &content[..length]).unwrap();
        assert_corrupt(&copy);
    }
}

#[test]
fn a_path_without_a_directory_is_refused() {
    let unnamed = SqliteStore::open("").unwrap_err();
    assert!(
        matches!(unnamed, StoreError::Unavailable { .. }),
        "{unnamed:?}"
    );

    let files = TempDir::new();
    fs::write(files.join("file"), "").unwrap();
    for path in ["file/tasks.db", "missing/tasks.db"] {
        let refused = SqliteStore::open(files.join(path)).unwrap_err();
        assert!(
            matches!(refused, StoreError::Unavailable { .. }),
            "{refused:?}"
        );
        assert!(
            refused
                .to_string()
                .starts_with("failed to access the task store")
        );
    }
}

#[cfg(unix)]
#[test]
fn a_directory_that_is_not_writable_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;

    let files = TempDir::new();
    let directory = files.join("directory");
    fs::create_dir(&directory).unwrap();
    drop(SqliteStore::open(directory.join("existing.db")).unwrap());
    fs::set_permissions(
        directory.join("existing.db"),
        fs::Permissions::from_mode(0o400),
    )
    .unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o500)).unwrap();
    if fs::write(directory.join("probe"), "").is_ok() {
        eprintln!("skipped: the superuser ignores modes");
        return;
    }

    for name in ["new.db", "existing.db"] {
        let refused = SqliteStore::open(directory.join(name)).unwrap_err();
        assert!(
            matches!(refused, StoreError::ReadOnly { .. }),
            "{refused:?}"
        );
    }
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
}

fn assert_corrupt(path: &Path) {
    let refused = SqliteStore::open(path).unwrap_err();
    assert!(matches!(refused, StoreError::Corrupt { .. }), "{refused:?}");
    assert!(!refused.is_transient());
}

const RELATIVE_PATHS: [&str; 3] = [":memory:", "file:tasks?mode=memory", "tasks.db"];
