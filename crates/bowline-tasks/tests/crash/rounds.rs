//! The rounds: tasks are created at both processes, one or both are killed and started again.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::{Client, Error};
use bowline_tasks::store::TaskStatus;
use bowline_tasks::{TaskCall as _, TaskClient, TaskHandle};
use rusqlite::Connection;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::audit::audit;
use crate::event_log::{self, EventKind, EventLog};
use crate::server_process::{Mode, ServerProcess, expected_result, random};
use crate::temp_dir::TempDir;

/// How much to run.
#[derive(Debug)]
pub(crate) struct CrashOptions {
    pub(crate) rounds: usize,
    /// How many tasks are acknowledged in all.
    pub(crate) tasks: usize,
    pub(crate) lease: Duration,
}

/// What a run showed.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) violations: Vec<String>,
    pub(crate) acknowledged: usize,
    /// Calls whose process was killed before it answered.
    unacknowledged: usize,
    kills: usize,
    completed: [usize; 3],
    failed: [usize; 3],
    starts: usize,
    begins: usize,
    stale_begins: usize,
    /// In milliseconds, sorted.
    pub(crate) recoveries: Vec<u64>,
}

/// Runs the rounds, waits for all tasks, and audits what happened.
pub(crate) async fn run(options: &CrashOptions) -> Report {
    let files = TempDir::new();
    let mut crash = Crash {
        database: files.join("tasks.db"),
        log_path: files.join("events.log"),
        log: EventLog::open(&files.join("events.log")),
        lease: options.lease,
        calls: Arc::default(),
        report: Report::default(),
    };
    let mut processes = [crash.start(), crash.start()];
    for round in 1..=options.rounds {
        let target = options.tasks * round / options.rounds;
        crash.round(round, &mut processes, target).await;
    }
    // Those of the last rounds that were not acknowledged.
    crash.create(&processes, options.tasks).await;
    crash.await_tasks(&processes).await;
    crash.finish()
}

struct Crash {
    database: PathBuf,
    log_path: PathBuf,
    log: EventLog,
    lease: Duration,
    calls: Arc<Mutex<Calls>>,
    report: Report,
}

/// The calls that were made.
#[derive(Debug, Default)]
struct Calls {
    count: usize,
    target: usize,
    in_flight: usize,
    acknowledged: Vec<Acknowledged>,
}

/// A task whose id the client received.
#[derive(Clone, Debug)]
struct Acknowledged {
    label: String,
    id: String,
}

impl Calls {
    /// Returns the label of the next call; `None` if enough were made.
    fn next(&mut self) -> Option<String> {
        if self.acknowledged.len() + self.in_flight >= self.target {
            return None;
        }
        let mode = Mode::ALL[self.count % Mode::ALL.len()];
        let label = format!("{mode:?}.{}", self.count);
        (self.count, self.in_flight) = (self.count + 1, self.in_flight + 1);
        Some(label)
    }
}

impl Crash {
    fn start(&self) -> ServerProcess {
        ServerProcess::start(&self.database, &self.log_path, self.lease)
    }

    async fn round(&mut self, round: usize, processes: &mut [ServerProcess; 2], target: usize) {
        let killed: &[usize] = match round % 3 {
            1 => &[0],
            2 => &[1],
            _ => &[0, 1],
        };
        self.calls.lock().unwrap().target = target;
        let begun = watch::Sender::new(false);
        let mut creating = self.creators(processes, &begun);
        // As tasks are created, or while they run.
        let is_begun = async { drop(begun.subscribe().wait_for(|begun| *begun).await) };
        let _ = timeout(self.lease, is_begun).await;
        sleep(random(KILL_WINDOW)).await;
        for &nth in killed {
            processes[nth].kill();
            self.log
                .write(processes[nth].pid(), "-", EventKind::Killed, 0);
            self.report.kills += 1;
        }
        self.log_journal();
        while let Some(created) = creating.join_next().await {
            created.unwrap();
        }
        for &nth in killed {
            processes[nth] = self.start();
        }
        // The next kill may come before, during or after the recovery.
        sleep(random(self.lease + self.lease / 2)).await;
    }

    /// Creates tasks until `target` are acknowledged.
    async fn create(&self, processes: &[ServerProcess; 2], target: usize) {
        self.calls.lock().unwrap().target = target;
        let mut creating = self.creators(processes, &watch::Sender::new(false));
        while let Some(created) = creating.join_next().await {
            created.unwrap();
        }
    }

    /// Starts several callers of each process.
    fn creators(&self, processes: &[ServerProcess; 2], begun: &watch::Sender<bool>) -> JoinSet<()> {
        let mut creating = JoinSet::new();
        for nth in 0..CALLERS {
            let url = processes[nth % processes.len()].url.clone();
            creating.spawn(create_tasks(url, self.calls.clone(), begun.clone()));
        }
        creating
    }

