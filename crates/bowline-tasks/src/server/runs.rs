//! [`RunTable`]: the tasks that this process runs.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bowline::telemetry::TaskMetrics;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::run::TaskRun;
use crate::TaskId;
use crate::store::TaskOutcome;
use crate::sync::Mutex;

/// The tasks that this process runs, by their id.
#[derive(Default)]
pub(super) struct RunTable {
    runs: Mutex<BTreeMap<TaskId, Arc<TaskRun>>>,
    /// Tasks that are being deleted, because no caller knows them.
    discarded: Mutex<BTreeSet<TaskId>>,
    is_draining: AtomicBool,
    spawned: Notify,
    /// Set when the server is known.
    metrics: OnceLock<TaskMetrics>,
}

impl RunTable {
    /// Adds a run, unless a later one of the same task is there.
    fn insert(&self, run: &Arc<TaskRun>) {
        let mut runs = self.runs.lock();
        let is_later = |known: &Arc<TaskRun>| known.fence.attempt > run.fence.attempt;
        if !runs.get(&run.id).is_some_and(is_later) {
            runs.insert(run.id, run.clone());
        }
    }

    pub(super) fn get(&self, id: TaskId) -> Option<Arc<TaskRun>> {
        self.runs.lock().get(&id).cloned()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.lock().is_empty()
    }

    pub(super) fn all(&self) -> Vec<Arc<TaskRun>> {
        self.runs.lock().values().cloned().collect()
    }

    /// Removes a run, unless a later one of the same task has taken its place.
    fn remove(&self, run: &Arc<TaskRun>) {
        let mut runs = self.runs.lock();
        if runs
            .get(&run.id)
            .is_some_and(|known| Arc::ptr_eq(known, run))
        {
            runs.remove(&run.id);
        }
    }

    /// Sets the metrics that runs are recorded with.
    pub(super) fn set_metrics(&self, metrics: TaskMetrics) {
        // Fails if they are set already: a `Tasks` belongs to one server.
        let _ = self.metrics.set(metrics);
    }

    /// Marks that a run goes on in the background.
    pub(super) fn set_spawned(&self) {
        self.spawned.notify_one();
    }

    /// Waits until a run goes on in the background; returns at once if one was spawned since the last time.
    pub(super) async fn spawned(&self) {
        self.spawned.notified().await;
    }

    /// Returns whether a task is being deleted, so that it must not run if this process claims it before.
    pub(super) fn is_discarded(&self, id: TaskId) -> bool {
        self.discarded.lock().contains(&id)
    }

    /// Marks that the process shuts down and claims no more tasks.
    pub(super) fn start_draining(&self) {
        self.is_draining.store(true, Ordering::Release);
    }

    pub(super) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }
}

/// A run that is in the table until this is dropped.
pub(super) struct RegisteredRun {
    runs: Arc<RunTable>,
    run: Arc<TaskRun>,
    started: Instant,
}

impl RegisteredRun {
    pub(super) fn new(runs: Arc<RunTable>, run: Arc<TaskRun>) -> Self {
        runs.insert(&run);
        if let Some(metrics) = runs.metrics.get() {
            metrics.started();
        }
        let started = Instant::now();
        Self { runs, run, started }
    }

    /// Records that the run has ended, and the outcome of the task if it is known.
    fn record_end(&self) {
        let Some(metrics) = self.runs.metrics.get() else {
            return;
        };
        metrics.stopped();
        self.run.with_record(|record| {
            let status = match &record.outcome {
                Some(TaskOutcome::Completed(_)) => "completed",
                Some(TaskOutcome::Failed(_)) => "failed",
                Some(TaskOutcome::Cancelled) => "cancelled",
                None => return,
            };
            metrics.ended(&record.request.tool, status, self.started.elapsed());
        });
    }
}

impl Deref for RegisteredRun {
    type Target = Arc<TaskRun>;

    fn deref(&self) -> &Arc<TaskRun> {
        &self.run
    }
}

impl Drop for RegisteredRun {
    fn drop(&mut self) {
        self.runs.remove(&self.run);
        self.record_end();
    }
}

/// Marks a task as discarded, until it is deleted.
pub(super) struct Discarded {
    runs: Arc<RunTable>,
    id: TaskId,
}

impl Discarded {
    pub(super) fn new(runs: Arc<RunTable>, id: TaskId) -> Self {
        runs.discarded.lock().insert(id);
        Self { runs, id }
    }
}

impl Drop for Discarded {
    fn drop(&mut self) {
        self.runs.discarded.lock().remove(&self.id);
    }
}
