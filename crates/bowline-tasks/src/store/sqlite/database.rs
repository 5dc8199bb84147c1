//! [`Database`]: the file, its connections, and its schema.

use std::path::{self, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use std::{fs, io};

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use super::StoreError;
use super::error::{Failure, file_error};
use crate::store::clock::duration_millis;
use crate::sync::Mutex;

/// A database file that belongs to this crate.
#[derive(Debug)]
pub(super) struct Database {
    path: PathBuf,
    /// What errors call it.
    name: Arc<str>,
    busy_timeout: BusyTimeout,
}

impl Database {
    /// Creates the file if it does not exist. Its content is checked by [`writer`](Self::writer).
    pub(super) fn new(path: &Path, busy_timeout: BusyTimeout) -> Result<Self, StoreError> {
        let name: Arc<str> = format!("the task store {}", path.display()).into();
        // SQLite would interpret a relative path such as `:memory:` or `file:a?mode=ro`.
        let path = path::absolute(path).map_err(|error| file_error(&name, error))?;
        let created = {
            let _turn = FILE_CREATION.lock();
            create_private(&path)
        };
        created.map_err(|error| file_error(&name, error))?;
        Ok(Self {
            path,
            name,
            busy_timeout,
        })
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Opens a connection that writes, and creates or migrates the schema.
    pub(super) fn writer(&self) -> Result<Connection, StoreError> {
        let opened = self.retry_while_busy(|| {
            let mut connection = self.connect()?;
            if connection.is_readonly("main")? {
                let store = self.name.clone();
                return Err(StoreError::ReadOnly { store }.into());
            }
            // Before the journal mode is set, which would change a database of another application.
            self.check_snapshot(&mut connection)?;
            use_wal(&connection)?;
            self.migrate(&mut connection)?;
            Ok(connection)
        });
        opened.map_err(|failure| failure.into_error(&self.name))
    }

    /// Opens a connection that only reads. There must be one that writes already.
    pub(super) fn reader(&self) -> Result<Connection, StoreError> {
        let opened = self.retry_while_busy(|| {
            let connection = self.connect()?;
            connection.pragma_update(None, "query_only", true)?;
            Ok(connection)
        });
        opened.map_err(|failure| failure.into_error(&self.name))
    }

    fn connect(&self) -> Result<Connection, Failure> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_handler(Some(self.busy_timeout.handler()))?;
        connection.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
        // The default, NORMAL, loses the last commits if the machine loses its power.
        connection.pragma_update(None, "synchronous", "FULL")?;
        // On Apple's systems `fsync` leaves data in the cache of the disk.
        connection.pragma_update(None, "fullfsync", true)?;
        connection.pragma_update(None, "checkpoint_fullfsync", true)?;
        connection.pragma_update(None, "foreign_keys", true)?;
        // Small sorts need no file, so that they work on a full disk.
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        connection.pragma_update(None, "trusted_schema", false)?;
        Ok(connection)
    }

    /// Like [`check`](Self::check), in a transaction of its own: another process may create the schema between two reads,
    /// and the database would look like one of another application.
    fn check_snapshot(&self, connection: &mut Connection) -> Result<SchemaState, Failure> {
        let snapshot = connection.transaction_with_behavior(TransactionBehavior::Deferred)?;
        let state = self.check(&snapshot)?;
        snapshot.finish()?;
        Ok(state)
    }

    /// Checks that the database is empty, or has a schema that [`migrate`](Self::migrate) can use.
    fn check(&self, connection: &Connection) -> Result<SchemaState, Failure> {
        let store = self.name.clone();
        let application: i64 = connection.pragma_query_one(None, "application_id")?;
        let version: i64 = connection.pragma_query_one(None, "user_version")?;
        match (application, version) {
            (0, 0) => {
                let sql = "SELECT EXISTS (SELECT 1 FROM sqlite_schema)";
                match connection.query_row(sql, [], |row| row.get(0))? {
                    true => Err(StoreError::ForeignData { store }.into()),
                    false => Ok(SchemaState::Empty),
                }
            }
            (APPLICATION_ID, SCHEMA_VERSION) => Ok(SchemaState::Current),
            (APPLICATION_ID, found) if found > SCHEMA_VERSION => {
                let supported = SCHEMA_VERSION;
                Err(StoreError::NewerSchema {
                    store,
                    found,
                    supported,
                }
                .into())
            }
            _ => Err(StoreError::ForeignData { store }.into()),
        }
    }

    /// Creates the tables, if no other process has done so since the last check.
    fn migrate(&self, connection: &mut Connection) -> Result<(), Failure> {
        if self.check_snapshot(connection)? == SchemaState::Current {
            return Ok(());
        }
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if self.check(&transaction)? == SchemaState::Empty {
            transaction.execute_batch(include_str!("schema.sql"))?;
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
            transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
        }
        transaction.commit()?;
        Ok(())
    }

    /// Repeats what SQLite does not retry itself: the change of the journal mode and the recovery of a log.
    fn retry_while_busy<T>(
        &self,
        mut open: impl FnMut() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let start = Instant::now();
        loop {
            match open() {
                Err(Failure::Sqlite(error))
                    if is_busy(&error) && start.elapsed() < self.busy_timeout.get() =>
                {
                    thread::sleep(BUSY_INTERVAL);
                }
                result => return result,
            }
        }
    }
}

/// How long connections wait for a lock; shared, because it can be set after they are opened.
#[derive(Clone, Debug)]
pub(super) struct BusyTimeout(Arc<AtomicU64>);

impl BusyTimeout {
    pub(super) fn set(&self, timeout: Duration) {
        self.0.store(duration_millis(timeout), Ordering::Relaxed);
    }

    fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }

    /// Returns a handler that tries again at short intervals.
    ///
    /// Those of SQLite's own grow to 100 ms: a process that commits all the time would hardly ever let another in.
    fn handler(&self) -> impl FnMut(i32) -> bool + Send + 'static {
        let timeout = self.clone();
        let mut start = Instant::now();
        move |tries| {
            if tries == 0 {
                start = Instant::now();
            }
            let waits = start.elapsed() < timeout.get();
            if waits {
                thread::sleep(BUSY_INTERVAL);
            }
            waits
        }
    }
}

