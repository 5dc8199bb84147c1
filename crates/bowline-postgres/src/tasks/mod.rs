//! [`PostgresTaskStore`]: tasks in tables that all replicas share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bowline_tasks::store::{
    Appended, Clock, Fence, HeldTask, JournalEntry, ListPosition, NewTask, Renewal, StoreError,
    StoreFuture, StoreLimits, TaskChange, TaskChanges, TaskPage, TaskRecord, TaskStore, Timestamp,
    Updated, Version,
};
use bowline_tasks::{ReplicaId, TaskId};
use deadpool_postgres::Object;

use crate::connection::Database;

mod error;
use error::Failure;

mod hints;
use hints::HintListener;

mod operations;
use operations::WriteTransaction;

mod rows;

mod statements;

/// A durable store of tasks in Postgres, for the replicas of a server; returned by
/// [`Postgres::tasks`](crate::Postgres::tasks).
///
/// What a method has returned survives a crash of the database, if `synchronous_commit` is on, as it is by default. The
/// clock of the database decides which leases and records have expired.
///
/// # Examples
///
/// ```no_run
/// use bowline::Server;
/// use bowline_postgres::Postgres;
/// use bowline_tasks::Tasks;
///
/// # async fn example(key: [u8; 32]) -> Result<(), Box<dyn std::error::Error>> {
/// let postgres = Postgres::connect("postgres://app@localhost/app", key).await?;
/// let tasks = Tasks::new(postgres.tasks());
/// let server = Server::new("documents", "1.0.0").extension(tasks).cluster(postgres);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct PostgresTaskStore {
    database: Arc<Database>,
    settings: Settings,
    hints: Arc<HintListener>,
}

impl crate::Postgres {
    /// Returns the store of tasks, for [`Tasks::new`](bowline_tasks::Tasks::new).
    #[must_use]
    pub fn tasks(&self) -> PostgresTaskStore {
        PostgresTaskStore::new(self.database.clone())
    }
}

/// What operations need besides a connection.
#[derive(Clone)]
struct Settings {
    name: Arc<str>,
    limits: StoreLimits,
    /// `None` is the clock of the database.
    clock: Option<Arc<dyn Clock>>,
}

impl PostgresTaskStore {
    pub(crate) fn new(database: Arc<Database>) -> Self {
        Self {
            hints: Arc::new(HintListener::new(database.clone())),
            database,
            settings: Settings {
                name: "the task store in Postgres".into(),
                limits: StoreLimits::new(),
                clock: None,
            },
        }
    }

    /// Sets the limits. Replicas should set the same.
    #[must_use]
    pub fn limits(mut self, limits: StoreLimits) -> Self {
        self.settings.limits = limits;
        self
    }

    /// Sets the clock that decides when leases and records expire, for tests. Default: the clock of the database.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.settings.clock = Some(Arc::new(clock));
        self
    }

    /// Performs an operation in a transaction.
    async fn write<T>(
        &self,
        operation: impl AsyncFnOnce(&mut WriteTransaction<'_>) -> Result<T, Failure>,
    ) -> Result<T, StoreError> {
        let written = self.database.with(async |connection: &mut Object| {
            let transaction = connection.transaction().await?;
            let mut writing = WriteTransaction::begin(transaction, &self.settings).await?;
            let outcome = operation(&mut writing).await?;
            writing.commit().await?;
            Ok(outcome)
        });
        written
            .await
            .map_err(|failure: Failure| failure.into_error(&self.settings.name))
    }

    /// Runs a query at the current time.
    async fn query<T>(
        &self,
        query: impl AsyncFnOnce(&Object, Timestamp) -> Result<T, Failure>,
    ) -> Result<T, StoreError> {
        let read = self.database.with(async |connection: &mut Object| {
            let now = match &self.settings.clock {
                Some(clock) => clock.now(),
                None => rows::now(connection).await?,
            };
            query(connection, now).await
        });
        read.await
            .map_err(|failure: Failure| failure.into_error(&self.settings.name))
    }
}

impl fmt::Debug for PostgresTaskStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresTaskStore")
            .field("limits", &self.settings.limits)
            .finish_non_exhaustive()
    }
}

impl TaskStore for PostgresTaskStore {
    fn create(&self, task: NewTask) -> StoreFuture<'_, TaskRecord> {
        Box::pin(async move { self.write(async |to| to.create(task).await).await? })
    }

    fn read(&self, id: TaskId) -> StoreFuture<'_, Option<TaskRecord>> {
        Box::pin(async move {
            let stored = self.query(async |from, now| rows::read(from, id, now).await);
            Ok(stored.await?.map(|stored| stored.record))
        })
    }

    fn update(
        &self,
        id: TaskId,
        expected: Version,
        change: TaskChange,
    ) -> StoreFuture<'_, Updated> {
        Box::pin(self.write(async move |to| to.update(id, expected, change).await))
    }

    fn append(&self, id: TaskId, fence: Fence, entry: JournalEntry) -> StoreFuture<'_, Appended> {
        Box::pin(self.write(async move |to| to.append(id, fence, &entry).await))
    }

    fn journal(&self, id: TaskId) -> StoreFuture<'_, Vec<JournalEntry>> {
        Box::pin(self.query(async move |from, now| rows::journal(from, id, now).await))
    }

    fn claim(
        &self,
        owner: ReplicaId,
        lease: Duration,
        max: usize,
    ) -> StoreFuture<'_, Vec<TaskRecord>> {
        Box::pin(self.write(async move |to| to.claim(owner, lease, max).await))
    }

    fn renew<'a>(
        &'a self,
        owner: ReplicaId,
        held: &'a [HeldTask],
        lease: Duration,
    ) -> StoreFuture<'a, Renewal> {
        Box::pin(self.write(async move |to| to.renew(owner, held, lease).await))
    }

    fn list<'a>(
        &'a self,
        principal: &'a str,
        after: Option<ListPosition>,
        max: usize,
    ) -> StoreFuture<'a, TaskPage> {
        Box::pin(
            self.query(async move |from, now| rows::list(from, principal, after, max, now).await),
        )
    }

    fn delete(&self, id: TaskId) -> StoreFuture<'_, bool> {
        Box::pin(self.write(async move |to| to.delete(id).await))
    }

    fn remove_expired(&self, max: usize) -> StoreFuture<'_, usize> {
        Box::pin(self.write(async move |to| to.remove_expired(max).await))
    }

    fn changes(&self) -> TaskChanges {
        self.hints.subscribe()
    }
}
