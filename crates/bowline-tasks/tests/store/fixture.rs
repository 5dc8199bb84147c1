//! Stores for the laws: two handles to the same tasks, and a clock that a test moves.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bowline_tasks::store::{Clock, MemoryStore, NewTask, StoreLimits, TaskStore, Timestamp};
use bowline_tasks::{ReplicaId, TaskId};
use bowline_types::Json;

/// Makes stores with these limits.
pub(crate) type MakeStores = dyn Fn(StoreLimits) -> Stores + Sync;

/// Two processes with the same tasks.
pub(crate) struct Stores {
    pub(crate) first: Arc<dyn TaskStore>,
    pub(crate) second: Arc<dyn TaskStore>,
    pub(crate) clock: TestClock,
    /// Removes the files of the stores when it is dropped.
    pub(crate) _files: Box<dyn Any + Send>,
}

/// Two processes cannot share memory, so both handles are the same store.
pub(crate) fn memory(limits: StoreLimits) -> Stores {
    let clock = TestClock::default();
    let store = Arc::new(MemoryStore::new().limits(limits).clock(clock.clone()));
    Stores {
        first: store.clone(),
        second: store,
        clock,
        _files: Box::new(()),
    }
}

/// A clock that stands still until a test moves it.
#[derive(Clone)]
pub(crate) struct TestClock(Arc<AtomicU64>);

impl TestClock {
    pub(crate) fn advance(&self, duration: Duration) {
        let millis = u64::try_from(duration.as_millis()).unwrap();
        self.0.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Default for TestClock {
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(1_785_240_000_000)))
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}

/// A task with a lease of [`LEASE`].
pub(crate) fn task(owner: ReplicaId) -> NewTask {
    NewTask::new(TaskId::random().unwrap(), "convert", owner, LEASE)
}

pub(crate) fn replica() -> ReplicaId {
    ReplicaId::random().unwrap()
}

pub(crate) fn json(text: &'static str) -> Json {
    Json::parse(text).unwrap()
}

pub(crate) const LEASE: Duration = Duration::from_secs(6);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
