//! Hints on changed records: [`ChangeFeed`] for stores, [`TaskChanges`] for their users.

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::Version;
use crate::TaskId;

/// A hint that records have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "callers must handle both cases")]
pub enum ChangeHint {
    /// A record was created, changed, claimed or removed.
    Changed {
        /// The task.
        id: TaskId,
        /// Its version after the change; the next one if it was removed.
        version: Version,
    },
    /// Hints were lost: any record may have changed.
    TooMany,
}

/// A stream of hints on changed records; see [`TaskStore::changes`](super::TaskStore::changes).
#[derive(Debug)]
#[must_use = "hints are lost unless `next` is called"]
pub struct TaskChanges(broadcast::Receiver<ChangeHint>);

impl TaskChanges {
    /// Waits for the next hint; `None` if the store is closed.
    ///
    /// # Cancel safety
    ///
    /// Safe: a hint is taken from the queue only when it is returned.
    pub async fn next(&mut self) -> Option<ChangeHint> {
        match self.0.recv().await {
            Ok(hint) => Some(hint),
            Err(RecvError::Lagged(_)) => Some(ChangeHint::TooMany),
            Err(RecvError::Closed) => None,
        }
    }
}

/// Sends hints to all [`TaskChanges`] of a store. For implementations of [`TaskStore`](super::TaskStore).
#[derive(Clone, Debug)]
pub struct ChangeFeed(broadcast::Sender<ChangeHint>);

impl ChangeFeed {
    /// Creates a feed without listeners.
    #[must_use]
    pub fn new() -> Self {
        Self(broadcast::Sender::new(QUEUED_HINTS))
    }

    /// Returns a stream of the hints that are sent from now on.
    pub fn subscribe(&self) -> TaskChanges {
        TaskChanges(self.0.subscribe())
    }

    /// Sends a hint. Does not block; a listener that is too slow loses the oldest hints.
    pub fn send(&self, id: TaskId, version: Version) {
        self.send_hint(ChangeHint::Changed { id, version });
    }

    /// Sends [`ChangeHint::TooMany`], for a store that no longer knows which records have changed.
    pub fn send_too_many(&self) {
        self.send_hint(ChangeHint::TooMany);
    }

    /// Returns whether a listener exists.
    #[must_use]
    pub fn has_listeners(&self) -> bool {
        self.0.receiver_count() > 0
    }

    fn send_hint(&self, hint: ChangeHint) {
        // Fails if there is no listener.
        let _ = self.0.send(hint);
    }
}

impl Default for ChangeFeed {
    fn default() -> Self {
        Self::new()
    }
}

/// The queue is allocated when the feed is created, about 64 bytes for each.
const QUEUED_HINTS: usize = 4096;
