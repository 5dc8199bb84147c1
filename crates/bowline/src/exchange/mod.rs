//! The transport-independent interface between clients and servers: [`Channel`], [`Responder`], [`Exchange`].
//!
//! An exchange is one request, the notifications that belong to it, and one answer. A [`Channel`] starts
//! exchanges and a [`Responder`] answers them; every transport implements one or calls the other.
//!
//! ```text
//!   Client ──▶ Channel ─ ─ ─ wire, HTTP, or in process ─ ─ ─▶ Responder ◀── Server
//! ```

mod call_options;
pub use call_options::CallOptions;

mod connection_state;
pub use connection_state::ConnectionState;

mod context;
pub(crate) use context::CONNECTION_ENDED;
#[cfg(feature = "http-server")]
pub(crate) use context::RESPONSE_CLOSED;
pub use context::{Context, HandlerControl, NotificationSink};

mod deadline;
pub(crate) use deadline::{Deadline, Deadlines, PausedTime};

#[cfg(feature = "http-client")]
mod future_exchange;

mod local_exchange;

mod extensions;
pub use extensions::Extensions;

mod request_ids;
#[cfg(feature = "http-client")]
pub(crate) use request_ids::RequestIds;

#[cfg_attr(
    not(all(feature = "http-client", feature = "http-server")),
    allow(
        dead_code,
        reason = "backpressure and `QueuePoll::MustPoll` are used by HTTP only"
    )
)]
mod notification_queue;
#[cfg(any(feature = "http-client", feature = "http-server"))]
pub(crate) use notification_queue::NotificationQueue;
pub(crate) use notification_queue::OverflowPolicy;
#[cfg(feature = "http-server")]
pub(crate) use notification_queue::QueuePoll;

mod in_process;
pub use in_process::InProcess;

mod input;
pub use input::{
    AcceptedAnswers, Elicitation, ElicitationOutcome, Form, FormTypeError, InputError,
    InputRequestOptions, InputSource, PendingInput,
};
pub(crate) use input::{DEFAULT_CLIENT_REQUEST_TIMEOUT, HandlerRun, OnceGuard};

#[cfg(feature = "http-client")]
mod timeout_pause;
#[cfg(feature = "http-client")]
pub(crate) use timeout_pause::{TimeoutControl, TimeoutPause, timeout_with_pauses};

mod notified_context;
pub use notified_context::NotifiedContext;

mod on_discarded;

mod progress;
pub use progress::{Progress, ProgressValue};

mod progress_silence;

mod principal;
pub use principal::Principal;

mod relay;
pub use relay::Relay;

mod run_handler;
#[cfg(feature = "legacy")]
pub(crate) use run_handler::run_internal;
pub(crate) use run_handler::{RunningHandler, run_handler};

mod trace_context;
pub use trace_context::TraceContext;
mod insufficient_scope;
pub use insufficient_scope::InsufficientScope;

mod back_channel;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{self, Poll};
use std::time::Duration;

use bowline_core::era::Unsealed;
pub use bowline_core::era::{Caller, Dialect, Dialects, Request, Unsupported, fit_question};

/// The types of the fields of [`Dialect`].
pub mod dialect {
    pub use bowline_core::era::{
        ElicitationModes, HttpProperties, HttpTransportKind, InputMechanism, Methods, Negotiation,
        StructuredContent, Tasks, UndefinedMembers, VersionHeader,
    };
}
pub use bowline_core::input::{
    Digest, InputKind, KeyReused, MissingCapability, RawInputRequest, request_digest,
};
pub use bowline_core::json::Params;
pub use bowline_core::{Notification, Outcome};
use bowline_types::{Json, RequestId};

use crate::telemetry::Telemetry;
use crate::{Error, Result};

/// A boxed, `Send` future.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A connection over which requests are sent.
///
/// # Examples
///
/// A channel that wraps another one and prints every method:
///
/// ```
/// use bowline::exchange::{CallOptions, Channel, Exchange, Request};
///
/// struct Printed<C>(C);
///
/// impl<C: Channel> Channel for Printed<C> {
///     fn open(&self, request: Request, options: CallOptions) -> Exchange {
///         println!("{}", request.method);
///         self.0.open(request, options)
///     }
/// }
/// ```
pub trait Channel: Send + Sync + 'static {
    /// Starts one exchange. Dropping it cancels the request.
    fn open(&self, request: Request, options: CallOptions) -> Exchange;
}

