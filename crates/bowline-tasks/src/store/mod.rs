//! Where tasks are kept: the trait [`TaskStore`], its records, and the stores of this crate.
//!
//! ```text
//!  NewTask ──create──▶ Working ◀──ask / answer──▶ InputRequired
//!                         │                            │
//!                         └── complete, fail, cancel ──┴──▶ finished: never changes again
//!                                                                │
//!                                   delete, remove_expired ◀─────┘ (also of unfinished tasks)
//! ```
//!
//! A record is a task with a lease, not an entry of a queue: the process that created it runs it, and others only look
//! for leases that have expired.
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//! use bowline_tasks::store::{MemoryStore, NewTask, TaskChange, TaskStatus, TaskStore as _, Updated};
//! use bowline_tasks::{ReplicaId, TaskId};
//! use bowline_types::Json;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), bowline_tasks::store::StoreError> {
//! let store = MemoryStore::new();
//! let this_process = ReplicaId::random()?;
//! let task = NewTask::new(TaskId::random()?, "convert", this_process, Duration::from_secs(6));
//! let record = store.create(task).await?;
//! assert_eq!(record.status(), TaskStatus::Working);
//!
//! let done = TaskChange::new().fence(record.fence()).complete(Json::empty_object());
//! assert!(matches!(store.update(record.id, record.version, done).await?, Updated::Done(_)));
//! # Ok(()) }
//! ```

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::{ReplicaId, TaskId};

mod change;
pub use change::{Applied, TaskChange, Updated};

mod changes;
pub use changes::{ChangeFeed, ChangeHint, TaskChanges};

mod clock;
pub use clock::{Clock, SystemClock, Timestamp};

mod error;
pub use error::{Quota, StoreError};

mod journal;
pub use journal::{Appended, JournalEntry, JournalKind};

mod limits;
pub use limits::{StoreLimits, Usage};

mod memory;
pub use memory::MemoryStore;

mod record;
pub use record::{
    Attempt, Fence, NewTask, RunMode, TaskOutcome, TaskRecord, TaskRequest, TaskStatus, Version,
};

#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "sqlite")]
#[cfg_attr(docsrs, doc(cfg(feature = "sqlite")))]
pub use sqlite::SqliteStore;

