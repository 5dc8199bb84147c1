//! The rows of tasks: every way in which a task ends before its handler does.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bowline::testing::eventually;
use bowline_tasks::store::{SqliteStore, TaskStatus, TaskStore as _};
use bowline_tasks::{TaskCall as _, TaskHandle, TaskId};
use serde_json::json;

use crate::cell_env::{CellEnv, poll_until};
use crate::column::{AbandonSignal, Column};
use crate::expected_frames::{ExpectedFrames, cancel};
use crate::server_end::ServerLocation;
use crate::tools::Extensions;

pub(crate) async fn cancelled_by_handle(column: Column) {
    let tasks = TaskDatabase::new();
    let env = tasks.open(ServerLocation::ThisProcess, column).await;
    let task = start_task(&env, "task").await;

    task.cancel().await.unwrap();

    env.observer.wait_for_drops(1).await;
    assert_eq!(env.observer.counts().started, 1);
    tasks.expect_status(&task, TaskStatus::Cancelled).await;
    let frames = created(&env, "task")
        .then(env.request(2, "tasks/cancel"))
        .then(env.result(2));
    drop(task);
    env.end(frames).await;
}

pub(crate) async fn waiting_call_dropped(column: Column) {
    let tasks = TaskDatabase::new();
    let env = tasks.open(ServerLocation::ThisProcess, column).await;
    let mut call = env.start("task");
    env.poll_into_handler(&mut call).await;
    if column.signal() != AbandonSignal::None {
        let is_listening = || env.observer.frames().contains(&NOTIFIED.to_owned());
        let listening = async { assert!(eventually(is_listening).await) };
        poll_until(&mut call, listening).await;
    }

    drop(call);

    env.observer.wait_for_drops(1).await;
    assert_eq!(env.observer.counts().started, 1);
    tasks.expect_only_status(TaskStatus::Cancelled).await;
    // The request of the cancel belongs to no call, and the subscription ends at the same time.
    let frames = created(&env, "task")
        .then(env.request(2, "tasks/get"))
        .then(env.result(2))
        .then(env.request(3, "subscriptions/listen"))
        .then("← notifications/subscriptions/acknowledged")
        .then(NOTIFIED)
        .unordered(match column.signal() {
            AbandonSignal::Close => format!("→ closes {}", env.id(3)),
            _ => cancel('→', env.id(3), "caller cancelled"),
        })
        .unordered(env.request(4, "tasks/cancel"))
        .unordered(env.result(4))
        .optional(NOTIFIED);
    env.end(frames).await;
}

pub(crate) async fn expired(column: Column) {
    let tasks = TaskDatabase::new();
    let env = tasks.open(ServerLocation::ThisProcess, column).await;

    let task = start_task(&env, "brief task").await;

    env.observer.wait_for_drops(1).await;
    assert_eq!(env.observer.counts().started, 1);
    tasks.expect_status(&task, TaskStatus::Failed).await;
    let frames = created(&env, "brief task");
    drop(task);
    env.end(frames).await;
}

pub(crate) async fn cancelled_after_restart(column: Column) {
    let tasks = TaskDatabase::new();
    let next = tasks.open(ServerLocation::ThisProcess, column).await;
    let mut first = tasks.open(ServerLocation::ChildProcess, column).await;
    let task = start_task(&first, "task").await;
    let id = task.id().unwrap().to_owned();
    drop(task);
    let frames = created(&first, "task");
    // The process reports a frame after it has written it, and would not report it when it is killed.
    let reported = || {
        frames
            .clone()
            .on_wire(column)
            .matches(&first.observer.frames())
    };
    assert!(eventually(reported).await);
    first.kill_server().await;
    first.end_inside_of_another(frames).await;
    next.observer.wait_for_starts(1).await;
    let task = TaskHandle::attach(&next.client, id);

    task.cancel().await.unwrap();

    next.observer.wait_for_drops(1).await;
    assert_eq!(next.observer.counts().started, 1);
    tasks.expect_status(&task, TaskStatus::Cancelled).await;
    let frames = ExpectedFrames::default()
        .then(next.request(1, "tasks/cancel"))
        .then(next.result(1));
    drop(task);
    next.end(frames).await;
}

/// Calls a tool whose calls are tasks, and waits until its handler runs.
async fn start_task(env: &CellEnv, tool: &str) -> TaskHandle {
    let call = env.client.call_tool(tool, json!({"name": "mine"}));
    let task = call.as_task().await.unwrap();
    env.observer.wait_for_starts(1).await;
    task
}

/// The frames of the first request, which created a task.
fn created(env: &CellEnv, tool: &str) -> ExpectedFrames {
    ExpectedFrames::default()
        .then(env.request(1, &format!("tools/call {tool}")))
        .then(env.result(1))
}

/// A database for the servers of one cell, which is removed when it is dropped.
struct TaskDatabase(PathBuf);

impl TaskDatabase {
    fn new() -> Self {
        let name = format!("bowline-matrix-{}", TaskId::random().unwrap());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    fn path(&self) -> PathBuf {
        self.0.join("tasks.db")
    }

    async fn open(&self, location: ServerLocation, column: Column) -> CellEnv {
        CellEnv::open_in(location, column, &Extensions::Tasks(self.path())).await
    }

    /// Asserts how the record of a task ends.
    async fn expect_status(&self, task: &TaskHandle, expected: TaskStatus) {
        let id: TaskId = task.id().unwrap().parse().unwrap();
        let store = SqliteStore::open(self.path()).unwrap();
        let mut status = None;
        // The handler of an expired task is dropped before that is written.
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let record = store.read(id).await.unwrap().unwrap();
            status = Some(record.status());
            if record.is_finished() {
                break;
            }
            tokio::task::yield_now().await;
        }
        assert_eq!(status, Some(expected));
        assert_eq!(store.journal(id).await.unwrap(), []);
    }

    /// Asserts the status of the only task.
    async fn expect_only_status(&self, expected: TaskStatus) {
        let connection = rusqlite::Connection::open(self.path()).unwrap();
        let stored = connection.query_row("SELECT group_concat(status) FROM tasks", [], |row| {
            row.get::<_, String>(0)
        });
        assert_eq!(stored.unwrap(), expected.as_str());
    }
}

impl Drop for TaskDatabase {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const NOTIFIED: &str = "← notifications/tasks";
/// Of the clock of the machine: that of a cell may be paused.
const PATIENCE: Duration = Duration::from_secs(30);
