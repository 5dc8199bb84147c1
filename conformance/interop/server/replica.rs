//! The server as one of several replica processes: on an engine, with the state of the fixture in a folder that all of
//! them share, as the servers of a product share a database.

use std::error::Error;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use bowline::prelude::*;
use bowline::schemars::{self, JsonSchema};
use bowline::{ErrorCode, RpcError};
use bowline_tasks::Tasks;
use cluster_tests::Engine;
use serde::Serialize;

use crate::tasks;

/// The engine, and the folder of the counters.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReplicaOptions {
    pub(crate) engine: String,
    pub(crate) state: PathBuf,
}

impl ReplicaOptions {
    /// Makes a replica of the server: counters in files, tasks in the engine where it has a store.
    pub(crate) async fn apply(&self, server: Server) -> Result<Server, Box<dyn Error>> {
        let connection = Engine::connect(&self.engine, KEY).await?;
        let counters = FileCounters(self.state.clone());
        let server = server.state(counters.clone());
        server.tools().add(slow)?;
        server.tools().add(stats)?;
        server.tools().add(reset)?;
        server.tools().add(touch)?;
        server.tools().add(set_extra)?;
        let is_present = counters.clone();
        let extra = Tool::of(extra).visible_to(move |_| is_present.has_extra());
        server.tools().add(extra)?;
        server.resources().add(counter);
        let server = match connection.tasks {
            Some(store) => {
                let tasks = Tasks::new(store).poll_interval(tasks::POLL_INTERVAL);
                tasks::tools(server, counters).extension(tasks)
            }
            None => server,
        };
        // A load balancer that probes more often than this sends nothing to a replica that has stopped.
        let server = server.drain_delay(DRAIN_DELAY).grace(GRACE);
        Ok(server.cluster(connection.cluster))
    }
}

/// Counters as files, to which each event appends a byte: the length is the count, and appending is atomic.
#[derive(Clone, Debug)]
pub(crate) struct FileCounters(PathBuf);

impl FileCounters {
    /// Counts an event, and returns the count.
    pub(crate) fn add(&self, event: &str) -> io::Result<u64> {
        let path = self.0.join(event);
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        file.write_all(b".")?;
        Ok(file.metadata()?.len())
    }

    /// Returns the count.
    pub(crate) fn count(&self, event: &str) -> u64 {
        let file = std::fs::metadata(self.0.join(event));
        file.map_or(0, |file| file.len())
    }

    /// Returns whether the tool `extra` is listed.
    fn has_extra(&self) -> bool {
        self.0.join(EXTRA).exists()
    }

    /// Sets whether the tool `extra` is listed.
    fn set_extra(&self, present: bool) -> io::Result<()> {
        let path = self.0.join(EXTRA);
        match present {
            true => std::fs::write(path, ""),
            false if path.exists() => std::fs::remove_file(path),
            false => Ok(()),
        }
    }

    /// Counts a started handler; see [`RunningHandler`].
    pub(crate) fn begin(&self, what: &'static str) -> RunningHandler {
        let running = RunningHandler {
            counters: self.clone(),
            what,
            is_finished: false,
        };
        running.count("started");
        running
    }

    fn reset(&self) {
        for event in ["slow-started", "slow-finished", "slow-cancelled"] {
            // It does not exist before the first event.
            let _ = std::fs::remove_file(self.0.join(event));
        }
    }
}

/// Counts a handler as cancelled if it is dropped before it is finished.
pub(crate) struct RunningHandler {
    counters: FileCounters,
    what: &'static str,
    is_finished: bool,
}

impl RunningHandler {
    pub(crate) fn finish(mut self) {
        self.is_finished = true;
        self.count("finished");
    }

    fn count(&self, event: &str) {
        let event = format!("{}-{event}", self.what);
        if let Err(error) = self.counters.add(&event) {
            eprintln!("failed to count `{event}`: {error}");
        }
    }
}

impl Drop for RunningHandler {
    fn drop(&mut self) {
        if !self.is_finished {
            self.count("cancelled");
        }
    }
}

/// Sleeps.
#[tool(read_only)]
async fn slow(
    /// how long to sleep
    seconds: f64,
    State(counters): State<FileCounters>,
) -> Result<&'static str, RpcError> {
    let duration = Duration::try_from_secs_f64(seconds)
        .map_err(|error| RpcError::new(ErrorCode::INVALID_PARAMS, error.to_string()))?;
    let running = counters.begin("slow");
    tokio::time::sleep(duration).await;
    running.finish();
    Ok("slept")
}

/// The number of handlers of `slow` in each state.
#[derive(Serialize, JsonSchema)]
struct SlowCallCounts {
    started: u64,
    finished: u64,
    cancelled: u64,
    active: u64,
}

/// Returns the counters of `slow`.
#[tool(read_only)]
async fn stats(State(counters): State<FileCounters>) -> Structured<SlowCallCounts> {
    // Those of the end first: a handler that ends meanwhile must not make `active` negative.
    let (finished, cancelled) = (
        counters.count("slow-finished"),
        counters.count("slow-cancelled"),
    );
    let started = counters.count("slow-started");
    Structured(SlowCallCounts {
        started,
        finished,
        cancelled,
        active: started.saturating_sub(finished + cancelled),
    })
}

/// Resets the counters of `slow`.
#[tool]
async fn reset(State(counters): State<FileCounters>) -> &'static str {
    counters.reset();
    "ok"
}

/// Increments the counter, and announces that a resource was updated.
#[tool]
async fn touch(
    #[tool(default = COUNTER.to_owned())] uri: String,
    State(counters): State<FileCounters>,
    cx: Context,
) -> Result<String, ToolError> {
    let count = counters.add("touched")?;
    cx.server().changed().resource_updated(uri);
    Ok(count.to_string())
}

/// Adds or removes the tool `extra`, and announces the change of the list.
#[tool]
async fn set_extra(
    /// whether `extra` is listed
    present: bool,
    State(counters): State<FileCounters>,
    cx: Context,
) -> Result<&'static str, ToolError> {
    counters.set_extra(present)?;
    cx.server().changed().tools();
    Ok("ok")
}

/// A tool that `set_extra` adds and removes.
#[tool(read_only)]
async fn extra() -> &'static str {
    "extra"
}

/// The number of calls of `touch`.
#[resource(uri = "fixture://counter", mime_type = "text/plain")]
async fn counter(State(counters): State<FileCounters>) -> String {
    counters.count("touched").to_string()
}

/// The file that exists while the tool `extra` is listed.
const EXTRA: &str = "extra";
const COUNTER: &str = "fixture://counter";
/// All replicas have it. The engines of tests have no secrets.
const KEY: [u8; 32] = [22; 32];
const DRAIN_DELAY: Duration = Duration::from_secs(1);
const GRACE: Duration = Duration::from_secs(20);