    /// Writes to the log which steps are in the journal now.
    fn log_journal(&self) {
        let connection = Connection::open(&self.database).unwrap();
        connection.busy_timeout(self.lease).unwrap();
        let mut journal = connection.prepare(JOURNAL).unwrap();
        let rows = journal.query_map([], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
        });
        for row in rows.unwrap() {
            let (label, name) = row.unwrap();
            let step = name.rsplit(':').next().unwrap().parse().unwrap();
            self.log.write(0, &label, EventKind::Journalled, step);
        }
    }

    /// Waits for every acknowledged task, by its id.
    async fn await_tasks(&mut self, processes: &[ServerProcess; 2]) {
        let tasks = self.calls.lock().unwrap().acknowledged.clone();
        self.report.acknowledged = tasks.len();
        let tasks = Arc::new(Mutex::new(tasks));
        let mut waiting = JoinSet::new();
        for nth in 0..CALLERS {
            let client = connect(&processes[nth % processes.len()].url)
                .await
                .unwrap();
            let tasks = tasks.clone();
            waiting.spawn(async move {
                let mut ended = Vec::new();
                let next = || tasks.lock().unwrap().pop();
                while let Some(task) = next() {
                    let outcome = await_task(&client, &task).await;
                    ended.push((task.label, outcome));
                }
                ended
            });
        }
        for (label, outcome) in waiting.join_all().await.into_iter().flatten() {
            let mode = Mode::of(&label) as usize;
            match outcome {
                Ok(TaskStatus::Completed) => self.report.completed[mode] += 1,
                Ok(_) => self.report.failed[mode] += 1,
                Err(what) => self.report.violations.push(format!("{label}: {what}")),
            }
        }
    }

    fn finish(mut self) -> Report {
        let audit = audit(&event_log::read(&self.log_path));
        self.report.violations.extend(audit.violations);
        self.report.recoveries = audit.recoveries;
        self.report.recoveries.sort_unstable();
        (self.report.starts, self.report.begins) = (audit.starts, audit.begins);
        self.report.stale_begins = audit.stale_begins;
        let calls = self.calls.lock().unwrap().count;
        self.report.unacknowledged = calls - self.report.acknowledged;
        self.report
    }
}

async fn connect(url: &str) -> bowline::Result<Client> {
    Client::connect(url).extension(TaskClient::new()).await
}

/// Calls tools of a process until enough tasks are acknowledged or the process is killed.
async fn create_tasks(url: String, calls: Arc<Mutex<Calls>>, begun: watch::Sender<bool>) {
    let Ok(client) = connect(&url).await else {
        return; // killed already
    };
    let next = || calls.lock().unwrap().next();
    while let Some(label) = next() {
        let tool = format!("{:?}", Mode::of(&label));
        let call = client.call_tool(&tool, json!({"label": label})).as_task();
        let created = call.await;
        let mut calls = calls.lock().unwrap();
        calls.in_flight -= 1;
        match created {
            Ok(task) => {
                let id = task.id().expect("every call becomes a task").to_owned();
                calls.acknowledged.push(Acknowledged { label, id });
                begun.send_replace(true);
            }
            Err(Error::Closed | Error::Transport { .. }) => return,
            Err(error) => panic!("failed to create a task: {error:?}"),
        }
    }
}

/// Waits for the end of a task, and checks that its tool may end like this.
async fn await_task(client: &Client, task: &Acknowledged) -> Result<TaskStatus, String> {
    let handle = TaskHandle::attach(client, task.id.clone());
    let reply = handle.wait().timeout(MAX_WAIT).await;
    let interruption = match Mode::of(&task.label) {
        Mode::AtLeastOnce => None,
        Mode::AtMostOnce => Some("it must run at most once"),
        Mode::NotResumable => Some("its tool cannot be resumed"),
    };
    match reply {
        Ok(reply) if reply.text() == expected_result(&task.label) => Ok(TaskStatus::Completed),
        Ok(reply) => Err(format!("wrong result `{}`", reply.text())),
        Err(Error::Rpc(error)) if interruption.is_some_and(|it| error.message.contains(it)) => {
            Ok(TaskStatus::Failed)
        }
        Err(error) => Err(format!("lost: {error:?}")),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { acknowledged, .. } = self;
        writeln!(
            f,
            "{acknowledged} tasks acknowledged, {} calls not; {} processes killed",
            self.unacknowledged, self.kills
        )?;
        for mode in Mode::ALL {
            let (completed, failed) = (self.completed[mode as usize], self.failed[mode as usize]);
            writeln!(
                f,
                "{mode:?}: {completed} completed, {failed} failed because a process was killed"
            )?;
        }
        writeln!(
            f,
            "{} handlers started, {} steps begun, {} of them by a process that had lost its lease",
            self.starts, self.begins, self.stale_begins
        )?;
        let (recoveries, count) = (&self.recoveries, self.recoveries.len());
        let at =
            |percent: usize| recoveries.get((count * percent / 100).min(count.saturating_sub(1)));
        let [median, most, max] = [50, 90, 100].map(|percent| at(percent).copied().unwrap_or(0));
        write!(
            f,
            "{count} handlers ran again; milliseconds from the kill: median {median}, 90 % {most}, max {max}"
        )
    }
}

/// The journal entries of steps, with the labels of their tasks.
const JOURNAL: &str = "SELECT json_extract(r.arguments, '$.label'), j.name
    FROM journal j JOIN requests r ON r.task = j.task WHERE j.kind = 'step'";
const CALLERS: usize = 12;
const KILL_WINDOW: Duration = Duration::from_millis(150);
const MAX_WAIT: Duration = Duration::from_secs(120);
