//! The errors of parked calls: those for the client, and those for an upstream whose question is refused.

use bowline::exchange::InputKind;
use bowline::{ErrorCode, RpcError};
use serde_json::json;

/// Why a retry is refused, or a call cannot be parked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The state is not ours, or was issued for another principal or another request.
    Foreign,
    /// A retry with this state, or with that of a later round, was accepted before.
    AlreadyUsed,
    /// The call waited for the retry until its timeout.
    Expired,
    /// The client cancelled the call by closing the stream of a retry, or the call could not be parked again.
    Cancelled,
    /// The process that owned the call has ended.
    Lost,
    /// An answer has the wrong shape. The call still waits for the retry.
    InvalidAnswer { key: String, expected: &'static str },
    /// `inputResponses` or `requestState` has the wrong type.
    InvalidMember(&'static str),
    /// The limits of parked calls are reached.
    TooManyCalls(Sent),
    /// The call may not be parked any longer.
    ParkedTooLong,
    /// The operating system provides no randomness.
    NotSealed,
}

/// Whether the call was sent to the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    No,
    Yes,
}

impl From<Refusal> for RpcError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            // One text for all: who asks must not learn whether there is such a call.
            Refusal::Foreign => Self::invalid_params(
                "`requestState` was not issued by this server for this request; if it was issued before a restart, \
                 its call was lost and may have run",
            )
            .with_data(json!({"reason": "unknownState", "mayHaveRun": true})),
            Refusal::AlreadyUsed => Self::invalid_params("request state was already used"),
            Refusal::Expired => Self::invalid_params("request state has expired"),
            Refusal::Cancelled => {
                Self::invalid_params("request state is invalid: its call was cancelled")
            }
            Refusal::InvalidAnswer { key, expected } => {
                Self::invalid_params(format_args!("invalid answer to `{key}`: {expected}"))
            }
            Refusal::InvalidMember(expected) => Self::invalid_params(expected),
            Refusal::Lost => Self::internal("the call was lost; it may have run")
                .with_data(json!({"reason": "callLost", "mayHaveRun": true})),
            Refusal::TooManyCalls(sent) => Self::internal("too many parked calls").with_data(
                json!({"reason": "tooManyParkedCalls", "mayHaveRun": sent == Sent::Yes}),
            ),
            Refusal::ParkedTooLong => Self::internal("the call waited too long for input")
                .with_data(json!({"reason": "parkedTooLong", "mayHaveRun": true})),
            Refusal::NotSealed => Self::internal("failed to save the request state")
                .with_data(json!({"mayHaveRun": true})),
        }
    }
}

/// Returns the outcome of a parked call whose real outcome exceeds the limits.
pub(super) fn outcome_too_large(bytes: usize) -> RpcError {
    let why = format!("the result of {bytes} bytes exceeds the limits of parked calls");
    RpcError::internal(why).with_data(json!({"reason": "resultTooLarge", "mayHaveRun": true}))
}

/// Returns the outcome of a task whose client did not answer a question in time.
pub(super) fn unanswered() -> RpcError {
    RpcError::internal("the client did not answer in time")
        .with_data(json!({"reason": "inputExpired", "mayHaveRun": true}))
}

/// Why the question of an upstream is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuestionRefusal {
    /// The client did not declare the capability.
    Unsupported(InputKind),
    /// The call has ended, or ends while the question waits for its answer.
    CallEnded,
    /// The call has too many open questions, or the limits of parked calls are reached.
    TooMany,
}

impl From<QuestionRefusal> for RpcError {
    fn from(refusal: QuestionRefusal) -> Self {
        match refusal {
            // The codes of a client that did not declare the capability.
            QuestionRefusal::Unsupported(kind) => {
                let code = match kind {
                    InputKind::Elicitation => ErrorCode::INVALID_PARAMS,
                    InputKind::Sampling | InputKind::Roots => ErrorCode::METHOD_NOT_FOUND,
                };
                Self::new(code, format!("this client does not support `{kind}`"))
            }
            QuestionRefusal::CallEnded => {
                Self::internal("the call that this request belongs to has ended")
            }
            QuestionRefusal::TooMany => Self::internal("too many input requests of parked calls"),
        }
    }
}
