//! [`Rejection`]: the error for a message that was not admitted.

use bowline_types::{ErrorCode, RpcError};
use serde_json::json;

use super::Dialects;
use crate::shortened;

/// Why a message was not admitted: the JSON-RPC error to send to the peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct Rejection(RpcError);

impl Rejection {
    /// Creates a rejection from a code and a message.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self(RpcError::new(code, message))
    }

    /// Creates a rejection of invalid params.
    #[must_use]
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::INVALID_PARAMS, message)
    }

    /// Creates a rejection of a method that does not exist for this caller.
    #[must_use]
    pub fn method_not_found(method: &str) -> Self {
        let message = format!("method not found: `{}`", shortened(method));
        Self::new(ErrorCode::METHOD_NOT_FOUND, message)
    }

    /// Creates a rejection of a version that is not served.
    ///
    /// Its `data.supported` lists the modern versions that are served. A legacy-only server lists its legacy versions,
    /// so that the client can fall back to `initialize`.
    #[must_use]
    pub fn unsupported_version(requested: &str, served: &Dialects) -> Self {
        let mut supported: Vec<_> = served.modern_versions().collect();
        if supported.is_empty() {
            supported.extend(served.iter().map(|dialect| dialect.version));
        }
        let error = RpcError::new(
            ErrorCode::UNSUPPORTED_PROTOCOL_VERSION,
            // The exact text matters: clients search for it.
            "Unsupported protocol version",
        );
        let requested = shortened(requested).to_string();
        Self(error.with_data(json!({"supported": supported, "requested": requested})))
    }

    /// Returns the code of the error.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        self.0.code
    }

    /// Returns the error to send to the peer.
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
    fn a_rejection_truncates_text_from_the_peer() {
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
