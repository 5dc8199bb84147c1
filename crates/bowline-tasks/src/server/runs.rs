//! [`RunTable`]: the tasks that this process runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::run::TaskRun;
use crate::TaskId;
use crate::sync::Mutex;

/// The tasks that this process runs, by their id.
#[derive(Default)]
pub(super) struct RunTable {
    runs: Mutex<BTreeMap<TaskId, Arc<TaskRun>>>,
    is_draining: AtomicBool,
}

impl RunTable {
    pub(super) fn insert(&self, run: &Arc<TaskRun>) {
        self.runs.lock().insert(run.id, run.clone());
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
