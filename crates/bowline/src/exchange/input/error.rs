//! Why a question has no answer.

use bowline_core::input::{KeyReused, MissingCapability};
use bowline_types::{ErrorCode, RpcError};

use super::NotAForm;
use crate::Error;

/// Why a handler has no answer to what it asked.
///
/// As the error of a handler, each of them tells the caller something different: what the client lacks is
/// told by the code that the protocol has for it, what the user decided is told in words.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// The client does not declare that it can be asked this. It was not asked.
    #[error(transparent)]
    Missing(#[from] MissingCapability),
    /// The caller's protocol version has no such question. It was not asked.
    #[error("version {version} of the protocol has no way to ask `{what}`")]
    Unsupported {
        /// The method, or the mode, that does not exist there.
        what: &'static str,
        /// The version that the caller speaks.
        version: &'static str,
    },
    /// Nobody can be asked from here.
    #[error("nobody can be asked here: {why}")]
    Nobody {
        /// Why not.
        why: &'static str,
    },
    /// The user said no.
    #[error("the user declined to answer")]
    Declined,
    /// The user said neither yes nor no.
    #[error("the user dismissed the question")]
    Dismissed,
    /// The client answered with an error.
    #[error("the client did not answer `{key}`: {error}")]
    Refused {
        /// The key of the question.
        key: String,
        /// What it said.
        error: RpcError,
    },
    /// The answer is of the wrong shape.
    #[error("the answer to `{key}` does not fit: {why}")]
    Unfit {
        /// The key of the question.
        key: String,
        /// What is wrong with it.
        why: String,
    },
    /// The question did not reach the client, or its answer did not come back.
    #[error("the question `{key}` got lost")]
    Lost {
        /// The key of the question.
        key: String,
        /// On the way.
        source: Error,
    },
    /// The request is over; nobody waits for the answer any more.
    #[error("the request is over")]
    Over,
    /// The type to fill in has no form.
    #[error(transparent)]
    NotAForm(#[from] NotAForm),
    /// The handler's own mistake.
    #[error("{what}")]
    Misuse {
        /// What cannot be.
        what: String,
    },
}

impl AskError {
    pub(super) fn misuse(what: impl Into<String>) -> Self {
        Self::Misuse { what: what.into() }
    }
}

impl From<KeyReused> for AskError {
    fn from(reused: KeyReused) -> Self {
        Self::misuse(reused.to_string())
    }
}

impl From<AskError> for RpcError {
    fn from(error: AskError) -> Self {
        let code = match &error {
            AskError::Missing(missing) => return missing.to_rpc_error(),
            AskError::Unsupported { .. } => ErrorCode::MISSING_CLIENT_CAPABILITY,
            AskError::Declined | AskError::Dismissed | AskError::Refused { .. } => {
                ErrorCode::USER_REJECTED
            }
            AskError::Unfit { .. } => ErrorCode::INVALID_PARAMS,
            AskError::Over => ErrorCode::REQUEST_CANCELLED,
            AskError::Nobody { .. }
            | AskError::Lost { .. }
            | AskError::NotAForm(_)
            | AskError::Misuse { .. } => ErrorCode::INTERNAL_ERROR,
        };
        Self::new(code, error.to_string())
    }
}
