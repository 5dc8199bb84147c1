//! [`Purpose`], what a sealed text is used for.

/// What a sealed text is used for. A text that was sealed for one purpose does not open for another, even with the same
/// key and bound bytes.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use bowline::seal::{Purpose, SealError, Sealer};
///
/// let sealer = Sealer::random();
/// let cursor = sealer.seal(Purpose::Cursor, b"", b"page 2", Duration::from_secs(60))?;
///
/// assert_eq!(sealer.open(Purpose::RequestState, b"", &cursor), Err(SealError::Foreign));
/// # Ok::<(), SealError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Purpose {
    /// The `requestState` of a multi round-trip request, whose content is the state.
    RequestState,
    /// The `requestState` of a call that a bridge keeps running while the client answers.
    ParkedCall,
    /// The id of a legacy session.
    SessionId,
    /// A message from one replica to another.
    OwnerMessage,
    /// The cursor of a paginated list.
    Cursor,
}

impl Purpose {
    /// Returns the byte in the associated data. It must never change: texts outlive processes.
    pub(super) const fn code(self) -> u8 {
        match self {
            Self::RequestState => 1,
            Self::ParkedCall => 2,
            Self::SessionId => 3,
            Self::OwnerMessage => 4,
            Self::Cursor => 5,
        }
    }
}
