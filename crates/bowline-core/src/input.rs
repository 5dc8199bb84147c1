//! Multi round-trip requests: the server returns `input_required`, the client's host answers, the client retries.
//!
//! ```text
//! client                                             server
//! ├─ tools/call {params} ──────────────────────────▶ Round 1: the handler needs input, the round ends
//! │◀─ input_required {inputRequests, requestState} ─┤
//! │  the host answers
//! ├─ tools/call {params, inputResponses, state} ───▶ Round 2: the handler runs again, with the input
//! │◀─ the result ───────────────────────────────────┤
//! ```
//!
//! The server keeps nothing between two rounds, and another replica may receive the retry: it handles one
//! [`ServerRound`] at a time, and `requestState` carries what the next one needs. The client keeps the [`ClientRounds`]
//! of a request. Legacy servers send each [`RawInputRequest`] as a request.

use bowline_types::{CallToolRequest, GetPromptRequest, Method, ReadResourceRequest};

mod input_request;
pub use input_request::{InputKind, MissingCapability, RawInputRequest};

mod form;
pub use form::{InvalidFormContent, check_form};

mod url;
pub use url::{InvalidElicitationUrl, check_url};

mod tool_uses;
pub use tool_uses::{ToolUseViolation, check_tool_uses};

mod digest;
pub use digest::{Digest, request_digest};

mod request_state;
pub use request_state::{InvalidRequestState, RequestStateTooLarge};

mod server_round;
pub use server_round::{
    DEFAULT_MAX_STATE_BYTES, InputRequired, InputStatus, KeyReused, RetryRejection, ServerRound,
    sealed_request_state,
};

mod client_rounds;
pub use client_rounds::{
    ClientRounds, DEFAULT_MAX_ROUNDS, InputStep, InputViolation, MAX_INPUT_REQUESTS, RoundsMisuse,
    is_input_required,
};

/// Returns whether the specification allows `input_required` as a result of this method.
///
/// # Examples
///
/// ```
/// use bowline_core::input::may_need_input;
///
/// assert!(may_need_input("tools/call"));
/// assert!(!may_need_input("tools/list"));
/// ```
#[must_use]
pub fn may_need_input(method: &str) -> bool {
    matches!(
        method,
        CallToolRequest::NAME | GetPromptRequest::NAME | ReadResourceRequest::NAME
    )
}

/// The members of params and results that multi round-trip requests use.
mod member {
    pub(super) const INPUT_REQUESTS: &str = "inputRequests";
    pub(super) const INPUT_RESPONSES: &str = "inputResponses";
    pub(super) const REQUEST_STATE: &str = "requestState";
    pub(super) const RESULT_TYPE: &str = "resultType";
    pub(super) const META: &str = "_meta";
}

#[cfg(test)]
mod tests;
