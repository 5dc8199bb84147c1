//! [`InputError`], the error of requesting input from the client.

use bowline_core::era::Unsupported;
use bowline_core::input::{KeyReused, MissingCapability};
use bowline_types::{ErrorCode, RpcError};

use super::FormTypeError;
use crate::Error;
use crate::cluster::MarkError;

/// The error of requesting input from the client.
///
/// A handler may return it: each variant becomes a JSON-RPC error with its own code; see [`InputError::to_rpc_error`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// The client lacks the capability. No request was sent.
    #[error(transparent)]
    Missing(#[from] MissingCapability),
    /// The client's protocol version does not support the request. No request was sent.
    #[error("protocol version {version} does not support `{what}`")]
    Unsupported {
        /// The method or mode.
        what: &'static str,
        /// The client's protocol version.
        version: &'static str,
    },
    /// Input cannot be requested in this context.
    #[error("input is not available: {why}")]
    Unavailable {
        /// The reason.
        why: &'static str,
    },
    /// The user declined (`"action": "decline"`).
    #[error("the user declined to answer")]
    Declined,
    /// The user dismissed the question (`"action": "cancel"`).
    #[error("the user dismissed the question")]
    Cancelled,
    /// The client returned a JSON-RPC error.
    #[error("the client rejected `{key}`: {error}")]
    Rpc {
        /// The key of the input request.
        key: String,
        /// The error.
        error: RpcError,
    },
    /// The answer is invalid.
    #[error("invalid answer to `{key}`: {why}")]
    InvalidAnswer {
        /// The key of the input request.
        key: String,
        /// The reason.
        why: String,
    },
    /// The server-to-client request failed to be sent or timed out.
    #[error("failed to get an answer to `{key}`")]
    Failed {
        /// The key of the input request.
        key: String,
        /// The cause.
        source: Error,
    },
    /// The `requestState` was used before for an effect of [`Context::once`](crate::Context::once) whose output is not
    /// stored.
    #[error("the request state was already used; start again without it")]
    StateReused,
    /// The [`Marks`](crate::cluster::Marks) failed, so it is unknown whether an effect of
    /// [`Context::once`](crate::Context::once) was performed.
    #[error("failed to check whether the effect was already performed")]
    Marks(#[source] MarkError),
    /// An [`InputSource`](super::InputSource) failed to store or to read a value, an effect or an input request.
    #[error("failed to store or to read the state of the handler")]
    Source(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The request has ended or was cancelled.
    #[error("the request has ended")]
    RequestEnded,
    /// The type cannot be represented as a form.
    #[error(transparent)]
    FormType(#[from] FormTypeError),
    /// The API was misused.
    #[error("{what}")]
    Misuse {
        /// The mistake.
        what: String,
    },
}

impl From<Unsupported> for InputError {
    fn from(Unsupported { what, version, .. }: Unsupported) -> Self {
        Self::Unsupported { what, version }
    }
}

impl From<KeyReused> for InputError {
    fn from(reused: KeyReused) -> Self {
        Self::misuse(reused.to_string())
    }
}

impl InputError {
    pub(super) fn misuse(what: impl Into<String>) -> Self {
        Self::Misuse { what: what.into() }
    }

    /// Converts it to the JSON-RPC error that is sent to the client.
    #[must_use]
    pub fn to_rpc_error(&self) -> RpcError {
        let code = match self {
            Self::Missing(missing) => return missing.to_rpc_error(),
            Self::Unsupported { .. } => ErrorCode::MISSING_CLIENT_CAPABILITY,
            Self::Declined | Self::Cancelled | Self::Rpc { .. } => ErrorCode::USER_REJECTED,
            Self::InvalidAnswer { .. } | Self::StateReused => ErrorCode::INVALID_PARAMS,
            Self::RequestEnded => ErrorCode::REQUEST_CANCELLED,
            Self::Unavailable { .. }
            | Self::Failed { .. }
            | Self::Marks(_)
            | Self::Source(_)
            | Self::FormType(_)
            | Self::Misuse { .. } => ErrorCode::INTERNAL_ERROR,
        };
        RpcError::new(code, self.to_string())
    }
}

impl From<InputError> for RpcError {
    fn from(error: InputError) -> Self {
        error.to_rpc_error()
    }
}
