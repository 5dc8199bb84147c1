//! [`StoreLimits`]: how much a store accepts, as a whole and of each principal.

use std::sync::Arc;

use super::{Quota, StoreError};

/// How much a store accepts. Sizes are those of [`TaskRecord::size`](super::TaskRecord::size) and of the journal.
///
/// # Examples
///
/// ```
/// use bowline_tasks::store::{MemoryStore, StoreLimits};
///
/// let limits = StoreLimits::new().max_tasks(10_000).max_unfinished_per_principal(20);
/// let store = MemoryStore::new().limits(limits);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLimits {
    max_task_bytes: usize,
    max_tasks: usize,
    max_bytes: usize,
    max_tasks_per_principal: usize,
    max_unfinished_per_principal: usize,
    max_bytes_per_principal: usize,
}

impl StoreLimits {
    /// Returns the default limits: 16 MiB a task; 1,000,000 tasks and 2 GiB together; 10,000 tasks, 1,000 unfinished
    /// ones and 256 MiB for each principal. All anonymous callers together are one principal.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            max_task_bytes: 16 * MIB,
            max_tasks: 1_000_000,
            max_bytes: 2048 * MIB,
            max_tasks_per_principal: 10_000,
            max_unfinished_per_principal: 1_000,
            max_bytes_per_principal: 256 * MIB,
        }
    }

    /// Sets the maximum size of one task with its journal.
    #[must_use]
    pub const fn max_task_bytes(mut self, max: usize) -> Self {
        self.max_task_bytes = max;
        self
    }

    /// Sets the maximum number of tasks.
    #[must_use]
    pub const fn max_tasks(mut self, max: usize) -> Self {
        self.max_tasks = max;
        self
    }

    /// Sets the maximum size of all tasks together.
    #[must_use]
    pub const fn max_bytes(mut self, max: usize) -> Self {
        self.max_bytes = max;
        self
    }

    /// Sets the maximum number of stored tasks of each principal.
    #[must_use]
    pub const fn max_tasks_per_principal(mut self, max: usize) -> Self {
        self.max_tasks_per_principal = max;
        self
    }

    /// Sets the maximum number of unfinished tasks of each principal.
    #[must_use]
    pub const fn max_unfinished_per_principal(mut self, max: usize) -> Self {
        self.max_unfinished_per_principal = max;
        self
    }

    /// Sets the maximum size of the stored tasks of each principal.
    #[must_use]
    pub const fn max_bytes_per_principal(mut self, max: usize) -> Self {
        self.max_bytes_per_principal = max;
        self
    }

    /// Checks whether a task of `bytes` may be created.
    ///
    /// # Errors
    ///
    /// [`StoreError::TooLarge`], [`StoreError::QuotaExceeded`], or [`StoreError::Full`] with the name `store`.
    pub fn check_create(
        &self,
        store: &Arc<str>,
        bytes: usize,
        principal: Usage,
        total: Usage,
    ) -> Result<(), StoreError> {
        if principal.tasks >= self.max_tasks_per_principal {
            return Err(quota(Quota::Tasks, self.max_tasks_per_principal));
        }
        if principal.unfinished >= self.max_unfinished_per_principal {
            let limit = self.max_unfinished_per_principal;
            return Err(quota(Quota::UnfinishedTasks, limit));
        }
        if total.tasks >= self.max_tasks {
            return Err(full(store, self.max_tasks, "tasks"));
        }
        self.check_growth(store, 0, bytes, principal, total)
    }

    /// Checks whether a task of `before` bytes may have `after` bytes. A task that does not grow is always accepted, so
    /// that it can finish in a store that is full.
    ///
    /// # Errors
    ///
    /// As of [`check_create`](Self::check_create).
    pub fn check_growth(
        &self,
        store: &Arc<str>,
        before: usize,
        after: usize,
        principal: Usage,
        total: Usage,
    ) -> Result<(), StoreError> {
        let growth = after.saturating_sub(before);
        if growth == 0 {
            return Ok(());
        }
        if after > self.max_task_bytes {
            return Err(StoreError::TooLarge {
                bytes: after,
                limit: self.max_task_bytes,
            });
        }
        if principal.bytes.saturating_add(growth) > self.max_bytes_per_principal {
            return Err(quota(Quota::Bytes, self.max_bytes_per_principal));
        }
        if total.bytes.saturating_add(growth) > self.max_bytes {
            return Err(full(store, self.max_bytes, "bytes"));
        }
        Ok(())
    }
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self::new()
    }
}

/// How much a principal, or all together, have in a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "stores construct it")]
pub struct Usage {
    /// Stored tasks.
    pub tasks: usize,
    /// Tasks that have not finished.
    pub unfinished: usize,
    /// The size of the stored tasks with their journals.
    pub bytes: usize,
}

fn quota(quota: Quota, limit: usize) -> StoreError {
    StoreError::QuotaExceeded { quota, limit }
}

fn full(store: &Arc<str>, limit: usize, unit: &str) -> StoreError {
    StoreError::Full {
        store: store.clone(),
        reason: format!("limit of {limit} {unit}").into(),
    }
}

const MIB: usize = 1024 * 1024;