/// A handler of all requests of a server, or of a client.
///
/// An async function of a request and its context is a responder that requires no scopes, has nothing to check and
/// ignores notifications. A responder that wraps another one implements the trait: no method has a default
/// implementation, so that it cannot forget to forward one.
///
/// # Cancel safety
///
/// The future that `respond` returns is dropped when the request is cancelled, at any `.await`.
///
/// # Examples
///
/// ```
/// use bowline::exchange::{Outcome, Request};
/// use bowline::{Client, Context, Json};
///
/// /// Answers every request with an empty result.
/// async fn empty(_: Request, _: Context) -> Outcome {
///     Ok(Json::empty_object())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> bowline::Result<()> {
/// let client = Client::in_process(&empty).protocol_version("2026-07-28").await?;
/// client.request_raw("com.example/anything", ()).await?;
/// # Ok(()) }
/// ```
pub trait Responder: Send + Sync + 'static {
    /// Answers one request. The future is dropped if the request is cancelled.
    fn respond<'a>(&'a self, request: Request, cx: Context) -> BoxFuture<'a, Outcome>;

    /// Returns the scopes that a request requires of its principal, as far as they are known before it is handled.
    /// Legacy HTTP calls this first, because it sends the status line before the handler runs.
    fn required_scopes(&self, method: &str, params: Option<&Params>) -> Vec<String>;

    /// Checks the configuration before the first request.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] if the configuration is invalid.
    fn check(&self) -> Result<()>;

    /// Called for each notification of a client, except those that the transport handles: `notifications/cancelled`,
    /// `notifications/initialized` and `notifications/progress`. The others are `notifications/roots/list_changed`, which
    /// exists in the legacy era only, and custom ones.
    ///
    /// Runs on the task that reads the wire, so it must not block.
    fn notified(&self, notification: &Notification, cx: &NotifiedContext);

    /// Returns the OpenTelemetry that spans and metrics of the requests are recorded with, if any. A responder that
    /// wraps another one returns that of the inner one.
    fn telemetry(&self) -> Option<&Telemetry>;

    /// Returns the number of calls in progress that outlive their request, such as those that wait until the client
    /// retries with an answer. A server that drains stays open for them, within its grace period.
    fn open_calls(&self) -> usize;
}

impl<F, R> Responder for F
where
    F: Fn(Request, Context) -> R + Send + Sync + 'static,
    R: Future<Output = Outcome> + Send + 'static,
{
    fn respond<'a>(&'a self, request: Request, cx: Context) -> BoxFuture<'a, Outcome> {
        Box::pin(self(request, cx))
    }

    fn required_scopes(&self, _: &str, _: Option<&Params>) -> Vec<String> {
        Vec::new()
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn notified(&self, _: &Notification, _: &NotifiedContext) {}

    fn telemetry(&self) -> Option<&Telemetry> {
        None
    }

    fn open_calls(&self) -> usize {
        0
    }
}

/// The way a handler is stopped when its request is cancelled.
///
/// # Examples
///
/// ```
/// use bowline::{CancelMode, Context, Tool};
///
/// async fn commit(cx: Context) -> &'static str {
///     // Runs to completion even if the request is cancelled.
///     if cx.is_cancelled() { "too late to stop" } else { "done" }
/// }
///
/// let tool = Tool::new("commit", commit).cancel_mode(CancelMode::Signal);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "a handler is dropped or it is not")]
pub enum CancelMode {
    /// The handler's future is dropped at its next `.await`.
    #[default]
    Drop,
    /// [`Context::cancelled`] resolves and the handler runs on. Its answer and notifications are discarded.
    Signal,
}

/// A request in progress: yields its notifications, then its answer.
///
/// # Cancel safety
///
/// Dropping it cancels the request.
///
/// # Examples
///
/// ```
/// # use bowline::exchange::{CallOptions, Channel, Request};
/// # async fn example(channel: impl Channel, request: Request) -> bowline::Result<()> {
/// use bowline::exchange::ExchangeEvent;
///
/// let mut exchange = channel.open(request, CallOptions::default());
/// let answer = loop {
///     match exchange.next_event().await {
///         ExchangeEvent::Notification(notification) => println!("{}", notification.method),
///         ExchangeEvent::Answered(answer) => break answer?,
///     }
/// };
/// # Ok(()) }
/// ```
#[must_use = "dropping an exchange cancels its request"]
pub struct Exchange {
    inner: Box<dyn PollExchange>,
}

/// An item that an [`Exchange`] yields.
#[derive(Debug)]
#[allow(
    clippy::exhaustive_enums,
    reason = "an exchange yields a notification or ends"
)]
pub enum ExchangeEvent {
    /// A notification that belongs to the request.
    Notification(Notification),
    /// The answer. It is the last item.
    Answered(Result<Answer>),
}

