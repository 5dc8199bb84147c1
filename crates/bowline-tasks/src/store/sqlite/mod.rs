//! [`SqliteStore`]: tasks in a file that the processes of one machine share.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::{
    Appended, ChangeFeed, Clock, Fence, HeldTask, JournalEntry, ListPosition, NewTask, Renewal,
    StoreError, StoreFuture, StoreLimits, SystemClock, TaskChange, TaskChanges, TaskPage,
    TaskRecord, TaskStore, Updated, Version,
};
use crate::{ReplicaId, TaskId};

mod database;
use database::{BusyTimeout, Database};

mod error;
use error::{Failure, closed, file_error};

mod operations;
use operations::WriteTransaction;

mod queue;
use queue::{JobQueue, Refused};

mod rows;

mod statements;

mod write;
use write::{Operation, Write};

mod writer;
use writer::Writer;

/// A durable store in a SQLite database, for the processes of one machine.
///
/// Every process opens the same file, which must be on a local disk: SQLite's shared memory does not work on network
/// file systems. What a method has returned survives the end of the process, and a loss of power if the disk writes
/// what it is told to. Operations that wait for the disk at the same time are committed together.
///
/// The store has threads of its own, one that writes and two that read, and its futures never block the runtime. When it
/// is dropped, they perform what they have accepted and end.
///
/// The file contains the arguments, results and answers of tasks. It is created with access for its owner only; the
/// files beside it with `-wal` and `-shm` in their names belong to it.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use bowline_tasks::store::{NewTask, SqliteStore, TaskStore as _};
/// use bowline_tasks::{ReplicaId, TaskId};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), bowline_tasks::store::StoreError> {
/// # let directory = std::env::temp_dir().join(format!("bowline-{}", TaskId::random()?));
/// # std::fs::create_dir(&directory).unwrap();
/// # let path = directory.join("tasks.db");
/// let store = SqliteStore::open(&path)?;
/// let task = NewTask::new(TaskId::random()?, "convert", ReplicaId::random()?, Duration::from_secs(6));
/// let record = store.create(task).await?;
///
/// // Another process, or this one after a restart.
/// let other = SqliteStore::open(&path)?;
/// assert_eq!(other.read(record.id).await?, Some(record));
/// # drop((store, other));
/// # std::fs::remove_dir_all(&directory).ok();
/// # Ok(()) }
/// ```
pub struct SqliteStore {
    settings: Arc<Settings>,
    busy_timeout: BusyTimeout,
    feed: ChangeFeed,
    writes: Arc<JobQueue<Box<dyn Write>>>,
    reads: Arc<JobQueue<Read>>,
}

/// What operations need besides a connection.
#[derive(Clone)]
struct Settings {
    name: Arc<str>,
    limits: StoreLimits,
    clock: Arc<dyn Clock>,
}

/// A query with its answer.
type Read = Box<dyn FnOnce(&Connection) + Send>;

