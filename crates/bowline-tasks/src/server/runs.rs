//! [`RunTable`]: the tasks that this process runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
}

impl RunTable {
    /// Adds a run, unless a later one of the same task is there.
    pub(super) fn insert(&self, run: &Arc<TaskRun>) {
        let mut runs = self.runs.lock();
        let is_later = |known: &Arc<TaskRun>| known.fence.attempt > run.fence.attempt;
        if !runs.get(&run.id).is_some_and(is_later) {
            runs.insert(run.id, run.clone());
        }
    }

    pub(super) fn get(&self, id: TaskId) -> Option<Arc<TaskRun>> {
        self.runs.lock().get(&id).cloned()
    }

    pub(super) fn all(&self) -> Vec<Arc<TaskRun>> {
        self.runs.lock().values().cloned().collect()
    }

    /// Removes a run, unless a later one of the same task has taken its place.
    pub(super) fn remove(&self, run: &Arc<TaskRun>) {
        let mut runs = self.runs.lock();
        if runs
            .get(&run.id)
            .is_some_and(|known| Arc::ptr_eq(known, run))
        {
            runs.remove(&run.id);
        }
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

/// Removes a run from its table when it ends.
pub(super) struct Registered {
    pub(super) runs: Arc<RunTable>,
    pub(super) run: Arc<TaskRun>,
}

impl Drop for Registered {
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
