//! [`Writer`]: the thread that changes the database, with group commit.
//!
//! ```text
//!  queue ──take all──▶ BEGIN IMMEDIATE ─▶ SAVEPOINT, operation, RELEASE ─▶ … ─▶ COMMIT ─▶ answers and hints
//!    ▲                                        (or ROLLBACK TO)                    │
//!    └── operations that arrive meanwhile are committed together next ◀───────────┘
//! ```

use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, params};

use super::StoreError;
use super::error::Failure;
use super::queue::JobQueue;
use super::rows::Columns;
use super::statements::{CHANGES, FORGET_CHANGES, LAST_CHANGE};
use super::write::Write;
use crate::TaskId;
use crate::store::{ChangeFeed, Version};

/// Performs the writes of a queue until it is closed.
#[derive(Debug)]
pub(super) struct Writer {
    connection: Connection,
    store: Arc<str>,
    feed: ChangeFeed,
    /// The last change whose hint was sent, or that had no listener.
    last_change: i64,
    /// What SQLite's counter of commits by others was when it was last read.
    data_version: i64,
}

impl Writer {
    pub(super) fn new(
        connection: Connection,
        store: Arc<str>,
        feed: ChangeFeed,
    ) -> Result<Self, StoreError> {
        let start = || -> Result<(i64, i64), Failure> {
            let data_version = connection.pragma_query_one(None, "data_version")?;
            Ok((last_change(&connection)?, data_version))
        };
        let (last_change, data_version) = start().map_err(|failure| failure.into_error(&store))?;
        Ok(Self {
            connection,
            store,
            feed,
            last_change,
            data_version,
        })
    }

    /// Runs on a thread of its own.
    pub(super) fn run(mut self, queue: &JobQueue<Box<dyn Write>>) {
        loop {
            let wait = self.feed.has_listeners().then_some(POLL_INTERVAL);
            match queue.take(MAX_BATCH, wait) {
                None => return,
                // After an error the next poll tries again.
                Some(writes) if writes.is_empty() => drop(self.poll()),
                Some(writes) => self.perform(writes),
            }
        }
    }

    /// Performs operations in one transaction. If that has no room, performs each in its own, so that one that does not
    /// fit on the disk does not fail the others.
    fn perform(&mut self, mut writes: Vec<Box<dyn Write>>) {
        let committed = self.commit(&mut writes);
        let is_shared = writes.len() > 1;
        for mut write in writes {
            match &committed {
                Err(failure) if is_shared && failure.may_fit_alone() => {
                    let committed = self.commit(std::slice::from_mut(&mut write));
                    self.answer(write, committed.err());
                }
                Err(failure) => self.answer(write, Some(failure.clone())),
                Ok(()) => self.answer(write, None),
            }
        }
    }

    fn commit(&mut self, writes: &mut [Box<dyn Write>]) -> Result<(), CommitError> {
        let result = self.transact(writes);
        if result.is_err() && !self.connection.is_autocommit() {
            // If this fails too, the next `BEGIN` does, and nothing is committed by mistake.
            drop(self.connection.execute_batch("ROLLBACK"));
        }
        result
    }

    fn transact(&mut self, writes: &mut [Box<dyn Write>]) -> Result<(), CommitError> {
        self.execute("BEGIN IMMEDIATE")?;
        // All changes since the last one that this writer knows are those of other processes.
        let before = self.sqlite(last_change(&self.connection))?;
        self.send_hints_until(before)?;
        for write in writes {
            self.perform_one(write.as_mut())?;
        }
        let last = self.sqlite(last_change(&self.connection))?;
        if last > before {
            self.sqlite(forget_changes(&self.connection, last - KEPT_CHANGES))?;
        }
        self.execute("COMMIT")?;
        self.last_change = last;
        Ok(())
    }

    /// Performs one operation, which keeps its own error.
    fn perform_one(&self, write: &mut dyn Write) -> Result<(), CommitError> {
        self.execute("SAVEPOINT operation")?;
        if !write.perform(&self.connection) {
            if self.connection.is_autocommit() {
                // SQLite does so if the disk is full, among others.
                return Err(CommitError::RolledBack);
            }
            self.execute("ROLLBACK TO operation")?;
        }
        self.execute("RELEASE operation")
    }

    fn answer(&self, write: Box<dyn Write>, error: Option<CommitError>) {
        let error = error.map(|error| match error {
            CommitError::Failed(error) => error,
            CommitError::RolledBack => StoreError::Busy {
                store: self.store.clone(),
                reason: "another operation failed",
            },
        });
        write.answer(error, &self.feed);
    }

    /// Looks for changes of other processes.
    fn poll(&mut self) -> Result<(), CommitError> {
        let data_version = self.connection.pragma_query_one(None, "data_version");
        let data_version = self.sqlite(data_version)?;
        if data_version != self.data_version {
            let last = self.sqlite(last_change(&self.connection))?;
            self.send_hints_until(last)?;
            self.data_version = data_version;
        }
        Ok(())
    }

    /// Sends the hints on changes that were not sent, up to the change `last`.
    fn send_hints_until(&mut self, last: i64) -> Result<(), CommitError> {
        let first = std::mem::replace(&mut self.last_change, last);
        // A listener that subscribes after this check does so after these changes.
        if first == last || !self.feed.has_listeners() {
            return Ok(());
        }
        if last - first > KEPT_CHANGES {
            self.feed.send_too_many();
            return Ok(());
        }
        for (id, version) in self.sqlite(changes(&self.connection, first, last))? {
            self.feed.send(id, version);
        }
        Ok(())
    }

    fn execute(&self, sql: &str) -> Result<(), CommitError> {
        let statement = self.connection.prepare_cached(sql);
        let executed = statement.and_then(|mut statement| statement.execute([]));
        self.sqlite(executed.map(drop))
    }

    fn sqlite<T>(&self, result: rusqlite::Result<T>) -> Result<T, CommitError> {
        let failed = |error| Failure::from(error).into_error(&self.store);
        result.map_err(|error| CommitError::Failed(failed(error)))
    }
}

/// Why a transaction was not committed.
#[derive(Clone, Debug)]
enum CommitError {
    /// An operation made SQLite roll back the transaction. The operation has the error.
    RolledBack,
    Failed(StoreError),
}

impl CommitError {
    /// Returns whether nothing was stored and a smaller transaction may succeed.
    fn may_fit_alone(&self) -> bool {
        matches!(
            self,
            Self::RolledBack | Self::Failed(StoreError::Full { .. })
        )
    }
}

fn last_change(connection: &Connection) -> rusqlite::Result<i64> {
    let mut statement = connection.prepare_cached(LAST_CHANGE)?;
    statement.query_row([], |row| row.get(0))
}

fn changes(
    connection: &Connection,
    after: i64,
    last: i64,
) -> rusqlite::Result<Vec<(TaskId, Version)>> {
    let mut statement = connection.prepare_cached(CHANGES)?;
    let changes = statement.query_map(params![after, last], |row| {
        let mut columns = Columns::new(row);
        Ok((TaskId::from_bytes(columns.next()?), columns.version()?))
    })?;
    changes.collect()
}

fn forget_changes(connection: &Connection, last: i64) -> rusqlite::Result<()> {
    connection
        .prepare_cached(FORGET_CHANGES)?
        .execute([last])
        .map(drop)
}

/// How long changes of other processes stay unnoticed while this one writes nothing.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Bounds how long an operation waits for others in its transaction.
const MAX_BATCH: usize = 256;
/// As many as a listener's queue holds.
const KEPT_CHANGES: i64 = 4096;