impl SqliteStore {
    /// Opens a database, or creates it with access for its owner only, with the limits of [`StoreLimits::new`].
    ///
    /// Waits for the disk, and for another process that creates the database at the same time.
    ///
    /// # Errors
    ///
    /// [`StoreError::ForeignData`] or [`StoreError::NewerSchema`] if the database is not one of this version,
    /// [`StoreError::Corrupt`] if it is damaged or not a database, [`StoreError::ReadOnly`], [`StoreError::Full`],
    /// [`StoreError::Busy`] if another process locks it, or [`StoreError::Unavailable`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let busy_timeout = BusyTimeout::default();
        let database = Database::new(path.as_ref(), busy_timeout.clone())?;
        let name = database.name();
        let store = Self {
            settings: Arc::new(Settings {
                name: name.clone(),
                limits: StoreLimits::new(),
                clock: Arc::new(SystemClock),
            }),
            busy_timeout,
            feed: ChangeFeed::new(),
            writes: Arc::new(JobQueue::new(QUEUED_WRITES)),
            reads: Arc::new(JobQueue::new(QUEUED_READS)),
        };
        let writer = Writer::new(database.writer()?, name.clone(), store.feed.clone())?;
        let writes = store.writes.clone();
        spawn(name, &store.writes, move || writer.run(&writes))?;
        for _ in 0..READERS {
            let (connection, reads) = (database.reader()?, store.reads.clone());
            spawn(name, &store.reads, move || run_reads(&connection, &reads))?;
        }
        Ok(store)
    }

    /// Sets the limits. Processes that share the database should set the same.
    #[must_use]
    pub fn limits(mut self, limits: StoreLimits) -> Self {
        Arc::make_mut(&mut self.settings).limits = limits;
        self
    }

    /// Sets the clock that decides when leases and records expire, for tests.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        Arc::make_mut(&mut self.settings).clock = Arc::new(clock);
        self
    }

    /// Sets how long an operation waits while another process locks the database, before it fails with
    /// [`StoreError::Busy`]. Default: 5 seconds.
    #[must_use]
    pub fn busy_timeout(self, timeout: Duration) -> Self {
        self.busy_timeout.set(timeout);
        self
    }

    /// Sets a pragma of the writing connection, for tests of a full disk and of a database that cannot be written.
    ///
    /// # Errors
    ///
    /// If the store fails.
    ///
    /// # Cancel safety
    ///
    /// As of [`TaskStore`].
    #[doc(hidden)]
    pub async fn set_writer_pragma(
        &self,
        name: &'static str,
        value: i64,
    ) -> Result<(), StoreError> {
        let set =
            move |transaction: &mut WriteTransaction<'_>| Ok(transaction.set_pragma(name, value)?);
        self.write(set).await
    }

    /// Waits until an operation is committed.
    async fn write<T, F>(&self, operation: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnMut(&mut WriteTransaction<'_>) -> Result<T, Failure> + Send + 'static,
    {
        let (write, outcome) = Operation::queued(self.settings.clone(), operation);
        let queued = self.writes.push(write);
        queued.map_err(|refused| self.refused(refused))?;
        // The sender is dropped if the thread panics, such as in the clock of the application.
        outcome
            .await
            .unwrap_or_else(|_| Err(closed(&self.settings.name)))
    }

    /// Waits for the result of a query.
    async fn query<T, F>(&self, query: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection, super::Timestamp) -> rusqlite::Result<T> + Send + 'static,
    {
        let (caller, outcome) = oneshot::channel();
        let settings = self.settings.clone();
        let read = move |connection: &Connection| {
            let found = query(connection, settings.clock.now());
            let found = found.map_err(|error| Failure::from(error).into_error(&settings.name));
            drop(caller.send(found));
        };
        let queued = self.reads.push(Box::new(read));
        queued.map_err(|refused| self.refused(refused))?;
        outcome
            .await
            .unwrap_or_else(|_| Err(closed(&self.settings.name)))
    }

    fn refused(&self, refused: Refused) -> StoreError {
        match refused {
            Refused::Closed => closed(&self.settings.name),
            Refused::Full => StoreError::Busy {
                store: self.settings.name.clone(),
                reason: "too many operations wait for it",
            },
        }
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.writes.close();
        self.reads.close();
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore")
            .field("name", &self.settings.name)
            .field("limits", &self.settings.limits)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").finish_non_exhaustive()
    }
}

impl TaskStore for SqliteStore {
    fn create(&self, task: NewTask) -> StoreFuture<'_, TaskRecord> {
        Box::pin(async move { self.write(move |to| to.create(task.clone())).await? })
    }

    fn read(&self, id: TaskId) -> StoreFuture<'_, Option<TaskRecord>> {
        Box::pin(async move {
            let stored = self.query(move |from, now| rows::read(from, id, now));
            Ok(stored.await?.map(|stored| stored.record))
        })
    }

    fn update(
        &self,
        id: TaskId,
        expected: Version,
        change: TaskChange,
    ) -> StoreFuture<'_, Updated> {
        Box::pin(self.write(move |to| to.update(id, expected, change.clone())))
    }

    fn append(&self, id: TaskId, fence: Fence, entry: JournalEntry) -> StoreFuture<'_, Appended> {
        Box::pin(self.write(move |to| to.append(id, fence, &entry)))
    }

    fn journal(&self, id: TaskId) -> StoreFuture<'_, Vec<JournalEntry>> {
        Box::pin(self.query(move |from, now| rows::journal(from, id, now)))
    }

    fn claim(
        &self,
        owner: ReplicaId,
        lease: Duration,
        max: usize,
    ) -> StoreFuture<'_, Vec<TaskRecord>> {
        Box::pin(self.write(move |to| to.claim(owner, to.now().after(lease), max)))
    }

    fn renew<'a>(
        &'a self,
        owner: ReplicaId,
        held: &'a [HeldTask],
        lease: Duration,
    ) -> StoreFuture<'a, Renewal> {
        let held = held.to_vec();
        Box::pin(self.write(move |to| to.renew(owner, &held, to.now().after(lease))))
    }

    fn list<'a>(
        &'a self,
        principal: &'a str,
        after: Option<ListPosition>,
        max: usize,
    ) -> StoreFuture<'a, TaskPage> {
        let principal = principal.to_owned();
        Box::pin(self.query(move |from, now| rows::list(from, &principal, after, max, now)))
    }

    fn delete(&self, id: TaskId) -> StoreFuture<'_, bool> {
        Box::pin(self.write(move |to| to.delete(id)))
    }

    fn remove_expired(&self, max: usize) -> StoreFuture<'_, usize> {
        Box::pin(self.write(move |to| to.remove_expired(max)))
    }

    fn changes(&self) -> TaskChanges {
        let changes = self.feed.subscribe();
        // The writer looks for changes of other processes only while there is a listener.
        self.writes.wake();
        changes
    }
}

/// Starts a thread that serves a queue. If it panics, the queue refuses further jobs.
fn spawn<J: Send + 'static>(
    store: &Arc<str>,
    queue: &Arc<JobQueue<J>>,
    serve: impl FnOnce() + Send + 'static,
) -> Result<(), StoreError> {
    let guard = AbortOnDrop(queue.clone());
    let builder = thread::Builder::new().name("bowline-tasks".into());
    let spawned = builder.spawn(move || {
        let _guard = guard;
        serve();
    });
    spawned
        .map(drop)
        .map_err(|error: io::Error| file_error(store, error))
}

/// Makes the callers of a thread that has ended fail instead of wait.
struct AbortOnDrop<J>(Arc<JobQueue<J>>);

impl<J> Drop for AbortOnDrop<J> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn run_reads(connection: &Connection, queue: &JobQueue<Read>) {
    while let Some(reads) = queue.take(1, None) {
        reads.into_iter().for_each(|read| read(connection));
    }
}

/// A large task that is read does not delay all others.
const READERS: usize = 2;
const QUEUED_WRITES: usize = 4096;
const QUEUED_READS: usize = 4096;
