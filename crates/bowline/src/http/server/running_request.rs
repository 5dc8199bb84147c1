//! Answers a request whose handler runs inside the response future, and then inside the response body.
//!
//! ```text
//! RunningRequest ── outcome first ─────────────────────▶ JSON, with the matching HTTP status
//!     │
//!     └── a notification · a progress token ·
//!         `stream_after` elapsed ──▶ SSE: events and keep-alives until the outcome
//! ```
//!
//! Dropping the response future or the response body drops the handler.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll, Wake, Waker};

use ::http::request::Parts;
use ::http::{Response, StatusCode};
use bowline_core::drain;
use bowline_core::era::{Dialect, Request, Seal, convert_notification, seal};
use bowline_core::http::admission::HttpRejection;
use bowline_core::http::media::AcceptedTypes;
use bowline_core::http::status::{HeadState, needs_bad_request, of_outcome};
use bowline_core::sse::{self, encode_message};
use bowline_core::{self as core, Notification, Outcome};
use bowline_types::{
    CallToolRequest, CallToolResult, ErrorCode, Json, Method, RequestId, RpcError,
};
use bytes::Bytes;
use tokio::time::Sleep;

use super::body::{self, EventSource, HttpBody, charge_output, with_charge};
use super::{KeepAlive, ServiceState};
use crate::exchange::{
    BoxFuture, CancelMode, Channel, ConnectionState, Context, HandlerControl, InsufficientScope,
    NotificationQueue, NotificationSink, Principal, QueuePoll, RESPONSE_CLOSED, RunningHandler,
    run_handler,
};
use crate::limits::{Account, Charge};
use crate::signal::{Signal, SignalRaised};
use crate::telemetry::TransportKind;

/// A request and its running handler.
pub(crate) struct RunningRequest {
    id: RequestId,
    form: Seal,
    state: Arc<ServiceState>,
    has_progress_token: bool,
    running: Option<RunningHandler>,
    /// `None` once the outcome was handed to the connection, or replaced by an error.
    unsent: Option<HandlerControl>,
    sink: Arc<ResponseSink>,
    outcome: Option<Outcome>,
    /// Waits until a drain begins. Created when the handler is first pending.
    draining: Option<SignalRaised<Arc<Signal>>>,
    /// Waits until a drain refuses new requests, signals it to the handler, then waits for the end of the grace period.
    /// Created when a drain has begun, because few requests see one.
    grace: Option<BoxFuture<'static, ()>>,
    /// Created when the response becomes a stream.
    keep_alive: Option<KeepAlive>,
    /// The charge for the request's memory, held until its handler has ended.
    charge: Option<Charge>,
}

/// The future of a response that may still become JSON or an SSE stream.
///
/// # Cancel safety
///
/// Dropping it, or the body of the response, drops the handler.
#[must_use = "dropping it drops the handler"]
pub(crate) struct PendingResponse {
    /// `None` once the response was returned.
    request: Option<RunningRequest>,
    accepts: AcceptedTypes,
    /// `stream_after`: when the response becomes a stream. Created when the handler is first pending.
    delay: Option<Pin<Box<Sleep>>>,
}

/// The next part of a response.
enum ResponseStep {
    Notification(Notification),
    /// A keep-alive is due.
    KeepAliveDue,
    Outcome(Outcome),
}

impl RunningRequest {
    pub(crate) fn new(
        state: &Arc<ServiceState>,
        id: RequestId,
        request: Request,
        form: Seal,
        head: Arc<Parts>,
        charge: Charge,
    ) -> Self {
        let sink = Arc::new(ResponseSink {
            notifications: NotificationQueue::default(),
            dialect: request.caller.dialect,
        });
        let principal = head.extensions.get::<Principal>().cloned();
        let mut cx = Context::new(id.clone(), &request, sink.clone())
            .with_principal(principal.unwrap_or_default());
        cx.extensions_mut().insert_shared(head);
        let unsent = Some(cx.control());
        Self {
            id,
            form,
            state: state.clone(),
            has_progress_token: request.progress_token.is_some(),
            running: Some(run_handler(state.responder.clone(), request, cx)),
            unsent,
            sink,
            outcome: None,
            draining: None,
            grace: None,
            keep_alive: None,
            charge: Some(charge),
        }
    }

