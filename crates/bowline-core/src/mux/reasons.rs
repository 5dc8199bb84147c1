//! The reasons for which a call of ours is abandoned, and their text for the peer.

use std::fmt;
use std::time::Duration;

/// The reason a call is abandoned.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AbandonReason {
    /// The caller dropped it.
    Dropped,
    /// A deadline passed.
    Timeout(CallTimeout),
    /// The caller cancelled it with a reason.
    Cancelled(String),
}

/// The deadline that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallTimeout {
    /// The idle timeout: no progress for this long.
    Idle(Duration),
    /// The total timeout.
    Total(Duration),
}

/// The `reason` of `notifications/cancelled`.
impl fmt::Display for AbandonReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dropped => f.write_str("caller cancelled"),
            Self::Timeout(timeout) => timeout.fmt(f),
            Self::Cancelled(reason) => f.write_str(reason),
        }
    }
}

impl fmt::Display for CallTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle(after) | Self::Total(after) => write!(f, "timed out after {after:?}"),
        }
    }
}
