//! The HTTP status of a modern response, by its JSON-RPC outcome. In the legacy era no error code has its own status.

use ::http::StatusCode;
use bowline_types::ErrorCode;

use crate::Outcome;

/// Whether the head of the response, and with it the status, was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a head has been sent or it has not"
)]
pub enum HeadState {
    /// The head was not sent yet.
    Uncommitted,
    /// The response is a stream with status 200.
    Committed,
}

/// Returns the status of a response that carries the `outcome` of a handler.
///
/// A message that was not admitted has its own status: see [`HttpRejection`](super::admission::HttpRejection).
#[must_use]
pub fn of_outcome(outcome: &Outcome, head: HeadState) -> StatusCode {
    match outcome {
        Ok(_) => StatusCode::OK,
        Err(error) => of_error(error.code, head),
    }
}

/// Returns the status of a response that carries an error with this code.
///
/// The specification assigns a status to a few codes; other errors have status 200.
#[must_use]
pub fn of_error(code: ErrorCode, head: HeadState) -> StatusCode {
    match (head, code) {
        (HeadState::Committed, _) => StatusCode::OK,
        (HeadState::Uncommitted, ErrorCode::METHOD_NOT_FOUND) => StatusCode::NOT_FOUND,
        (HeadState::Uncommitted, code) if needs_bad_request(code) => StatusCode::BAD_REQUEST,
        (HeadState::Uncommitted, _) => StatusCode::OK,
    }
}

/// Returns whether the specification requires status 400 for this code, so it cannot be reported in a stream, whose
/// status is 200.
///
/// After the head was sent, the server's `RunningRequest` converts such an error: for `tools/call` to a result with
/// `isError`, for other methods to an internal error.
#[must_use]
pub fn needs_bad_request(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::PARSE_ERROR
            | ErrorCode::INVALID_REQUEST
            | ErrorCode::HEADER_MISMATCH
            | ErrorCode::MISSING_CLIENT_CAPABILITY
            | ErrorCode::UNSUPPORTED_PROTOCOL_VERSION
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_types::{Json, RpcError};

    #[test]
    fn each_error_code_has_its_status() {
        for (code, status) in [
            (ErrorCode::PARSE_ERROR, 400),
            (ErrorCode::INVALID_REQUEST, 400),
            (ErrorCode::HEADER_MISMATCH, 400),
            (ErrorCode::UNSUPPORTED_PROTOCOL_VERSION, 400),
            (ErrorCode::MISSING_CLIENT_CAPABILITY, 400),
            (ErrorCode::METHOD_NOT_FOUND, 404),
            (ErrorCode::INVALID_PARAMS, 200),
            (ErrorCode::INTERNAL_ERROR, 200),
            (ErrorCode::REQUEST_CANCELLED, 200),
            (ErrorCode(1), 200),
        ] {
            let outcome = Err(RpcError::new(code, "no"));

            assert_eq!(
                of_outcome(&outcome, HeadState::Uncommitted),
                status,
                "{code}"
            );
            assert_eq!(of_outcome(&outcome, HeadState::Committed), 200, "{code}");
        }
    }

    #[test]
    fn a_result_is_always_ok() {
        let result = Ok(Json::empty_object());

        assert_eq!(of_outcome(&result, HeadState::Uncommitted), 200);
        assert_eq!(of_outcome(&result, HeadState::Committed), 200);
    }
}