    /// Returns the future of the response.
    pub(crate) fn respond(self, accepts: AcceptedTypes) -> PendingResponse {
        PendingResponse {
            request: Some(self),
            accepts,
            delay: None,
        }
    }

    /// Builds the response. `first` is the handler's first step, or `None` if `stream_after` elapsed before.
    fn begin(mut self, first: Option<ResponseStep>, accepts: AcceptedTypes) -> Response<HttpBody> {
        match first {
            Some(ResponseStep::Outcome(Err(error)))
                if let Some(missing) = InsufficientScope::of_this_server(&error) =>
            {
                body::insufficient_scope(self.id.clone(), missing)
            }
            Some(ResponseStep::Outcome(Err(error))) if drain::retry_after(&error).is_some() => {
                // The drain began after the request was admitted, or that of a server behind this one.
                body::rejection(HttpRejection::overloaded(error).with_id(self.id.clone()))
            }
            Some(ResponseStep::Outcome(outcome)) if accepts.json || outcome.is_err() => {
                let (outcome, charge) = self.finish(outcome);
                let status = if self.form.dialect.is_modern() {
                    of_outcome(&outcome, HeadState::Uncommitted)
                } else {
                    StatusCode::OK
                };
                body::answer(status, self.id.clone(), (outcome, charge))
            }
            first => {
                match first {
                    Some(ResponseStep::Notification(notification)) => {
                        self.sink.notifications.push_front(notification)
                    }
                    Some(ResponseStep::Outcome(outcome)) => self.outcome = Some(outcome),
                    Some(ResponseStep::KeepAliveDue) | None => {}
                }
                self.keep_alive = Some(KeepAlive::new(self.state.keep_alive));
                // The keep-alive timer is not armed yet: mark the queue as not waited for, so that the next poll
                // reaches `poll_sources`, which arms it.
                self.sink.notifications.begin_poll();
                body::stream(EventStream {
                    request: Some(self),
                })
            }
        }
    }

    /// Returns the next step. Polls the handler only when nothing is [queued](Self::next_queued).
    fn poll_step(&mut self, cx: &mut task::Context<'_>) -> Poll<ResponseStep> {
        match self.sink.notifications.poll_queue(cx.waker()) {
            QueuePoll::Notification(notification) => {
                return Poll::Ready(ResponseStep::Notification(notification));
            }
            _ if let Some(outcome) = self.outcome.take() => {
                return Poll::Ready(ResponseStep::Outcome(outcome));
            }
            // hyper polls the body far more often than the handler was woken: skip the handler then.
            QueuePoll::Idle => return Poll::Pending,
            QueuePoll::MustPoll => {}
        }
        let is_keep_alive_due = self.poll_sources().is_ready();
        if let Some(notification) = self.sink.notifications.next_or_register(cx.waker()) {
            return Poll::Ready(ResponseStep::Notification(notification));
        }
        if let Some(outcome) = self.outcome.take() {
            return Poll::Ready(ResponseStep::Outcome(outcome));
        }
        if is_keep_alive_due {
            return Poll::Ready(ResponseStep::KeepAliveDue);
        }
        Poll::Pending
    }

    /// Polls the handler, the shutdown and the keep-alive timer. Ready if a keep-alive is due.
    ///
    /// Their waker is the notification queue, so that `poll_step` skips them until one of them was woken.
    fn poll_sources(&mut self) -> Poll<()> {
        let waker = Waker::from(self.sink.clone());
        let cx = &mut task::Context::from_waker(&waker);
        if let Some(running) = &mut self.running {
            if let Poll::Ready(outcome) = Pin::new(running).poll(cx) {
                self.running = None;
                self.outcome = Some(outcome);
            } else if self.poll_shutdown(cx).is_ready() {
                self.state.shutdown.count_cancelled(1);
                self.stop("shutting down");
                let error = RpcError::new(ErrorCode::INTERNAL_ERROR, "shutting down");
                self.outcome = Some(Err(error));
            }
        }
        match &mut self.keep_alive {
            Some(keep_alive) if !keep_alive.is_running() => keep_alive.poll(cx),
            _ => Poll::Pending,
        }
    }

