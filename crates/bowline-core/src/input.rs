//! A request that needs input: the server asks, the client's host answers, the request is sent again.
//!
//! ```text
//! client                                             server
//! ├─ tools/call {params} ──────────────────────────▶ Round 1: the handler asks, the round is over
//! │◀─ input_required {inputRequests, requestState} ─┤
//! │  the host answers
//! ├─ tools/call {params, inputResponses, state} ───▶ Round 2: the handler runs again, finds its answer
//! │◀─ the result ───────────────────────────────────┤
//! ```
//!
//! The server forgets everything between two rounds, and another replica may get the next one, so it
//! sees one [`Round`] at a time and what it must know travels in the state. The client lives through all
//! of them and holds the [`Rounds`]. Legacy peers send the same [`Question`]s as requests of their own.

use bowline_types::{CallToolRequest, GetPromptRequest, Method, ReadResourceRequest};

mod question;
pub use question::{Kind, MissingCapability, Question};

mod form;
pub use form::{UnfitForm, check_form};

mod url;
pub use url::{UnfitUrl, check_url};

mod tool_uses;
pub use tool_uses::{ToolUseViolation, check_tool_uses};

mod digest;
pub use digest::{Digest, request_digest};

mod state;
pub use state::{StateTooLarge, StateUnreadable};

mod asking;
pub use asking::{
    Asked, DEFAULT_STATE_LIMIT, InputRequired, KeyReused, Rejection, Round, request_state,
};

mod answering;
pub use answering::{
    DEFAULT_ROUND_CAP, MAX_QUESTIONS_PER_ROUND, Misuse, Rounds, Step, Violation, is_input_required,
};

/// Whether the specification lets a request of this method be answered by `input_required`.
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

/// The members of params and results by which the rounds hang together.
mod member {
    pub(super) const INPUT_REQUESTS: &str = "inputRequests";
    pub(super) const INPUT_RESPONSES: &str = "inputResponses";
    pub(super) const REQUEST_STATE: &str = "requestState";
    pub(super) const RESULT_TYPE: &str = "resultType";
    pub(super) const META: &str = "_meta";
}

#[cfg(test)]
mod tests;
