//! [`StoreError`], the error of a task store.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use crate::TaskId;

/// The error of a [`TaskStore`](super::TaskStore).
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store failed, and it is unknown whether the operation took effect.
    #[error("failed to access {store}")]
    Unavailable {
        /// The store.
        store: Arc<str>,
        /// The cause.
        source: Arc<dyn StdError + Send + Sync>,
    },
    /// The store is locked by another process, or too many operations wait for it. Nothing was stored.
    #[error("{store} is busy ({reason}); try again later")]
    Busy {
        /// The store.
        store: Arc<str>,
        /// What is busy.
        reason: &'static str,
    },
    /// The store has no capacity left. Nothing was stored.
    #[error(
        "{store} is full ({reason}); free space, raise the limit or shorten the time to live of tasks"
    )]
    Full {
        /// The store.
        store: Arc<str>,
        /// The limit that was reached.
        reason: Arc<str>,
    },
    /// The content of the store is damaged.
    #[error(
        "{store} is corrupt ({detail}); restore a backup, or move it away to start with an empty store"
    )]
    Corrupt {
        /// The store.
        store: Arc<str>,
        /// What was found.
        detail: Arc<str>,
    },
    /// A later version of this crate wrote the store.
    #[error(
        "{store} has schema version {found}, this program supports up to {supported}; update the program"
    )]
    NewerSchema {
        /// The store.
        store: Arc<str>,
        /// The version of the store.
        found: i64,
        /// The latest version that this crate supports.
        supported: i64,
    },
    /// The store contains data of something else.
    #[error("{store} is a database of another application; choose another path")]
    ForeignData {
        /// The store.
        store: Arc<str>,
    },
    /// The store cannot be written.
    #[error("{store} is read-only; make the file and its directory writable")]
    ReadOnly {
        /// The store.
        store: Arc<str>,
    },
    /// A task with its journal would exceed the limit. Nothing was stored.
    #[error("task of {bytes} bytes exceeds the limit of {limit} bytes")]
    TooLarge {
        /// The size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// A principal would exceed a quota. Nothing was stored.
    #[error("principal exceeds its quota of {limit} {quota}; wait until tasks finish or expire")]
    QuotaExceeded {
        /// What is limited.
        quota: Quota,
        /// The limit.
        limit: usize,
    },
    /// A task with this id is stored already. Nothing was changed.
    #[error("a task with id {id} exists already")]
    AlreadyExists {
        /// The id.
        id: TaskId,
    },
    /// The operating system provided no randomness for an id.
    #[error("failed to read randomness from the operating system")]
    Randomness {
        /// The cause.
        source: Arc<dyn StdError + Send + Sync>,
    },
}

impl StoreError {
    /// Returns whether the same operation may succeed later without a change of its arguments or of the configuration.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::Busy { .. } | Self::Full { .. } => true,
            Self::QuotaExceeded { .. } | Self::Randomness { .. } => true,
            Self::Corrupt { .. } | Self::NewerSchema { .. } | Self::ForeignData { .. } => false,
            Self::ReadOnly { .. } | Self::TooLarge { .. } | Self::AlreadyExists { .. } => false,
        }
    }
}

/// What is limited for each principal. All anonymous callers together are one principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Quota {
    /// Stored tasks.
    Tasks,
    /// Tasks that have not finished.
    UnfinishedTasks,
    /// Bytes of all stored tasks.
    Bytes,
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tasks => "stored tasks",
            Self::UnfinishedTasks => "unfinished tasks",
            Self::Bytes => "bytes of stored tasks",
        })
    }
}