    /// Returns a step that is ready without polling the handler: its notifications first, then its outcome.
    fn next_queued(&mut self) -> Option<ResponseStep> {
        let queued = self.sink.notifications.next();
        queued
            .map(ResponseStep::Notification)
            .or_else(|| self.outcome.take().map(ResponseStep::Outcome))
    }

    /// Ready when the grace period of a drain is over.
    fn poll_shutdown(&mut self, cx: &mut task::Context<'_>) -> Poll<()> {
        let (shutdown, running) = (&self.state.shutdown, &self.running);
        let draining = self.draining.get_or_insert_with(|| shutdown.begun());
        task::ready!(Pin::new(draining).poll(cx));
        let grace = self.grace.get_or_insert_with(|| {
            let control = running.as_ref().map(|running| running.control().clone());
            let shutdown = shutdown.clone();
            Box::pin(async move {
                shutdown.refusing().await;
                control.iter().for_each(HandlerControl::shut_down);
                shutdown.closed().await;
            })
        });
        grace.as_mut().poll(cx)
    }

    /// Returns the account that the response is charged to.
    fn account(&self) -> &Arc<Account> {
        match &self.charge {
            Some(charge) => charge.account(),
            None => &self.state.account,
        }
    }

    /// Seals the outcome in the caller's dialect and charges it. The connection gets it next.
    fn finish(&mut self, outcome: Outcome) -> (Outcome, Option<Charge>) {
        let was_ok = outcome.is_ok();
        let sealed = seal(&self.form, &self.state.identity, outcome);
        let (outcome, charge) = charge_output(self.account(), sealed);
        // A result may have been replaced by an error: the revision or a limit does not allow it.
        if outcome.is_ok() == was_ok {
            self.unsent
                .take()
                .iter()
                .for_each(HandlerControl::answer_sent);
        }
        (outcome, charge)
    }

    /// Converts an error that needs HTTP status 400, because the head was sent with 200: for `tools/call` into a result
    /// with `isError`, otherwise into an internal error.
    fn convert_after_head(&self, outcome: Outcome) -> Outcome {
        match outcome {
            Err(error) if self.form.dialect.is_modern() && needs_bad_request(error.code) => {
                let internal = |message| RpcError::new(ErrorCode::INTERNAL_ERROR, message);
                if self.form.method != CallToolRequest::NAME {
                    return Err(internal(error.message));
                }
                let result = CallToolResult::error(error.message);
                Json::encode(&result).map_err(|error| internal(error.to_string()))
            }
            outcome => outcome,
        }
    }

    /// Drops the handler; with `CancelMode::Signal`, signals it and lets it finish in a task instead.
    fn stop(&mut self, reason: &str) {
        self.sink.notifications.close();
        let Some(running) = self.running.take() else {
            return;
        };
        // Cancels before it reads the mode; see `Context::set_cancel_mode`.
        running.control().cancel_with_reason(reason);
        if running.control().cancel_mode() == CancelMode::Signal {
            self.spawn_rest(async move { drop(running.await) });
        }
    }

    /// Handles the disconnect of the client.
    fn on_disconnect(&mut self) {
        if self.form.dialect.http.disconnect_cancels {
            return self.stop(RESPONSE_CLOSED);
        }
        self.sink.notifications.close();
        // A disconnect does not cancel in the legacy era: a handler that was polled may run on, up to the limit.
        let has_begun = self.draining.is_some();
        let orphan_timeout = self.state.legacy.call_orphan_timeout();
        if let Some(running) = self.running.take().filter(|_| has_begun) {
            self.spawn_rest(
                async move { drop(tokio::time::timeout(orphan_timeout, running).await) },
            );
        }
    }

    /// Runs the rest of the handler in a task, which keeps the request charged.
    fn spawn_rest(&mut self, rest: impl Future<Output = ()> + Send + 'static) {
        let charge = self.charge.take();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                rest.await;
                drop(charge);
            });
        }
    }
}

