//! Which HTTP status an answer travels with.

use ::http::StatusCode;
use bowline_types::ErrorCode;

use crate::Outcome;

/// Whether the head of the response, and with it the status, can still be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a head has been sent or it has not"
)]
pub enum Head {
    /// Nothing was sent yet.
    Uncommitted,
    /// The response is a stream already, and its status is 200.
    Committed,
}

/// The status of a response that carries `outcome`.
///
/// This is about what came out of a handler. A message that was not admitted brings its own status: see
/// [`Rejection`](super::admission::Rejection).
#[must_use]
pub fn of_outcome(outcome: &Outcome, head: Head) -> StatusCode {
    match outcome {
        Ok(_) => StatusCode::OK,
        Err(error) => of_error(error.code, head),
    }
}

/// The status of a response that carries an error with this code.
///
/// The specification ties a status to a few codes; every other error is an answer like any other.
#[must_use]
pub fn of_error(code: ErrorCode, head: Head) -> StatusCode {
    match (head, code) {
        (Head::Committed, _) => StatusCode::OK,
        (Head::Uncommitted, ErrorCode::METHOD_NOT_FOUND) => StatusCode::NOT_FOUND,
        (Head::Uncommitted, code) if needs_bad_request(code) => StatusCode::BAD_REQUEST,
        (Head::Uncommitted, _) => StatusCode::OK,
    }
}

/// Whether the specification wants this code to travel with status 400, and so never on a stream.
///
/// A missing client capability that a handler finds only after the head is out therefore has to be
/// reported by another error.
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
    fn each_error_code_travels_with_its_status() {
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

            assert_eq!(of_outcome(&outcome, Head::Uncommitted), status, "{code}");
            assert_eq!(of_outcome(&outcome, Head::Committed), 200, "{code}");
        }
    }

    #[test]
    fn a_result_is_always_ok() {
        let result = Ok(Json::empty_object());

        assert_eq!(of_outcome(&result, Head::Uncommitted), 200);
        assert_eq!(of_outcome(&result, Head::Committed), 200);
    }
}