impl Default for BusyTimeout {
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(DEFAULT_BUSY_MILLIS)))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SchemaState {
    Empty,
    Current,
}

/// Creates the file for this user only, unless it exists. SQLite gives its other files the same mode.
fn create_private(path: &Path) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        created => created.map(drop),
    }
}

fn use_wal(connection: &Connection) -> Result<(), Failure> {
    let mode = connection
        .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))?;
    if mode != "wal" {
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN);
        let text = "the file system does not support shared memory, which SQLite's WAL needs";
        return Err(rusqlite::Error::SqliteFailure(code, Some(text.to_owned())).into());
    }
    // Gives space back after a large transaction.
    connection.pragma_update_and_check(None, "journal_size_limit", MAX_LOG_BYTES, |_| Ok(()))?;
    Ok(())
}

fn is_busy(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(
        code,
        Some(ErrorCode::DatabaseBusy | ErrorCode::FileLockingProtocolFailed)
    )
}

/// Closing a descriptor releases all POSIX locks of the process on its file. So this process must not have a connection
/// to the file before the descriptor that created it is closed.
static FILE_CREATION: Mutex<()> = Mutex::new(());

/// "Bowl" in ASCII.
const APPLICATION_ID: i64 = 0x426f_776c;
const SCHEMA_VERSION: i64 = 1;
const DEFAULT_BUSY_MILLIS: u64 = 5000;
const BUSY_INTERVAL: Duration = Duration::from_millis(2);
const CACHED_STATEMENTS: usize = 64;
const MAX_LOG_BYTES: i64 = 64 * 1024 * 1024;
