//! Failures of SQLite as [`StoreError`]s.

use std::io;
use std::sync::Arc;

use rusqlite::ErrorCode;
use rusqlite::ffi;

use super::StoreError;

/// Why an operation failed, before the name of the store is added.
#[derive(Debug)]
pub(super) enum Failure {
    Sqlite(rusqlite::Error),
    Store(StoreError),
}

impl Failure {
    /// Returns the error for callers.
    pub(super) fn into_error(self, store: &Arc<str>) -> StoreError {
        match self {
            Self::Sqlite(error) => sqlite_error(store, error),
            Self::Store(error) => error,
        }
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Returns the error for a failure to create the file.
pub(super) fn file_error(store: &Arc<str>, error: io::Error) -> StoreError {
    let store = store.clone();
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            StoreError::ReadOnly { store }
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::Full {
            store,
            reason: NO_SPACE.into(),
        },
        _ => StoreError::Unavailable {
            store,
            source: Arc::new(error),
        },
    }
}

/// Returns the error for a store whose threads have ended.
pub(super) fn closed(store: &Arc<str>) -> StoreError {
    StoreError::Unavailable {
        store: store.clone(),
        source: Arc::new(io::Error::other("a thread of the store panicked")),
    }
}

fn sqlite_error(store: &Arc<str>, error: rusqlite::Error) -> StoreError {
    let store = store.clone();
    let Some(code) = error.sqlite_error() else {
        return unreadable(store, error);
    };
    match (code.code, code.extended_code) {
        // The file was replaced or deleted, so its mode does not matter.
        (_, ffi::SQLITE_READONLY_DBMOVED) => unavailable(store, error),
        (ErrorCode::ReadOnly | ErrorCode::PermissionDenied, _) => StoreError::ReadOnly { store },
        // The file that processes share as memory cannot be extended.
        (ErrorCode::DiskFull, _) | (_, ffi::SQLITE_IOERR_SHMSIZE) => StoreError::Full {
            store,
            reason: NO_SPACE.into(),
        },
        (
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::FileLockingProtocolFailed,
            _,
        ) => StoreError::Busy {
            store,
            reason: "locked by another process",
        },
        (ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase, _) => StoreError::Corrupt {
            store,
            detail: error.to_string().into(),
        },
        _ => unavailable(store, error),
    }
}

/// Returns the error for a value that does not have the form in which it was written.
fn unreadable(store: Arc<str>, error: rusqlite::Error) -> StoreError {
    match error {
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::Utf8Error(..)
        | rusqlite::Error::QueryReturnedNoRows => StoreError::Corrupt {
            store,
            detail: error.to_string().into(),
        },
        _ => unavailable(store, error),
    }
}

fn unavailable(store: Arc<str>, error: rusqlite::Error) -> StoreError {
    StoreError::Unavailable {
        store,
        source: Arc::new(error),
    }
}

const NO_SPACE: &str = "no space left for the file";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_of_sqlite_has_its_error() {
        for (code, expected) in [
            (ffi::SQLITE_FULL, "full"),
            (ffi::SQLITE_IOERR_SHMSIZE, "full"),
            (ffi::SQLITE_BUSY, "busy"),
            (ffi::SQLITE_BUSY_RECOVERY, "busy"),
            (ffi::SQLITE_LOCKED, "busy"),
            (ffi::SQLITE_PROTOCOL, "busy"),
            (ffi::SQLITE_CORRUPT, "corrupt"),
            (ffi::SQLITE_NOTADB, "corrupt"),
            (ffi::SQLITE_READONLY, "read-only"),
            (ffi::SQLITE_READONLY_DIRECTORY, "read-only"),
            (ffi::SQLITE_READONLY_DBMOVED, "failed to access"),
            (ffi::SQLITE_PERM, "read-only"),
            (ffi::SQLITE_IOERR, "failed to access"),
            (ffi::SQLITE_IOERR_FSYNC, "failed to access"),
            (ffi::SQLITE_CANTOPEN, "failed to access"),
        ] {
            let failure = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
            let error = Failure::from(failure).into_error(&"the store".into());
            let text = error.to_string();
            assert!(text.contains(expected), "{code}: {text}");
        }
    }
}
