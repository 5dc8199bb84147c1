//! The errors of messages and marks.

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

/// The engine of a cluster could not be reached, or did not answer in time.
///
/// Whether the operation took effect is unknown.
#[derive(Clone, Debug, thiserror::Error)]
#[error("failed to access {what}")]
#[non_exhaustive]
pub struct Unavailable {
    /// What could not be accessed.
    pub what: Arc<str>,
    /// The cause.
    #[source]
    pub source: Arc<dyn StdError + Send + Sync>,
}

impl Unavailable {
    /// Creates an error about `what`, such as `"Redis"`.
    pub fn new(
        what: impl Into<Arc<str>>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self {
            what: what.into(),
            source: source.into().into(),
        }
    }

    /// Creates the error of an operation that did not end within `limit`.
    pub fn timed_out(what: impl Into<Arc<str>>, limit: Duration) -> Self {
        Self::new(what, format!("no response within {limit:?}"))
    }
}

/// Why a replica did not answer; see [`ReplicaMessages::ask`](super::ReplicaMessages::ask).
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// The replica has ended. Its answer was not received, and will not be.
    #[error("the replica has ended")]
    ReplicaGone,
    /// There was no answer in time. Whether the replica received the message is unknown.
    #[error("the replica did not answer in time")]
    TimedOut,
    /// The engine is away, or the replica is overloaded or has other keys.
    #[error("failed to reach the replica")]
    Unavailable(#[source] Unavailable),
    /// The message or its answer is too large. Nothing was sent if it was the message.
    #[error("message of {bytes} bytes exceeds the limit of {limit} bytes")]
    TooLarge {
        /// The size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
}

impl From<Unavailable> for AskError {
    fn from(error: Unavailable) -> Self {
        Self::Unavailable(error)
    }
}

/// The error of [`Marks`](super::Marks).
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MarkError {
    /// The store has no capacity for another mark or value. Nothing was stored.
    #[error("the store of marks is full")]
    Full,
    /// The key or value is too large. Nothing was stored.
    #[error("{what} of {bytes} bytes exceeds the limit of {limit} bytes")]
    TooLarge {
        /// `"key"` or `"value"`.
        what: &'static str,
        /// The size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The engine is away. Whether the operation took effect is unknown.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}
