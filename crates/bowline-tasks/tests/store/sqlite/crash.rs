//! Processes that are killed while they write.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use bowline_tasks::TaskId;
use bowline_tasks::store::{
    JournalEntry, JournalKind, SqliteStore, StoreLimits, TaskChange, TaskStatus, TaskStore as _,
    Updated,
};

use super::{TempDir, check_integrity, this_test_binary};
use bowline_tasks::testing::{json, replica, task};

#[tokio::test]
async fn what_was_acknowledged_survives_a_kill_at_any_moment() {
    if let Some(path) = std::env::var_os(PATH_VARIABLE) {
        return write_until_killed(PathBuf::from(path)).await;
    }
    let files = TempDir::new();
    let path = files.join("tasks.db");
    let mut acknowledged = BTreeMap::new();
    for _ in 0..ROUNDS {
        let processes: Vec<_> = (0..2)
            .map(|_| {
                std::thread::spawn({
                    let path = path.clone();
                    move || run_and_kill(&path)
                })
            })
            .collect();
        for process in processes {
            acknowledged.extend(process.join().unwrap());
        }

        let store = SqliteStore::open(&path).unwrap();
        for (id, progress) in &acknowledged {
            check(&store, *id, *progress).await;
        }
        check_integrity(&path);
    }

    assert!(acknowledged.len() >= ROUNDS, "{}", acknowledged.len());
}

/// The steps in the life of a task, each acknowledged by the store before the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Progress {
    Created,
    Appended,
    Changed,
    Finished,
}

/// Starts a process that writes, kills it after a random number of acknowledgements, and returns the last one of each
/// task, with those that were on their way.
fn run_and_kill(path: &Path) -> BTreeMap<TaskId, Progress> {
    let mut child = this_test_binary(THIS_TEST)
        .env(PATH_VARIABLE, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut lines = lines.filter_map(|line| parse(&line.unwrap()));
    let random = TaskId::random().unwrap();
    let count = 1 + usize::from(random.as_bytes()[0]);

    let mut acknowledged: BTreeMap<_, _> = lines.by_ref().take(count).collect();
    child.kill().unwrap();
    acknowledged.extend(lines);
    child.wait().unwrap();
    acknowledged
}

async fn check(store: &SqliteStore, id: TaskId, progress: Progress) {
    let record = store.read(id).await.unwrap();
    let record = record.unwrap_or_else(|| panic!("{progress:?} task is lost"));
    let journal = store.journal(id).await.unwrap();
    if progress >= Progress::Appended && !record.is_finished() {
        let entry = JournalEntry::new(JournalKind::Step, "a", json("1"));
        assert_eq!(journal, [entry]);
    }
    if progress >= Progress::Changed {
        assert_eq!(record.status_message.as_deref(), Some("half"));
    }
    if progress >= Progress::Finished {
        assert_eq!(record.status(), TaskStatus::Completed);
    }
}

/// The part of the process that is killed.
async fn write_until_killed(path: PathBuf) {
    let limits = StoreLimits::new().max_unfinished_per_principal(usize::MAX);
    let limits = limits.max_tasks_per_principal(usize::MAX);
    let store = Arc::new(SqliteStore::open(path).unwrap().limits(limits));
    let writers = (0..8).map(|_| tokio::spawn(write_tasks(store.clone())));
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
}

async fn write_tasks(store: Arc<SqliteStore>) {
    loop {
        let record = store.create(task(replica())).await.unwrap();
        acknowledge(record.id, Progress::Created);
        let entry = JournalEntry::new(JournalKind::Step, "a", json("1"));
        let fence = record.fence();
        store.append(record.id, fence, entry).await.unwrap();
        acknowledge(record.id, Progress::Appended);
        let change = TaskChange::new().fence(fence).status_message("half");
        let updated = store
            .update(record.id, record.version, change)
            .await
            .unwrap();
        assert_eq!(updated, Updated::Done(record.version.next()));
        acknowledge(record.id, Progress::Changed);
        let finish = TaskChange::new().fence(fence).complete(json("{}"));
        let finish = store.update(record.id, record.version.next(), finish);
        assert!(matches!(finish.await.unwrap(), Updated::Done(_)));
        acknowledge(record.id, Progress::Finished);
    }
}

/// Writes a line to the other process, in one call, so that a kill does not divide it.
fn acknowledge(id: TaskId, progress: Progress) {
    let line = format!("{PREFIX}{id} {progress:?}\n");
    std::io::stdout().write_all(line.as_bytes()).unwrap();
}

/// Reads a line of [`acknowledge`]; `None` for those of the test harness.
fn parse(line: &str) -> Option<(TaskId, Progress)> {
    let (id, progress) = line.strip_prefix(PREFIX)?.split_once(' ')?;
    let all = [
        Progress::Created,
        Progress::Appended,
        Progress::Changed,
        Progress::Finished,
    ];
    let progress = all.into_iter().find(|one| format!("{one:?}") == progress)?;
    Some((id.parse().ok()?, progress))
}

const ROUNDS: usize = 5;
const THIS_TEST: &str = "sqlite::crash::what_was_acknowledged_survives_a_kill_at_any_moment";
const PATH_VARIABLE: &str = "BOWLINE_TEST_TASK_STORE";
const PREFIX: &str = "stored ";