/// The future of a [`TaskStore`] method.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A store of tasks that one or more processes share.
///
/// [`MemoryStore`] is one for a single process, `SqliteStore` one for the processes of a machine. The methods are made for
/// any database with transactions. In Postgres, for example, [`claim`](Self::claim) selects `FOR UPDATE SKIP LOCKED` and
/// [`changes`](Self::changes) is a `LISTEN`.
///
/// Rules for all methods:
///
/// - A returned `Ok` is durable, as far as the store is: it survives a crash at the next instruction.
/// - Every method sees everything that any process was told is stored (read your writes, across processes).
/// - Each method is atomic. An `Err` means that nothing was stored, except [`StoreError::Unavailable`], after which the
///   outcome is unknown.
/// - The store has one clock, which alone decides which leases and records have expired.
/// - A record whose [`remove_at`](TaskRecord::remove_at) has passed is treated as absent, even before
///   [`remove_expired`](Self::remove_expired) removes it.
/// - The semantics of changes are in [`TaskRecord::apply`] and [`TaskRecord::claim`]. Implementations call these and
///   store the result.
/// - The store does not check the principal, except in [`list`](Self::list): the caller compares it.
///
/// # Cancel safety
///
/// If a future is dropped before it is ready, its operation has happened completely or not at all. Callers that must
/// know read the record.
pub trait TaskStore: Send + Sync + 'static {
    /// Stores a task, owned and leased by its creator, with its initial journal, and returns the record.
    ///
    /// The caller makes the id, so that it can [`delete`](Self::delete) the record after an error or a dropped future.
    ///
    /// # Errors
    ///
    /// [`StoreError::AlreadyExists`] for an id that is stored, [`StoreError::QuotaExceeded`] if the principal has too
    /// much in the store already, [`StoreError::TooLarge`], [`StoreError::Full`], or another failure of the store.
    fn create(&self, task: NewTask) -> StoreFuture<'_, TaskRecord>;

    /// Returns a record, or `None` if it does not exist or has been removed.
    ///
    /// # Errors
    ///
    /// If the store fails.
    fn read(&self, id: TaskId) -> StoreFuture<'_, Option<TaskRecord>>;

    /// Changes a record if it has the version `expected`.
    ///
    /// A finished record answers every update with [`Updated::Conflict`]: the first final state wins. A change with a
    /// [fence](TaskChange::fence) is stored only while its owner holds the lease in the same attempt. An expired lease
    /// is held until another process claims it. A change without effect, such as an answer to a question that is not
    /// open, stores nothing and keeps the version.
    ///
    /// # Errors
    ///
    /// [`StoreError::TooLarge`], [`StoreError::QuotaExceeded`] or [`StoreError::Full`] if the record grows beyond a
    /// limit, or another failure of the store.
    fn update(&self, id: TaskId, expected: Version, change: TaskChange)
    -> StoreFuture<'_, Updated>;

    /// Appends an entry to the journal of a task. Of entries with the same kind and name only the first is stored.
    ///
    /// The version of the record stays the same. Stores nothing if the owner of `fence` does not hold the lease, which
    /// includes finished and absent tasks.
    ///
    /// # Errors
    ///
    /// As of [`update`](Self::update).
    fn append(&self, id: TaskId, fence: Fence, entry: JournalEntry) -> StoreFuture<'_, Appended>;

    /// Returns the journal of a task, in the order of its entries. Empty for finished and absent tasks: a store
    /// removes the journal when the task finishes.
    ///
    /// # Errors
    ///
    /// If the store fails.
    fn journal(&self, id: TaskId) -> StoreFuture<'_, Vec<JournalEntry>>;

    /// Takes over up to `max` unfinished tasks whose lease has expired, the longest expired first.
    ///
    /// Each is claimed by exactly one caller, whatever the number of processes. It gets the new owner, the next attempt,
    /// the next version and a lease of `lease`. Tasks of every [`RunMode`] are claimed; the caller fails those that must
    /// not run again.
    ///
    /// # Errors
    ///
    /// If the store fails.
    fn claim(
        &self,
        owner: ReplicaId,
        lease: Duration,
        max: usize,
    ) -> StoreFuture<'_, Vec<TaskRecord>>;

    /// Extends the leases of `held`, tasks that `owner` holds, to `lease` from now, all at once.
    ///
    /// The version of the records stays the same. An expired lease that no other process has claimed is extended too.
    ///
    /// # Errors
    ///
    /// If the store fails. No lease was extended then.
    fn renew<'a>(
        &'a self,
        owner: ReplicaId,
        held: &'a [HeldTask],
        lease: Duration,
    ) -> StoreFuture<'a, Renewal>;

    /// Returns up to `max` tasks of a principal in the order of their creation, starting after the position `after`.
    ///
    /// Tasks of anonymous callers cannot be listed.
    ///
    /// # Errors
    ///
    /// If the store fails.
    fn list<'a>(
        &'a self,
        principal: &'a str,
        after: Option<ListPosition>,
        max: usize,
    ) -> StoreFuture<'a, TaskPage>;

    /// Deletes a task with its journal, whatever its state; returns whether it existed.
    ///
    /// For a task whose id the caller never received, such as one whose `CreateTaskResult` was not written.
    ///
    /// # Errors
    ///
    /// If the store fails.
    fn delete(&self, id: TaskId) -> StoreFuture<'_, bool>;

    /// Removes up to `max` records whose [`remove_at`](TaskRecord::remove_at) has passed; returns how many.
    ///
    /// # Errors
    ///
    /// If the store fails.
    fn remove_expired(&self, max: usize) -> StoreFuture<'_, usize>;

    /// Returns a stream of hints on records that any process created, changed, claimed or deleted from now on.
    ///
    /// Hints may be lost, late, or sent twice: read the record. [`renew`](Self::renew) finds what a lost hint would
    /// have told the owner of a task.
    fn changes(&self) -> TaskChanges;
}

