//! [`Exchange`]: a request with everything that belongs to it.

use std::time::Duration;

use bowline_core::Outcome;
use bowline_core::era::is_modern_version;
use bowline_types::{Json, ProtocolVersion, RequestId};

use crate::{EndedBy, Side};

/// A request with its notifications, its answer and its cancel.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Exchange {
    /// The number, from 1, in the order of the requests.
    pub number: usize,
    /// The number of the connection.
    pub connection: u64,
    /// The number of the HTTP request that carried the request.
    pub http_exchange: Option<u64>,
    /// The legacy session, perhaps redacted.
    pub session: Option<String>,
    /// The side that sent the request.
    pub from: Side,
    /// The line of the request.
    pub line: usize,
    /// The time of the request.
    pub at: Duration,
    /// The id.
    pub id: RequestId,
    /// The method.
    pub method: String,
    /// The tool, prompt, resource or task that the request names.
    pub name: Option<String>,
    /// The params.
    pub params: Option<Json>,
    /// The progress token in the params.
    pub progress_token: Option<RequestId>,
    /// The protocol version: that of the request, or the negotiated one.
    pub version: Option<ProtocolVersion>,
    /// The notifications that belong to the request.
    pub notifications: Vec<ExchangeNotification>,
    /// How many notifications belong to the request.
    pub notification_count: usize,
    /// The numbers of the requests that the other side sent about this one.
    pub questions: Vec<usize>,
    /// The number of the exchange that this request is a question of.
    pub question_of: Option<usize>,
    /// The answer.
    pub answer: Option<Answer>,
    /// Answers after the first one, and answers after a cancel.
    pub late_answers: Vec<Answer>,
    /// The cancel.
    pub cancel: Option<Cancel>,
    /// The earlier request of the same multi-round-trip call.
    pub previous_leg: Option<usize>,
    /// The retry of the same multi-round-trip call.
    pub next_leg: Option<usize>,
    /// The time at which a subscription was acknowledged.
    pub acknowledged: Option<Duration>,
    /// The end of the HTTP request that carried the request.
    pub http_end: Option<HttpEnd>,
    /// How the exchange ended.
    pub state: ExchangeState,
}

/// A notification that belongs to an exchange.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExchangeNotification {
    /// The line.
    pub line: usize,
    /// The time.
    pub at: Duration,
    /// The method.
    pub method: String,
    /// The params.
    pub params: Option<Json>,
}

/// An answer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Answer {
    /// The line.
    pub line: usize,
    /// The time.
    pub at: Duration,
    /// The id as the answer has it, which may differ from the request's in its JSON type.
    pub id: Option<RequestId>,
    /// The number of the HTTP request that the answer came on.
    pub http_exchange: Option<u64>,
    /// The result or the error.
    pub outcome: Outcome,
}

/// A cancel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cancel {
    /// The line.
    pub line: usize,
    /// The time.
    pub at: Duration,
    /// The side that cancelled.
    pub by: Side,
    /// How it was sent.
    pub form: CancelForm,
    /// The reason in the notification.
    pub reason: Option<String>,
    /// The time of the last message or HTTP end that belongs to the exchange and follows the cancel. `None` if nothing
    /// followed.
    pub last_seen: Option<Duration>,
}

/// How a cancel was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CancelForm {
    /// `notifications/cancelled` on a shared stream.
    Frame,
    /// `notifications/cancelled` in an HTTP request of its own.
    PostedFrame,
    /// The client closed the response stream.
    ClosedStream,
}

/// The end of an HTTP request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpEnd {
    /// The line.
    pub line: usize,
    /// The time.
    pub at: Duration,
    /// The side whose action ended it.
    pub by: EndedBy,
    /// Whether the response was complete.
    pub is_complete: bool,
}

/// How an exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExchangeState {
    /// It has not ended yet.
    InFlight,
    /// With a result.
    Answered,
    /// With a result whose `isError` is true.
    ToolError,
    /// With a request for input, which a later leg answers.
    InputRequired,
    /// With a JSON-RPC error of this code.
    Failed(i64),
    /// With an HTTP status and without a JSON-RPC answer.
    Refused(u16),
    /// It was cancelled.
    Cancelled,
    /// It was neither answered nor cancelled.
    Hung,
}

impl Exchange {
    /// Returns the time from the request to its answer, its cancel, or its refusal.
    #[must_use]
    pub fn duration(&self) -> Option<Duration> {
        let answer = self.answer.as_ref().map(|answer| answer.at);
        let cancel = self.cancel.as_ref().map(|cancel| cancel.at);
        let refused = match self.state {
            ExchangeState::Refused(_) => self.http_end.map(|end| end.at),
            _ => None,
        };
        let end = answer.or(cancel).or(refused)?;
        Some(end.saturating_sub(self.at))
    }

    /// Returns whether the request is of the modern era: of version 2026-07-28 or later.
    #[must_use]
    pub fn is_modern(&self) -> bool {
        let version = self.version.as_ref();
        version.is_some_and(|version| is_modern_version(version.as_str()))
    }

    /// Returns whether the request opens a subscription, which stays open until it is cancelled.
    #[must_use]
    pub fn is_subscription(&self) -> bool {
        self.method == LISTEN
    }
}

impl Cancel {
    /// Returns the time from the cancel to the last thing that was seen of the work.
    #[must_use]
    pub fn latency(&self) -> Option<Duration> {
        Some(self.last_seen?.saturating_sub(self.at))
    }
}

impl CancelForm {
    /// Returns a short description.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Frame => "frame",
            Self::PostedFrame => "posted frame",
            Self::ClosedStream => "closed stream",
        }
    }
}

pub(crate) const LISTEN: &str = "subscriptions/listen";
