//! A disk that is really full: a small file system in memory, in a mount namespace of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use bowline_tasks::store::{SqliteStore, StoreError, StoreLimits, TaskStore as _};
use bowline_types::Json;

use super::{TempDir, check_integrity};
use bowline_tasks::testing::{replica, task};

#[tokio::test]
async fn a_store_on_a_disk_without_space_loses_nothing_and_recovers() {
    if let Some(directory) = std::env::var_os(DIRECTORY_VARIABLE) {
        return fill_the_disk(&PathBuf::from(directory)).await;
    }
    let files = TempDir::new();
    let directory = files.join("");
    let mount = "mount -t tmpfs -o size=4m tmpfs \"$0\"";
    let namespace = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["-rm", "sh", "-c", script]).arg(&directory);
        command
    };
    if !namespace(mount)
        .status()
        .is_ok_and(|status| status.success())
    {
        eprintln!("skipped: this system does not let a user mount a file system");
        return;
    }

    let script = format!("{mount} && exec \"$@\"");
    let status = namespace(&script)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", THIS_TEST])
        .env(DIRECTORY_VARIABLE, &directory)
        .status();

    assert!(status.unwrap().success());
}

/// The part of a process on a small disk.
async fn fill_the_disk(directory: &Path) {
    let (path, ballast) = (directory.join("tasks.db"), directory.join("ballast"));
    fs::write(&ballast, vec![1; 1_000_000]).unwrap();
    let limits = StoreLimits::new().max_unfinished_per_principal(usize::MAX);
    let store = Arc::new(SqliteStore::open(&path).unwrap().limits(limits));

    let writers = (0..16).map(|_| tokio::spawn(fill(store.clone())));
    let mut stored = Vec::new();
    for writer in writers.collect::<Vec<_>>() {
        let (records, error) = writer.await.unwrap();
        assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
        stored.extend(records);
    }

    assert!(stored.len() > 100, "{}", stored.len());
    for record in &stored {
        assert_eq!(store.read(record.id).await.unwrap().as_ref(), Some(record));
    }
    fs::remove_file(&ballast).unwrap();
    stored.push(store.create(task(replica())).await.unwrap());
    let reopened = SqliteStore::open(&path).unwrap();
    for record in stored {
        assert_eq!(reopened.read(record.id).await.unwrap(), Some(record));
    }
    check_integrity(&path);
}

/// Creates tasks until one does not fit.
async fn fill(store: Arc<SqliteStore>) -> (Vec<bowline_tasks::store::TaskRecord>, StoreError) {
    let mut stored = Vec::new();
    loop {
        let text = Json::encode(&"x".repeat(3000)).unwrap();
        match store.create(task(replica()).arguments(text)).await {
            Ok(record) => stored.push(record),
            Err(error) => return (stored, error),
        }
    }
}

const THIS_TEST: &str =
    "sqlite::full_disk::a_store_on_a_disk_without_space_loses_nothing_and_recovers";
const DIRECTORY_VARIABLE: &str = "BOWLINE_TEST_SMALL_DISK";