impl Drop for RunningRequest {
    fn drop(&mut self) {
        self.on_disconnect();
        let unsent = self.unsent.take();
        unsent.iter().for_each(HandlerControl::answer_discarded);
    }
}

impl Future for PendingResponse {
    type Output = Response<HttpBody>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        let first = task::ready!(self.poll_first(cx));
        let accepts = self.accepts;
        match self.request.take() {
            Some(request) => Poll::Ready(request.begin(first, accepts)),
            None => Poll::Pending,
        }
    }
}

impl PendingResponse {
    /// Returns the handler's first step; `None` if the response should become a stream before that.
    fn poll_first(&mut self, cx: &mut task::Context<'_>) -> Poll<Option<ResponseStep>> {
        let Some(request) = &mut self.request else {
            return Poll::Pending;
        };
        loop {
            match request.poll_step(cx) {
                // A client that does not accept SSE gets the outcome only.
                Poll::Ready(ResponseStep::Notification(_)) if !self.accepts.events => {}
                Poll::Ready(step) => return Poll::Ready(Some(step)),
                Poll::Pending => break,
            }
        }
        if !self.accepts.events {
            return Poll::Pending;
        }
        if request.has_progress_token {
            return Poll::Ready(None);
        }
        let after = request.state.stream_after;
        let delay = self
            .delay
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(after)));
        delay.as_mut().poll(cx).map(|()| None)
    }
}

/// The SSE stream of a response whose head was sent.
struct EventStream {
    /// `None` once the outcome was sent.
    request: Option<RunningRequest>,
}

impl EventSource for EventStream {
    fn poll_next(&mut self, cx: &mut task::Context<'_>) -> Poll<Option<Bytes>> {
        let Some(request) = &mut self.request else {
            return Poll::Ready(None);
        };
        let mut out = Vec::new();
        let (mut is_over, mut charge) = (false, None);
        while out.len() < CHUNK_TARGET && !is_over {
            let step = if out.is_empty() {
                request.poll_step(cx)
            } else {
                // hyper polls again for the next chunk, and that polls the handler.
                request.next_queued().map_or(Poll::Pending, Poll::Ready)
            };
            let Poll::Ready(step) = step else {
                break;
            };
            match step {
                ResponseStep::Notification(notification) => {
                    encode_message(&notification.into(), &mut out)
                }
                ResponseStep::KeepAliveDue => out.extend_from_slice(sse::KEEP_ALIVE),
                ResponseStep::Outcome(outcome) => {
                    is_over = true;
                    let converted = request.convert_after_head(outcome);
                    let outcome;
                    (outcome, charge) = request.finish(converted);
                    let answer = core::Response {
                        id: Some(request.id.clone()),
                        outcome,
                    };
                    encode_message(&answer.into(), &mut out);
                }
            }
        }
        if out.is_empty() {
            return Poll::Pending;
        }
        request
            .keep_alive
            .iter_mut()
            .for_each(KeepAlive::record_activity);
        if is_over {
            self.request = None;
        }
        Poll::Ready(Some(with_charge(out.into(), charge)))
    }
}

/// The notification sink of the handler, and the waker of its future: both wake the response.
struct ResponseSink {
    notifications: NotificationQueue,
    dialect: &'static Dialect,
}

impl NotificationSink for ResponseSink {
    fn notify(&self, notification: Notification) {
        if let Some(notification) = convert_notification(self.dialect, notification) {
            self.notifications.push(notification);
        }
    }

    fn back_channel(&self) -> Option<Arc<dyn Channel>> {
        None
    }

    fn connection_state(&self) -> Option<&ConnectionState> {
        None
    }

    fn transport(&self) -> TransportKind {
        TransportKind::Http
    }
}

impl Wake for ResponseSink {
    fn wake(self: Arc<Self>) {
        self.notifications.wake();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.notifications.wake();
    }
}

/// The size of a chunk from which on no further events are added to it.
const CHUNK_TARGET: usize = 16 * 1024;
