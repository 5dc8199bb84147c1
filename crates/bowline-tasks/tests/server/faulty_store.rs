//! A store that a test can make unavailable for one process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline_tasks::store::{
    Appended, ChangeFeed, Fence, HeldTask, JournalEntry, ListPosition, MemoryStore, NewTask,
    Renewal, StoreError, StoreFuture, TaskChange, TaskChanges, TaskPage, TaskRecord, TaskStore,
    Updated, Version,
};
use bowline_tasks::{ReplicaId, TaskId};

use crate::support::pass;

/// A process's access to a shared store, without hints on changes.
#[derive(Clone)]
pub(crate) struct FaultyStore {
    inner: Arc<MemoryStore>,
    is_down: Arc<AtomicBool>,
    creation_delay: Arc<Mutex<Duration>>,
    loses_creations: Arc<AtomicBool>,
    loses_next_append: Arc<AtomicBool>,
    feed: ChangeFeed,
}

impl FaultyStore {
    pub(crate) fn new(inner: &Arc<MemoryStore>) -> Self {
        Self {
            inner: inner.clone(),
            is_down: Arc::default(),
            creation_delay: Arc::default(),
            loses_creations: Arc::default(),
            loses_next_append: Arc::default(),
            feed: ChangeFeed::new(),
        }
    }

    /// Makes every operation of this process fail, or work again.
    pub(crate) fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::SeqCst);
    }

    /// Makes `create` return so long after the task was stored.
    pub(crate) fn delay_creation(&self, delay: Duration) {
        *self.creation_delay.lock().unwrap() = delay;
    }

    /// Makes `create` store the task and fail all the same, as if the connection were lost before its answer.
    pub(crate) fn lose_creations(&self) {
        self.loses_creations.store(true, Ordering::SeqCst);
    }

    /// Makes the next `append` store its entry and fail all the same.
    pub(crate) fn lose_next_append(&self) {
        self.loses_next_append.store(true, Ordering::SeqCst);
    }

    fn access<'a, T: Send + 'a>(&self, operation: StoreFuture<'a, T>) -> StoreFuture<'a, T> {
        match self.is_down.load(Ordering::SeqCst) {
            false => operation,
            true => Box::pin(async {
                Err(StoreError::Busy {
                    store: "the store".into(),
                    reason: "a test",
                })
            }),
        }
    }
}

impl TaskStore for FaultyStore {
    fn create(&self, task: NewTask) -> StoreFuture<'_, TaskRecord> {
        let delay = *self.creation_delay.lock().unwrap();
        self.access(Box::pin(async move {
            let created = self.inner.create(task).await;
            pass(delay).await;
            match self.loses_creations.load(Ordering::SeqCst) {
                false => created,
                true => Err(unavailable()),
            }
        }))
    }

    fn read(&self, id: TaskId) -> StoreFuture<'_, Option<TaskRecord>> {
        self.access(self.inner.read(id))
    }

    fn update(
        &self,
        id: TaskId,
        expected: Version,
        change: TaskChange,
    ) -> StoreFuture<'_, Updated> {
        self.access(self.inner.update(id, expected, change))
    }

    fn append(&self, id: TaskId, fence: Fence, entry: JournalEntry) -> StoreFuture<'_, Appended> {
        self.access(Box::pin(async move {
            let appended = self.inner.append(id, fence, entry).await;
            match self.loses_next_append.swap(false, Ordering::SeqCst) {
                false => appended,
                true => Err(unavailable()),
            }
        }))
    }

    fn journal(&self, id: TaskId) -> StoreFuture<'_, Vec<JournalEntry>> {
        self.access(self.inner.journal(id))
    }

    fn claim(
        &self,
        owner: ReplicaId,
        lease: Duration,
        max: usize,
    ) -> StoreFuture<'_, Vec<TaskRecord>> {
        self.access(self.inner.claim(owner, lease, max))
    }

    fn renew<'a>(
        &'a self,
        owner: ReplicaId,
        held: &'a [HeldTask],
        lease: Duration,
    ) -> StoreFuture<'a, Renewal> {
        self.access(self.inner.renew(owner, held, lease))
    }

    fn list<'a>(
        &'a self,
        principal: &'a str,
        after: Option<ListPosition>,
        max: usize,
    ) -> StoreFuture<'a, TaskPage> {
        self.access(self.inner.list(principal, after, max))
    }

    fn delete(&self, id: TaskId) -> StoreFuture<'_, bool> {
        self.access(self.inner.delete(id))
    }

    fn remove_expired(&self, max: usize) -> StoreFuture<'_, usize> {
        self.access(self.inner.remove_expired(max))
    }

    fn changes(&self) -> TaskChanges {
        self.feed.subscribe()
    }
}

fn unavailable() -> StoreError {
    StoreError::Unavailable {
        store: "the store".into(),
        source: Arc::new(std::io::Error::other("a test")),
    }
}
