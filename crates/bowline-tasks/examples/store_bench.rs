//! Measures a `SqliteStore`: `cargo run --release -p bowline-tasks --example store_bench [DIRECTORY]`.
//!
//! The directory decides which disk is measured, and is created and removed.

#![allow(clippy::print_stdout, reason = "it prints a table")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_tasks::store::{NewTask, SqliteStore, StoreError, StoreLimits, TaskStore as _};
use bowline_tasks::{ReplicaId, TaskId};
use bowline_types::Json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let name = format!("bowline-bench-{}", TaskId::random()?);
    let default = std::env::temp_dir().join(name);
    let directory = std::env::args_os().nth(1).map_or(default, PathBuf::from);
    std::fs::create_dir(&directory)?;
    let measured = measure(&directory).await;
    std::fs::remove_dir_all(&directory)?;
    Ok(measured?)
}

async fn measure(directory: &Path) -> Result<(), StoreError> {
    let path = directory.join("tasks.db");
    let max = usize::MAX;
    let limits = StoreLimits::new()
        .max_tasks_per_principal(max)
        .max_unfinished_per_principal(max);
    let store = Arc::new(SqliteStore::open(&path)?.limits(limits));
    let mut stored = create(&store, 1, 100).await?;
    times(&store, &stored).await?;
    for (callers, count) in [(1, 500), (64, 10_000)] {
        let start = Instant::now();
        stored.extend(create(&store, callers, count).await?);
        let per_second = count as f64 / start.elapsed().as_secs_f64();
        println!("{callers} callers: {per_second:.0} creates per second");
    }
    let missing = 100_000 - stored.len();
    stored.extend(create(&store, 1000, missing).await?);
    times(&store, &stored).await?;
    let bytes = ["tasks.db", "tasks.db-wal"]
        .map(|name| std::fs::metadata(directory.join(name)).map_or(0, |file| file.len()));
    let per_task = bytes[0] / stored.len() as u64;
    println!(
        "{per_task} bytes per task on disk, log of {} bytes",
        bytes[1]
    );
    Ok(())
}

/// Creates tasks whose lease has expired, concurrently.
async fn create(
    store: &Arc<SqliteStore>,
    callers: usize,
    count: usize,
) -> Result<Vec<TaskId>, StoreError> {
    let (owner, mut running) = (ReplicaId::random()?, Vec::new());
    for caller in 0..callers {
        let store = store.clone();
        let count = count / callers + usize::from(caller < count % callers);
        running.push(tokio::spawn(async move {
            let mut ids = Vec::new();
            for _ in 0..count {
                let task = NewTask::new(TaskId::random()?, "convert", owner, Duration::ZERO)
                    .arguments(Json::from_static(r#"{"file":"a.png","format":"jpeg"}"#))
                    .ttl(HOUR);
                ids.push(store.create(task).await?.id);
            }
            Ok::<_, StoreError>(ids)
        }));
    }
    let mut ids = Vec::new();
    for caller in running {
        ids.extend(caller.await.unwrap_or_else(|_| Ok(Vec::new()))?);
    }
    Ok(ids)
}

/// Prints the mean time of an operation by one caller.
async fn times(store: &Arc<SqliteStore>, stored: &[TaskId]) -> Result<(), StoreError> {
    let owner = ReplicaId::random()?;
    let count = stored.len();
    let mean = |start: Instant| start.elapsed() / ROUNDS;
    let start = Instant::now();
    for round in 0..ROUNDS as usize {
        store.read(stored[round * 7919 % count]).await?;
    }
    let read = mean(start);
    let start = Instant::now();
    create(store, 1, ROUNDS as usize).await?;
    let created = mean(start);
    let start = Instant::now();
    for _ in 0..ROUNDS {
        store.claim(owner, HOUR, 1).await?;
    }
    let claimed = mean(start);
    println!("{count} stored: create {created:?}, read {read:?}, claim {claimed:?}");
    Ok(())
}

const HOUR: Duration = Duration::from_secs(3600);
const ROUNDS: u32 = 50;
