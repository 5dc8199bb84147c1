//! Why a question has no answer.

use bowline_core::input::{KeyReused, MissingCapability};
use bowline_types::{ErrorCode, RpcError};

use super::NotAForm;
use crate::{Error, MarksError};

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
    /// The `requestState` was used before for an effect of [`Context::once`](crate::Context::once) whose output is not stored.
    #[error("the request state was already used; start again without it")]
    UsedUp,
    /// The store of marks failed, so it is not known whether an effect of [`Context::once`](crate::Context::once) has happened.
    #[error("failed to check whether this has happened before")]
    Marks(#[source] MarksError),
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

impl From<KeyReused> for AskError {
    fn from(reused: KeyReused) -> Self {
        Self::misuse(reused.to_string())
    }
}

impl AskError {
    pub(super) fn misuse(what: impl Into<String>) -> Self {
        Self::Misuse { what: what.into() }
    }

    /// What the caller is told.
    #[must_use]
    pub fn to_rpc_error(&self) -> RpcError {
        let code = match self {
            Self::Missing(missing) => return missing.to_rpc_error(),
            Self::Unsupported { .. } => ErrorCode::MISSING_CLIENT_CAPABILITY,
            Self::Declined | Self::Dismissed | Self::Refused { .. } => ErrorCode::USER_REJECTED,
            Self::Unfit { .. } | Self::UsedUp => ErrorCode::INVALID_PARAMS,
            Self::Over => ErrorCode::REQUEST_CANCELLED,
            Self::Nobody { .. }
            | Self::Lost { .. }
            | Self::Marks(_)
            | Self::NotAForm(_)
            | Self::Misuse { .. } => ErrorCode::INTERNAL_ERROR,
        };
        RpcError::new(code, self.to_string())
    }
}

impl From<AskError> for RpcError {
    fn from(error: AskError) -> Self {
        error.to_rpc_error()
    }
}
