//! [`RunTable`]: the tasks that this process runs.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use super::run::TaskRun;
use crate::TaskId;
use crate::sync::Mutex;

/// The tasks that this process runs, by their id.
#[derive(Default)]
pub(super) struct RunTable {
    runs: Mutex<BTreeMap<TaskId, Arc<TaskRun>>>,
    /// Tasks that are being deleted, because no caller knows them.
    discarded: Mutex<BTreeSet<TaskId>>,
    is_draining: AtomicBool,
    spawned: Notify,
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
}

impl RegisteredRun {
    pub(super) fn new(runs: Arc<RunTable>, run: Arc<TaskRun>) -> Self {
        runs.insert(&run);
        Self { runs, run }
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
