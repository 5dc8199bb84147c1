//! [`InProcess`], the in-process transport: a channel that calls a responder directly.
//!
//! There is no framing, and the handler runs inside the caller's future and is dropped with it. A task is spawned only
//! for an abandoned handler with [`CancelMode::Signal`], which runs on. Request ids follow the same rules as on a wire.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll, Waker};
use std::time::Duration;

use bowline_core::Notification;
use bowline_core::era::{Dialect, InputMechanism, Request, RequestConverter, Seal, seal, unseal};
use bowline_types::{Json, Method, PingRequest, RequestId, SetLevelRequest};

use super::back_channel::{BackChannel, OpenRequests};
use super::connection_state::ConnectionGuard;
use super::local_exchange::{ExchangeWork, LocalExchange};
use super::notification_queue::{NotificationQueue, OverflowPolicy};
use super::request_ids::RequestIds;
use super::run_handler::{RunningHandler, run_handler};
use super::{
    Answer, CallOptions, CancelMode, Channel, ConnectionState, Context, Exchange, NotificationSink,
    Responder,
};
use crate::telemetry::TransportKind;
use crate::{Error, Result};

/// A channel to a responder in the same process.
///
/// # Examples
///
/// ```
/// # use bowline::exchange::{CallOptions, Request};
/// # async fn example(server: bowline::Server, request: Request) -> bowline::Result<()> {
/// use std::sync::Arc;
/// use bowline::exchange::{Channel, InProcess};
///
/// let channel = InProcess::new(Arc::new(server));
/// let answer = channel.open(request, CallOptions::default()).answer().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct InProcess {
    responder: Arc<dyn Responder>,
    back_channel: Option<Arc<dyn Channel>>,
    ids: RequestIds,
    connection: Arc<ConnectionGuard>,
    converter: Arc<RequestConverter>,
}

impl InProcess {
    /// Creates a channel to `responder`.
    #[must_use]
    pub fn new(responder: Arc<dyn Responder>) -> Self {
        Self {
            responder,
            back_channel: None,
            ids: RequestIds::default(),
            connection: Arc::default(),
            converter: Arc::default(),
        }
    }

    /// Sets the channel for server-to-client requests. It is used in the legacy era, which has such requests.
    #[must_use]
    pub fn with_back_channel(mut self, back_channel: Arc<dyn Channel>) -> Self {
        self.back_channel = Some(back_channel);
        self
    }

    /// Returns the number of requests in progress.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.ids.in_use()
    }
}

impl Channel for InProcess {
    fn open(&self, request: Request, options: CallOptions) -> Exchange {
        if is_answered_by_admission(&request) {
            return Exchange::answered(Json::empty_object());
        }
        let request = self.converter.convert(request);
        let reservation = match self.ids.reserve(options.id.clone()) {
            Ok(reservation) => reservation,
            Err(refused) => return Exchange::failed(Error::misuse(refused.to_string())),
        };
        let notifications = Arc::new(NotificationQueue::default());
        let overflow_policy = OverflowPolicy::of(&request.method);
        let has_server_requests = request.caller.dialect.input_mechanism == InputMechanism::Request;
        let back_channel = self.back_channel.as_ref().filter(|_| has_server_requests);
        let back_channel =
            back_channel.map(|channel| BackChannel::new(channel.clone(), reservation.id().clone()));
        let open_requests = back_channel.as_ref().map(BackChannel::open_requests);
        let sink = Arc::new(InProcessSink {
            notifications: notifications.clone(),
            back_channel: back_channel.map(|it| Arc::new(it) as _),
            connection_state: self.connection.0.clone(),
            within: options.within.clone(),
        });
        let cx = Context::new(reservation.id().clone(), &request, sink);
        let work = HandlerWork {
            method: request.method.clone(),
            dialect: request.caller.dialect,
            running: run_handler(self.responder.clone(), request, cx),
            open_requests,
        };
        Exchange::new(LocalExchange::new(
            work,
            notifications,
            reservation,
            overflow_policy,
            &options,
        ))
    }
}

impl std::fmt::Debug for InProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InProcess")
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}

/// A handler that runs inside the caller's future.
struct HandlerWork {
    method: Cow<'static, str>,
    dialect: &'static Dialect,
    running: RunningHandler,
    /// `None` if the server cannot send requests to this client.
    open_requests: Option<OpenRequests>,
}

impl ExchangeWork for HandlerWork {
    fn poll_answer(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<Answer>> {
        let outcome = task::ready!(Pin::new(&mut self.running).poll(cx));
        let was_ok = outcome.is_ok();
        let form = Seal::new(self.dialect, self.method.clone());
        let (outcome, dialect) = match outcome {
            // Modern results stay in the internal form.
            Ok(result) if self.dialect.is_modern() => (Ok(result), Dialect::LATEST),
            // Older ones lose what their version does not define, and errors take its code, as on a wire.
            other => (seal(&form, &Json::empty_object(), other), self.dialect),
        };
        let control = self.running.control();
        match outcome.is_ok() == was_ok {
            true => control.answer_sent(),
            // The version of the caller does not allow the result.
            false => control.answer_discarded(),
        }
        let unsealed = unseal(&self.method, dialect, outcome);
        Poll::Ready(Answer::from_unsealed(unsealed))
    }

    fn is_paused(&self, waker: &Waker) -> bool {
        self.open_requests
            .as_ref()
            .is_some_and(|open| open.has_open(waker))
    }

    fn paused(&self) -> Duration {
        let open_requests = self.open_requests.as_ref();
        open_requests.map_or(Duration::ZERO, OpenRequests::paused)
    }

    /// Stops the handler, or spawns it with its output discarded if its mode is [`CancelMode::Signal`].
    fn abandon(self) {
        let Self { running, .. } = self;
        if running.control().cancel_mode() == CancelMode::Signal
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            running.control().cancel();
            runtime.spawn(running);
        }
    }

    fn cancel(self, reason: String) {
        self.running.control().cancel_with_reason(reason);
        self.abandon();
    }
}

/// The [`NotificationSink`] of an in-process handler.
struct InProcessSink {
    notifications: Arc<NotificationQueue>,
    back_channel: Option<Arc<dyn Channel>>,
    connection_state: ConnectionState,
    within: Option<RequestId>,
}

impl NotificationSink for InProcessSink {
    fn notify(&self, notification: Notification) {
        self.notifications.push(notification);
    }

    fn back_channel(&self) -> Option<Arc<dyn Channel>> {
        self.back_channel.clone()
    }

    fn connection_state(&self) -> Option<&ConnectionState> {
        Some(&self.connection_state)
    }

    fn within(&self) -> Option<&RequestId> {
        self.within.as_ref()
    }

    fn transport(&self) -> TransportKind {
        TransportKind::InProcess
    }
}

/// Returns whether `DuplexAdmission` answers this request on a wire (`ping`, `logging/setLevel`), not the responder.
fn is_answered_by_admission(request: &Request) -> bool {
    let answers = [PingRequest::NAME, SetLevelRequest::NAME];
    answers.contains(&&*request.method) && request.caller.dialect.knows_request(&request.method)
}
