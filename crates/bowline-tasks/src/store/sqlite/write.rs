//! [`Write`]: an operation in the queue of the writer.

use std::fmt;
use std::sync::Arc;

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::error::{Failure, closed};
use super::operations::WriteTransaction;
use super::{Settings, StoreError};
use crate::TaskId;
use crate::store::{ChangeFeed, Version};

/// An operation that waits for its commit.
pub(super) trait Write: Send {
    /// Performs the operation, and returns whether it succeeded. Called again if the transaction was rolled back.
    fn perform(&mut self, connection: &Connection) -> bool;

    /// Returns the outcome to the caller; `error` if the transaction was not committed.
    fn answer(self: Box<Self>, error: Option<StoreError>, feed: &ChangeFeed);
}

impl fmt::Debug for dyn Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Write")
    }
}

/// A closure as a [`Write`].
pub(super) struct Operation<T, F> {
    settings: Arc<Settings>,
    operation: F,
    outcome: Option<Result<T, StoreError>>,
    hints: Vec<(TaskId, Version)>,
    caller: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Operation<T, F>
where
    T: Send + 'static,
    F: FnMut(&mut WriteTransaction<'_>) -> Result<T, Failure> + Send + 'static,
{
    /// Creates an operation, and what its outcome is received from.
    pub(super) fn queued(
        settings: Arc<Settings>,
        operation: F,
    ) -> (Box<dyn Write>, oneshot::Receiver<Result<T, StoreError>>) {
        let (caller, outcome) = oneshot::channel();
        let operation = Self {
            settings,
            operation,
            outcome: None,
            hints: Vec::new(),
            caller,
        };
        (Box::new(operation), outcome)
    }
}

impl<T, F> Write for Operation<T, F>
where
    T: Send,
    F: FnMut(&mut WriteTransaction<'_>) -> Result<T, Failure> + Send,
{
    fn perform(&mut self, connection: &Connection) -> bool {
        let mut transaction = WriteTransaction::new(connection, &self.settings);
        let outcome = (self.operation)(&mut transaction);
        self.hints = transaction.into_hints();
        let outcome = outcome.map_err(|failure| failure.into_error(&self.settings.name));
        self.outcome.insert(outcome).is_ok()
    }

    fn answer(self: Box<Self>, error: Option<StoreError>, feed: &ChangeFeed) {
        let outcome = match (self.outcome, error) {
            (Some(Ok(value)), None) => {
                self.hints.iter().for_each(|hint| feed.send(hint.0, hint.1));
                Ok(value)
            }
            // An operation that failed was rolled back, whatever became of the others.
            (Some(Err(error)), _) | (_, Some(error)) => Err(error),
            (None, None) => Err(closed(&self.settings.name)),
        };
        // Fails if the caller has dropped its future.
        drop(self.caller.send(outcome));
    }
}
