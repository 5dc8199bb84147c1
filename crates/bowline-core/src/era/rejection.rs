//! Why a message was not admitted.

use bowline_types::{ErrorCode, RpcError};
use serde_json::json;

use super::Dialects;
use crate::shortened;

/// Why a message was not admitted: the error that its sender is told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct Rejection(RpcError);

impl Rejection {
    /// A rejection with a code and a sentence.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self(RpcError::new(code, message))
    }

    /// The params have the wrong shape.
    #[must_use]
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::INVALID_PARAMS, message)
    }

    /// The method does not exist for this caller.
    #[must_use]
    pub fn method_not_found(method: &str) -> Self {
        let message = format!("there is no method `{}` here", shortened(method));
        Self::new(ErrorCode::METHOD_NOT_FOUND, message)
    }

    /// The requested version is not served; names those that are: the modern ones, or those with a handshake
    /// where there is nothing else, so that a client knows that one is worth trying.
    #[must_use]
    pub fn unsupported_version(requested: &str, served: &Dialects) -> Self {
        let mut supported: Vec<_> = served.modern_versions().collect();
        if supported.is_empty() {
            supported.extend(served.iter().map(|dialect| dialect.version));
        }
        let error = RpcError::new(
            ErrorCode::UNSUPPORTED_PROTOCOL_VERSION,
            // In these words: clients look for them.
            "Unsupported protocol version",
        );
        let requested = shortened(requested).to_string();
        Self(error.with_data(json!({"supported": supported, "requested": requested})))
    }

    /// The code of the error.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        self.0.code
    }

    /// The error that the sender is told.
    #[must_use]
    pub fn error(&self) -> &RpcError {
        &self.0
    }
}

impl From<Rejection> for RpcError {
    fn from(rejection: Rejection) -> Self {
        rejection.0
    }
}

impl From<RpcError> for Rejection {
    fn from(error: RpcError) -> Self {
        Self(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejection_repeats_only_the_beginning_of_what_was_sent() {
        let huge = "h".repeat(1 << 20);
        let rejections = [
            Rejection::method_not_found(&huge),
            Rejection::unsupported_version(&huge, &Dialects::all()),
        ];
        for rejection in rejections {
            let error = RpcError::from(rejection);
            let data = error.data.map_or(0, |data| data.as_bytes().len());

            assert!(error.message.len() + data < 1000, "{}", error.message);
        }
    }
}
