//! [`CallRefusal`], the reason why a tool call does not reach its handler.

use bowline_core::shortened;
use bowline_types::{CallToolResult, ErrorCode, RpcError};

/// The reason why a call does not reach the handler.
pub(in crate::server) enum CallRefusal {
    /// Reported to the client.
    Error(RpcError),
    /// The arguments are invalid. Reported to the model, which can correct them.
    Arguments(String),
}

impl CallRefusal {
    /// Returns the answer to the request.
    pub(in crate::server) fn into_result(self) -> Result<CallToolResult, RpcError> {
        match self {
            Self::Error(error) => Err(error),
            Self::Arguments(why) => Ok(super::invalid_arguments(&why)),
        }
    }

    /// Returns the error for a call without a model.
    pub(in crate::server) fn into_error(self) -> RpcError {
        match self {
            Self::Error(error) => error,
            Self::Arguments(why) => {
                let why = format!("invalid arguments: {}", shortened(why));
                RpcError::new(ErrorCode::INVALID_PARAMS, why)
            }
        }
    }
}

impl From<RpcError> for CallRefusal {
    fn from(error: RpcError) -> Self {
        Self::Error(error)
    }
}
