//! The server process that is killed, and the handle with which the test starts and kills it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bowline::server::Args;
use bowline::{Context, Server, Tool, ToolError};
use bowline_tasks::{TaskId, TaskSettings, Tasks};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::sleep;

use crate::event_log::{EventKind, EventLog};

/// How the handler of a tool may run; also the name of the tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    AtLeastOnce,
    AtMostOnce,
    NotResumable,
}

impl Mode {
    pub(crate) const ALL: [Self; 3] = [Self::AtLeastOnce, Self::AtMostOnce, Self::NotResumable];

    /// Returns the mode that a label names: `AtMostOnce.17`.
    pub(crate) fn of(label: &str) -> Self {
        let all = Self::ALL.into_iter();
        let named = |mode: &Self| label.starts_with(&format!("{mode:?}."));
        { all }.find(named).unwrap()
    }

    fn settings(self) -> TaskSettings {
        let settings = TaskSettings::new();
        match self {
            Self::AtLeastOnce => settings.resumable(),
            Self::AtMostOnce => settings.at_most_once(),
            Self::NotResumable => settings,
        }
    }
}

/// The arguments of every tool.
#[derive(Debug, Deserialize, JsonSchema)]
struct Job {
    label: String,
}

/// The result of a handler that ran all its steps.
pub(crate) fn expected_result(label: &str) -> String {
    let sum: u32 = (0..STEPS).map(|step| step * 7).sum();
    format!("{label}: {sum}")
}

async fn work(cx: Context, label: String, log: Arc<EventLog>) -> Result<String, ToolError> {
    let log = |kind, step| log.write(std::process::id(), &label, kind, step);
    log(EventKind::Start, 0);
    let mut sum = 0;
    for step in 0..STEPS {
        let effect = async {
            log(EventKind::Begin, step);
            sleep(random(MAX_STEP)).await; // the work
            log(EventKind::End, step);
            step * 7
        };
        sum += cx.step(&step.to_string(), effect).await?;
        log(EventKind::Committed, step);
    }
    Ok(format!("{label}: {sum}"))
}

/// Returns whether this process is a server that a test has started.
pub(crate) fn is_server() -> bool {
    std::env::var_os(DATABASE_VARIABLE).is_some()
}

/// The server that is killed.
pub(crate) async fn serve_until_killed() {
    let path = |name| PathBuf::from(std::env::var_os(name).expect("the test sets it"));
    let (database, log) = (path(DATABASE_VARIABLE), path(LOG_VARIABLE));
    let lease = std::env::var(LEASE_VARIABLE).unwrap().parse().unwrap();
    let lease = Duration::from_millis(lease);
    // If the test itself ends, so does this process.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(1);
    });
    let tasks = Tasks::sqlite(database).unwrap();
    let tasks = tasks.lease(lease).renew_every(lease / 3);
    let log = Arc::new(EventLog::open(&log));
    let server = Server::new("crash", "1").extension(tasks);
    let server = { Mode::ALL.into_iter() }.fold(server, |server, mode| {
        let log = log.clone();
        let work = move |cx: Context, Args(job): Args<Job>| work(cx, job.label, log.clone());
        let tool = Tool::new(format!("{mode:?}"), work).with_settings(mode.settings());
        server.tool(tool)
    });
    let bound = server.http().bind("127.0.0.1:0").await.unwrap();
    println!("{PREFIX}http://{}/mcp", bound.local_addr());
    bound.serve().await.unwrap();
}

/// A server process that runs.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    child: Child,
    pub(crate) url: String,
}

impl ServerProcess {
    /// Starts a process and waits until it serves.
    pub(crate) fn start(database: &Path, log: &Path, lease: Duration) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "no_task_is_lost_or_doubled_by_kill_9",
                "--nocapture",
            ])
            .env(DATABASE_VARIABLE, database)
            .env(LOG_VARIABLE, log)
            .env(LEASE_VARIABLE, lease.as_millis().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut urls = lines.filter_map(|line| Some(line.ok()?.strip_prefix(PREFIX)?.to_owned()));
        let url = urls.next().expect("the process serves");
        Self { child, url }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills the process (SIGKILL).
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a random duration up to `max`.
pub(crate) fn random(max: Duration) -> Duration {
    let random = TaskId::random().unwrap();
    let bytes = [random.as_bytes()[0], random.as_bytes()[1]];
    max * u32::from(u16::from_le_bytes(bytes)) / u32::from(u16::MAX)
}

const STEPS: u32 = 5;
const MAX_STEP: Duration = Duration::from_millis(60);
const DATABASE_VARIABLE: &str = "BOWLINE_CRASH_DATABASE";
const LOG_VARIABLE: &str = "BOWLINE_CRASH_LOG";
const LEASE_VARIABLE: &str = "BOWLINE_CRASH_PROCESS_LEASE_MS";
const PREFIX: &str = "serving ";
