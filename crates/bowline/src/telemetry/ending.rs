//! [`Ending`], how a request ended: with a result, an error, or by a cancel.

use std::borrow::Cow;

use bowline_core::json::pick;
use bowline_core::{Outcome, shortened};
use bowline_types::{CallToolRequest, ErrorCode, Json, Method, ResultType, RpcError};

use super::names::{CALLER_FAULTS, error_type};
use crate::exchange::{Answer, CancelMode, HandlerControl};
use crate::{Error, Result};

/// How a request ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ending {
    /// The JSON-RPC error code of the response.
    pub(crate) code: Option<Cow<'static, str>>,
    /// The value of `error.type`; `None` if the operation did not fail.
    pub(crate) error_type: Option<Cow<'static, str>>,
    /// The message of the error.
    pub(crate) message: Option<String>,
    /// The `resultType` of a result that is not complete.
    pub(crate) result_type: Option<Cow<'static, str>>,
    pub(crate) cancelled: Option<Cancelled>,
    /// The names in the request that the receiver does not know, so that they must not be used in metrics.
    pub(crate) unknown: Unknown,
}

/// The names in a request that its receiver does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Unknown {
    #[default]
    Nothing,
    /// The tool, prompt or resource.
    Target,
    Method,
}

/// A request that was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cancelled {
    pub(crate) by: CancelSource,
    /// What the handler did; `None` on the side of the caller.
    pub(crate) handler: Option<&'static str>,
}

/// Who cancelled a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CancelSource {
    /// The peer sent a cancel, or dropped its call in process.
    Peer,
    /// The connection or the response stream ended. Over HTTP of 2026-07-28 that is how a client cancels.
    Disconnect,
    /// The server shut down, and the handler did not end within the grace period.
    Shutdown,
    /// The caller on this side dropped or cancelled its call.
    Caller,
    /// A timeout on this side elapsed.
    Timeout,
}

impl CancelSource {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Peer => "peer",
            Self::Disconnect => "disconnect",
            Self::Shutdown => "shutdown",
            Self::Caller => "caller",
            Self::Timeout => "timeout",
        }
    }
}

impl Ending {
    /// The handler of a request returned.
    pub(crate) fn of_outcome(method: &str, outcome: &Outcome, control: &HandlerControl) -> Self {
        let mut ending = match outcome {
            Ok(result) => Self::of_result(method, result),
            Err(error) => Self::of_received_error(error),
        };
        // A handler that is stopped to ask for input is signalled too, and is always one that is dropped.
        if control.cancel_mode() == CancelMode::Signal && control.is_cancelled() {
            ending = Self::cancelled_by(control.cancelled_by(), Some("returned"));
        }
        ending
    }

    /// The handler of a request was dropped.
    pub(crate) fn dropped(control: &HandlerControl) -> Self {
        Self::cancelled_by(control.cancelled_by(), Some("dropped"))
    }

    /// The handler of a request panicked.
    pub(crate) fn panicked(error: &RpcError) -> Self {
        Self {
            error_type: Some(error_type::PANIC.into()),
            ..Self::of_received_error(error)
        }
    }

    /// A call was answered, or failed.
    pub(crate) fn of_answer(method: &str, answer: &Result<Answer>) -> Self {
        let error = match answer {
            Ok(Answer::Complete(result)) => return Self::of_result(method, result),
            Ok(Answer::InputRequired(_)) => {
                return Self::incomplete(ResultType::INPUT_REQUIRED.as_str().to_owned().into());
            }
            Ok(Answer::Extension { result_type, .. }) => {
                return Self::incomplete(shortened(result_type).to_string().into());
            }
            Err(error) => error,
        };
        let message = Some(shortened(error).to_string());
        match error {
            Error::Rpc(error) => {
                let code = code_text(error.code);
                Self {
                    error_type: Some(code.clone()),
                    code: Some(code),
                    message: Some(shortened(&error.message).to_string()),
                    ..Self::default()
                }
            }
            Error::Timeout { .. } => Self {
                message,
                error_type: Some(error_type::TIMEOUT.into()),
                ..Self::cancelled_by(CancelSource::Timeout, None)
            },
            other => Self {
                message,
                error_type: Some(type_of(other).into()),
                ..Self::default()
            },
        }
    }

    /// The caller on this side dropped or cancelled its call.
    pub(crate) fn abandoned() -> Self {
        Self {
            error_type: Some(error_type::CANCELLED.into()),
            ..Self::cancelled_by(CancelSource::Caller, None)
        }
    }

    fn cancelled_by(by: CancelSource, handler: Option<&'static str>) -> Self {
        Self {
            cancelled: Some(Cancelled { by, handler }),
            ..Self::default()
        }
    }

    fn incomplete(result_type: Cow<'static, str>) -> Self {
        Self {
            result_type: Some(result_type),
            ..Self::default()
        }
    }

    fn of_result(method: &str, result: &Json) -> Self {
        let (result_type, is_error) = if method == CallToolRequest::NAME {
            match pick(result, ["resultType", "isError"]) {
                Ok([result_type, is_error]) => (result_type, is_error),
                Err(_) => return Self::default(),
            }
        } else {
            let picked = pick(result, ["resultType"]);
            (picked.ok().and_then(|[result_type]| result_type), None)
        };
        let result_type = result_type.and_then(|it| Some(it.text().ok()?.into_owned()));
        let is_complete = |it: &String| it == ResultType::COMPLETE.as_str();
        Self {
            error_type: is_error
                .is_some_and(|it| it.as_str() == "true")
                .then_some(error_type::TOOL_ERROR.into()),
            result_type: result_type
                .filter(|it| !is_complete(it))
                .map(|it| shortened(it).to_string().into()),
            ..Self::default()
        }
    }

    /// This side answers with an error, which may be the fault of the caller.
    fn of_received_error(error: &RpcError) -> Self {
        let code = code_text(error.code);
        let is_fault = CALLER_FAULTS.contains(&error.code.0);
        Self {
            error_type: (!is_fault).then(|| code.clone()),
            code: Some(code),
            message: Some(shortened(&error.message).to_string()),
            unknown: match error.code {
                ErrorCode::METHOD_NOT_FOUND => Unknown::Method,
                ErrorCode::INVALID_PARAMS => Unknown::Target,
                _ => Unknown::Nothing,
            },
            ..Self::default()
        }
    }
}

fn type_of(error: &Error) -> &'static str {
    match error {
        Error::Transport { .. } => error_type::TRANSPORT,
        Error::Protocol { .. } => error_type::PROTOCOL,
        Error::Closed => error_type::CLOSED,
        Error::Cancelled { .. } => error_type::CANCELLED,
        Error::Unauthorized { .. } => error_type::UNAUTHORIZED,
        _ => error_type::OTHER,
    }
}

/// Returns the code as text, without an allocation for the usual ones.
fn code_text(code: ErrorCode) -> Cow<'static, str> {
    let known = match code.0 {
        -32700 => "-32700",
        -32600 => "-32600",
        -32601 => "-32601",
        -32602 => "-32602",
        -32603 => "-32603",
        -32002 => "-32002",
        other => return Cow::Owned(other.to_string()),
    };
    Cow::Borrowed(known)
}
