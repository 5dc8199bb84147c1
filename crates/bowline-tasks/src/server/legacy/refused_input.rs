//! The JSON-RPC error with which a client refused an input request, in the form of an answer.
//!
//! Clients of the extension can only answer the questions of a task. Those of 2025-11-25 get them as requests, which
//! they may refuse, and the handler should learn it as from an ordinary call.

use bowline::exchange::InputError;
use bowline_types::{Json, RpcError};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Refused {
    #[serde(rename = "bowline/error")]
    error: RpcError,
}

/// Returns the answer that stands for an error.
pub(super) fn to_answer(error: RpcError) -> Result<Json, serde_json::Error> {
    Json::encode(&Refused { error })
}

/// Returns an answer of the record, or the error with which the client refused the input request.
pub(in crate::server) fn read_answer(key: &str, answer: Json) -> Result<Json, InputError> {
    // Avoids decoding the answers that are not errors, which most are.
    let may_be_error = answer.as_str().contains("\"bowline/error\"");
    let refused = may_be_error.then(|| answer.decode::<Refused>().ok());
    match refused.flatten() {
        Some(Refused { error }) => Err(InputError::Rpc {
            key: key.to_owned(),
            error,
        }),
        None => Ok(answer),
    }
}
