//! [`Failure`]: why an operation on tasks failed.

use std::sync::Arc;

use bowline::cluster::Unavailable;
use bowline_tasks::store::StoreError;
use tokio_postgres::error::SqlState;

/// The error of an operation, before it has the name of the store.
#[derive(Debug)]
pub(super) enum Failure {
    Store(StoreError),
    Database(tokio_postgres::Error),
    Unavailable(Unavailable),
    /// A row does not contain a record.
    Invalid(String),
}

impl Failure {
    #[allow(
        clippy::needless_pass_by_value,
        reason = "it is passed to `map_err`, which passes errors by value"
    )]
    pub(super) fn invalid(what: impl ToString) -> Self {
        Self::Invalid(what.to_string())
    }

    pub(super) fn into_error(self, store: &Arc<str>) -> StoreError {
        let store = store.clone();
        match self {
            Self::Store(error) => error,
            Self::Invalid(detail) => StoreError::Corrupt {
                store,
                detail: detail.into(),
            },
            Self::Unavailable(error) => StoreError::Unavailable {
                store,
                source: Arc::new(error),
            },
            Self::Database(error) => match error.code() {
                Some(&SqlState::DISK_FULL) => StoreError::Full {
                    store,
                    reason: "the disk of the database is full".into(),
                },
                Some(&SqlState::READ_ONLY_SQL_TRANSACTION) => StoreError::ReadOnly { store },
                Some(&SqlState::T_R_DEADLOCK_DETECTED | &SqlState::LOCK_NOT_AVAILABLE) => {
                    StoreError::Busy {
                        store,
                        reason: "another process locks the task",
                    }
                }
                _ => StoreError::Unavailable {
                    store,
                    source: Arc::new(error),
                },
            },
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(error)
    }
}

impl From<Unavailable> for Failure {
    fn from(error: Unavailable) -> Self {
        Self::Unavailable(error)
    }
}
