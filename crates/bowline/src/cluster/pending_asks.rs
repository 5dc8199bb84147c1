//! [`PendingAsks`]: the questions of a replica that wait for an answer, for engines without requests of their own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::AskError;
use crate::sync::Mutex;

/// The questions of a replica that wait for an answer. For implementations of
/// [`ReplicaMessages`](super::ReplicaMessages) over an engine that only moves messages. Clones share them.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use bowline::cluster::PendingAsks;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), bowline::cluster::AskError> {
/// let asks = PendingAsks::default();
/// let ask = asks.add();
/// asks.answer(ask.id(), "yes".into());
/// assert_eq!(ask.wait(Duration::from_secs(1)).await?, "yes");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct PendingAsks(Arc<Mutex<AskTable>>);

#[derive(Debug, Default)]
struct AskTable {
    last: u64,
    waiting: BTreeMap<u64, oneshot::Sender<Bytes>>,
}

impl PendingAsks {
    /// Adds a question, with an id that no other one has.
    pub fn add(&self) -> PendingAsk {
        let (answer, answered) = oneshot::channel();
        let mut table = self.0.lock();
        table.last += 1;
        let id = table.last;
        table.waiting.insert(id, answer);
        PendingAsk {
            id,
            answered,
            _entry: AskEntry {
                id,
                asks: self.clone(),
            },
        }
    }

    /// Answers a question. Without effect if it no longer waits.
    pub fn answer(&self, id: u64, answer: Bytes) {
        let waiting = self.0.lock().waiting.remove(&id);
        if let Some(waiting) = waiting {
            let _ = waiting.send(answer);
        }
    }
}

/// A question that waits for an answer.
#[derive(Debug)]
#[must_use = "the question is removed when it is dropped"]
pub struct PendingAsk {
    id: u64,
    answered: oneshot::Receiver<Bytes>,
    _entry: AskEntry,
}

impl PendingAsk {
    /// Returns the id that the answer must have.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Waits for the answer.
    ///
    /// # Errors
    ///
    /// [`AskError::TimedOut`] if no answer arrives within `within`.
    ///
    /// # Cancel safety
    ///
    /// The question is removed, and a later answer has no effect.
    pub async fn wait(self, within: Duration) -> Result<Bytes, AskError> {
        let answered = tokio::time::timeout(within, self.answered).await;
        let answered = answered.map_err(|_| AskError::TimedOut)?;
        answered.map_err(|_| AskError::TimedOut)
    }
}

/// Removes a question from the table when it is dropped.
#[derive(Debug)]
struct AskEntry {
    id: u64,
    asks: PendingAsks,
}

impl Drop for AskEntry {
    fn drop(&mut self) {
        let removed = self.asks.0.lock().waiting.remove(&self.id);
        drop(removed);
    }
}