/// The successful answer to a request, independent of the protocol version.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a caller must handle every kind of answer"
)]
pub enum Answer {
    /// The result type of the method.
    Complete(Json),
    /// An `InputRequiredResult`: the server needs input from the client first.
    InputRequired(Json),
    /// A result whose `resultType` the core specification does not define. A [`Client`](crate::Client) accepts it if one
    /// of its [extensions](crate::client::ClientExtension) defines it for the method; other callers must check that.
    Extension {
        /// The `resultType`.
        result_type: String,
        /// The whole result.
        result: Json,
    },
}

/// The implementation of an [`Exchange`]: a call over a wire, an HTTP response, or a handler in process.
///
/// Dropping it before it was answered must cancel the request.
pub trait PollExchange: Send {
    /// Polls for the next event. Not polled again after [`ExchangeEvent::Answered`].
    fn poll_event(&mut self, cx: &mut task::Context<'_>) -> Poll<ExchangeEvent>;

    /// Returns the id of the request, or `None` if it failed before it was assigned one.
    fn request_id(&self) -> Option<&RequestId>;

    /// Returns how long the timeouts were paused: while the user signed in, or the host of this client answered a
    /// request of the server. A call with several rounds adds this to its own timeout.
    fn paused(&self) -> Duration;

    /// Cancels the request and sends the reason to the peer.
    fn cancel(self: Box<Self>, reason: String);
}

impl Exchange {
    /// Creates an exchange from its implementation.
    pub fn new(inner: impl PollExchange + 'static) -> Self {
        Self {
            inner: Box::new(inner),
        }
    }

    /// Creates an exchange that yields `error`.
    pub fn failed(error: Error) -> Self {
        Self::new(ReadyExchange(Some(Err(error))))
    }

    /// Creates an exchange that yields `result` as its complete answer.
    pub fn answered(result: Json) -> Self {
        Self::new(ReadyExchange(Some(Ok(Answer::Complete(result)))))
    }

    /// Returns the id of the request, or `None` if it failed before it was assigned one.
    #[must_use]
    pub fn request_id(&self) -> Option<&RequestId> {
        self.inner.request_id()
    }

    /// Returns how long the timeouts were paused: while the user signed in, or the host of this client answered a
    /// request of the server.
    #[must_use]
    pub fn paused(&self) -> Duration {
        self.inner.paused()
    }

    /// Waits for the next event. Must not be called again after [`ExchangeEvent::Answered`].
    ///
    /// # Cancel safety
    ///
    /// Safe: an event is consumed only when it is returned.
    pub async fn next_event(&mut self) -> ExchangeEvent {
        poll_fn(|cx| self.poll_event(cx)).await
    }

    /// Polls for the next event.
    pub fn poll_event(&mut self, cx: &mut task::Context<'_>) -> Poll<ExchangeEvent> {
        self.inner.poll_event(cx)
    }

    /// Waits for the answer and discards notifications.
    ///
    /// # Errors
    ///
    /// The error of the exchange.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request.
    pub async fn answer(mut self) -> Result<Answer> {
        loop {
            if let ExchangeEvent::Answered(answer) = self.next_event().await {
                return answer;
            }
        }
    }

    /// Cancels the request and sends the reason to the peer.
    pub fn cancel(self, reason: impl Into<String>) {
        self.inner.cancel(reason.into());
    }
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange")
            .field("request_id", &self.request_id())
            .finish_non_exhaustive()
    }
}

impl Answer {
    /// Converts an unsealed outcome; a JSON-RPC error becomes [`Error::Rpc`].
    pub(crate) fn from_unsealed(
        unsealed: Result<Unsealed, bowline_core::era::ResultViolation>,
    ) -> Result<Self> {
        match unsealed {
            Ok(Unsealed::Complete(result)) => Ok(Self::Complete(result)),
            Ok(Unsealed::InputRequired(result)) => Ok(Self::InputRequired(result)),
            Ok(Unsealed::Extension {
                result_type,
                result,
            }) => Ok(Self::Extension {
                result_type,
                result,
            }),
            Ok(Unsealed::Failed(error)) => Err(Error::Rpc(error)),
            Err(violation) => Err(Error::protocol(violation.to_string())),
        }
    }
}

/// An exchange whose answer is already known.
struct ReadyExchange(Option<Result<Answer>>);

impl PollExchange for ReadyExchange {
    fn poll_event(&mut self, _: &mut task::Context<'_>) -> Poll<ExchangeEvent> {
        Poll::Ready(ExchangeEvent::Answered(
            self.0.take().unwrap_or(Err(Error::Closed)),
        ))
    }

    fn request_id(&self) -> Option<&RequestId> {
        None
    }

    fn paused(&self) -> Duration {
        Duration::ZERO
    }

    fn cancel(self: Box<Self>, _: String) {}
}

/// How long the end of a connection waits until the server has answered what cancels work: posted cancels, and detached
/// requests of a client.
pub(crate) const CANCEL_TIME: Duration = Duration::from_secs(4);