impl<S: TaskStore + ?Sized> TaskStore for Arc<S> {
    fn create(&self, task: NewTask) -> StoreFuture<'_, TaskRecord> {
        (**self).create(task)
    }

    fn read(&self, id: TaskId) -> StoreFuture<'_, Option<TaskRecord>> {
        (**self).read(id)
    }

    fn update(
        &self,
        id: TaskId,
        expected: Version,
        change: TaskChange,
    ) -> StoreFuture<'_, Updated> {
        (**self).update(id, expected, change)
    }

    fn append(&self, id: TaskId, fence: Fence, entry: JournalEntry) -> StoreFuture<'_, Appended> {
        (**self).append(id, fence, entry)
    }

    fn journal(&self, id: TaskId) -> StoreFuture<'_, Vec<JournalEntry>> {
        (**self).journal(id)
    }

    fn claim(
        &self,
        owner: ReplicaId,
        lease: Duration,
        max: usize,
    ) -> StoreFuture<'_, Vec<TaskRecord>> {
        (**self).claim(owner, lease, max)
    }

    fn renew<'a>(
        &'a self,
        owner: ReplicaId,
        held: &'a [HeldTask],
        lease: Duration,
    ) -> StoreFuture<'a, Renewal> {
        (**self).renew(owner, held, lease)
    }

    fn list<'a>(
        &'a self,
        principal: &'a str,
        after: Option<ListPosition>,
        max: usize,
    ) -> StoreFuture<'a, TaskPage> {
        (**self).list(principal, after, max)
    }

    fn delete(&self, id: TaskId) -> StoreFuture<'_, bool> {
        (**self).delete(id)
    }

    fn remove_expired(&self, max: usize) -> StoreFuture<'_, usize> {
        (**self).remove_expired(max)
    }

    fn changes(&self) -> TaskChanges {
        (**self).changes()
    }
}

/// A task whose lease its owner wants to extend; see [`TaskStore::renew`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "callers make them from a record")]
pub struct HeldTask {
    /// The task.
    pub id: TaskId,
    /// The attempt in which it is held.
    pub attempt: Attempt,
    /// The last version of the record that the owner has seen.
    pub version: Version,
}

/// The outcome of [`TaskStore::renew`]. Tasks in neither list are renewed and unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Renewal {
    /// Tasks that the owner no longer holds: claimed by another process, finished, or removed. Their handlers must be
    /// dropped.
    pub lost: Vec<TaskId>,
    /// Tasks that are renewed and have another version than the owner has seen, such as one with a new answer.
    pub changed: Vec<TaskId>,
}

/// A position in the list of a principal's tasks; see [`TaskStore::list`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(clippy::exhaustive_structs, reason = "the key of the order")]
pub struct ListPosition {
    /// When the task was created.
    pub created_at: Timestamp,
    /// Orders tasks that were created at the same time.
    pub id: TaskId,
}

/// A part of the list of a principal's tasks, without their requests and results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskPage {
    /// The tasks.
    pub tasks: Vec<TaskSummary>,
    /// Where the next page starts; `None` if this is the last.
    pub next: Option<ListPosition>,
}

/// What a list contains of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_structs,
    reason = "stores construct it; the members of `Task` in the specification"
)]
pub struct TaskSummary {
    /// The id.
    pub id: TaskId,
    /// The status.
    pub status: TaskStatus,
    /// The status, for people.
    pub status_message: Option<String>,
    /// The time to live from the creation; `None` if it is unlimited.
    pub ttl: Option<Duration>,
    /// How often clients should poll.
    pub poll_interval: Option<Duration>,
    /// When the task was created.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

impl TaskPage {
    /// Creates a page of at most `max` tasks from up to `max + 1` tasks: the additional one shows that another page
    /// follows.
    #[must_use]
    pub fn new(mut tasks: Vec<TaskSummary>, max: usize) -> Self {
        let is_last = tasks.len() <= max;
        tasks.truncate(max);
        let last = tasks.last().filter(|_| !is_last);
        let next = last.map(|task| ListPosition {
            created_at: task.created_at,
            id: task.id,
        });
        Self { tasks, next }
    }
}
