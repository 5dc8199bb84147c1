//! What can go wrong, sorted by whose doing it is.

use std::error::Error as StdError;
use std::time::Duration;

use bowline_core::http::challenge::Challenge;
use bowline_types::RpcError;

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call, a connection or a server failed.
///
/// The variants answer one question, whose doing it was, because that decides what to do next: ask
/// differently, report a bug, try again, wait longer, or fix the program. `Display` tells this level only;
/// what is underneath is in `source()`.
///
/// # Examples
///
/// ```
/// use bowline::{Error, ErrorCode, RpcError};
///
/// let error = Error::from(RpcError::new(ErrorCode::INVALID_PARAMS, "no tool is called `ad`"));
/// assert!(matches!(&error, Error::Peer(said) if said.code == ErrorCode::INVALID_PARAMS));
/// assert_eq!(error.to_string(), "no tool is called `ad` (-32602)");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer said no.
    #[error(transparent)]
    Peer(#[from] RpcError),
    /// The peer broke the protocol.
    #[error("the peer broke the protocol: {what}")]
    Protocol {
        /// What it did.
        what: String,
        /// What we stumbled over.
        source: Option<Box<dyn StdError + Send + Sync>>,
    },
    /// The wire failed.
    #[error("the wire failed: {what}")]
    Transport {
        /// What failed.
        what: String,
        /// Why.
        source: Option<Box<dyn StdError + Send + Sync>>,
    },
    /// It took too long. The peer was told to stop.
    #[error("timed out after {after:?}")]
    Timeout {
        /// How long it was allowed to take.
        after: Duration,
    },
    /// The call was cancelled before it ended.
    #[error("the call was cancelled: {reason}")]
    Cancelled {
        /// By whom, or why.
        reason: String,
    },
    /// A subscription said more than was taken in, and was given up: changes were missed.
    #[error("changes came faster than they were taken in")]
    Lagged,
    /// The connection is closed.
    #[error("the connection is closed")]
    Closed,
    /// The server wants to know who is asking.
    #[error("the server asks for authorization")]
    Unauthorized {
        /// What it asks for.
        challenges: Vec<Challenge>,
        /// Why it did not get that, if that was tried.
        source: Option<Box<dyn StdError + Send + Sync>>,
    },
    /// The program asked for something that cannot be.
    #[error("{what}")]
    Misuse {
        /// What cannot be, and what to do instead.
        what: String,
    },
}

impl Error {
    pub(crate) fn protocol(what: impl Into<String>) -> Self {
        Self::Protocol {
            what: what.into(),
            source: None,
        }
    }

    pub(crate) fn undecodable(what: impl Into<String>, source: serde_json::Error) -> Self {
        Self::Protocol {
            what: what.into(),
            source: Some(source.into()),
        }
    }

    pub(crate) fn misuse(what: impl Into<String>) -> Self {
        Self::Misuse { what: what.into() }
    }
}
