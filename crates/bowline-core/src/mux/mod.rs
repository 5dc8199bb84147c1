//! The engine: a state machine for the exchanges over one duplex wire, without I/O.
//!
//! The [`Mux`] assigns ids to our calls and matches their responses, tracks the peer's requests until their responses
//! are sent, and handles timeouts and cancellation. The driver of `bowline` feeds it and executes its output.
//!
//! ```text
//!   call · notify · abandon · respond          handle_message · handle_timeout · handle_end
//!   (commands from the application)            (input from outside)
//!                  │                                        │
//!                  ▼                                        ▼
//!              ┌───────────────────────── Mux ─────────────────────────┐
//!              │  pending: our calls      in_flight: the peer's        │
//!              └───────────────────────────────────────────────────────┘
//!                  │                        │                    │
//!                  ▼                        ▼                    ▼
//!            poll_transmit             poll_event          poll_timeout
//! ```
//!
//! Plain verbs are commands, `handle_*` methods take input, `poll_*` methods return output. The engine decodes only
//! what refers to its tables: `notifications/cancelled`, `notifications/progress` and the subscription id in `_meta`.

mod deadlines;

mod in_flight;
pub use in_flight::InFlightId;

mod outbox;
use outbox::Outbox;

mod pending;
pub use pending::{CallId, CallOptions};

mod references;

mod reasons;
pub use reasons::{AbandonReason, CallTimeout};

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_types::{ErrorCode, Json, RequestId, RpcError};

use crate::json::Params;
use crate::message::{Malformed, Message, Notification, Outcome, RawRequest, Response};
use crate::shortened;
use in_flight::InFlightRequests;
use pending::{Arrival, PendingCalls};
use references::{CancelledParams, Reference};

/// The state machine for the exchanges over one duplex wire.
///
/// # Examples
///
/// Two engines, connected without a wire:
///
/// ```
/// use std::time::Instant;
/// use bowline_core::mux::{CallOptions, Mux, MuxEvent};
/// use bowline_types::Json;
///
/// let now = Instant::now();
/// let (mut client, mut server) = (Mux::default(), Mux::default());
///
/// let call = client.call(now, "ping", None, CallOptions::default())?;
/// let request = client.poll_transmit().expect("the request is queued");
/// server.handle_message(now, request);
/// let Some(MuxEvent::Request { id, .. }) = server.poll_event() else { panic!("a request arrived") };
/// server.respond(&id, Ok(Json::empty_object()));
/// client.handle_message(now, server.poll_transmit().expect("the response is queued"));
///
/// assert!(matches!(client.poll_event(), Some(MuxEvent::Settled { call: done, .. }) if done == call));
/// # Ok::<(), bowline_core::mux::CallRefused>(())
/// ```
#[derive(Debug)]
pub struct Mux {
    limits: MuxLimits,
    pending: PendingCalls,
    in_flight: InFlightRequests,
    outbox: Outbox,
    events: VecDeque<MuxEvent>,
    /// How the wire ended, if it has.
    ended: Option<WireEnd>,
}

/// The limits of a [`Mux`].
#[derive(Clone, Copy, Debug)]
#[allow(
    clippy::exhaustive_structs,
    reason = "callers set some fields and take the others from `Default`"
)]
pub struct MuxLimits {
    /// The maximum number of unanswered requests of the peer; further ones are rejected.
    pub in_flight: usize,
    /// The number of queued messages from which on new calls and notifications are rejected. Responses and cancels are
    /// still queued: the number of requests bounds them.
    pub queued: usize,
    /// The number of queued bytes from which on new calls, notifications and requests of the peer are rejected, and
    /// responses are replaced by an overload error. Once as many more are queued, [`Mux::is_choked`] returns true.
    pub queued_bytes: usize,
}

impl Default for MuxLimits {
    fn default() -> Self {
        Self {
            in_flight: 4096,
            queued: 16_384,
            queued_bytes: 4 * 1024 * 1024,
        }
    }
}

/// An event the driver must act on; returned by [`Mux::poll_event`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MuxEvent {
    /// A request of the peer. Answer it with one [`Mux::respond`].
    Request {
        /// The id to respond with.
        id: InFlightId,
        /// The method.
        method: Cow<'static, str>,
        /// The params.
        params: Option<Params>,
        /// On a client, the request of ours that the peer sent it for, if that is known; see
        /// [`Mux::handle_message_within`].
        within: Option<RequestId>,
    },
    /// The peer cancelled its request, or the wire ended. Stop its handler.
    Cancelled {
        /// The request.
        id: InFlightId,
        /// The peer's reason.
        reason: Option<String>,
    },
    /// A notification that belongs to no call.
    Notification(Notification),
    /// A notification that belongs to a call: progress, a notification of a subscription, or a log message.
    CallNotification {
        /// The call.
        call: CallId,
        /// The notification.
        notification: Notification,
    },
    /// A call of ours ended.
    Settled {
        /// The call.
        call: CallId,
        /// Its result, or the reason it failed.
        outcome: Result<Json, CallFailure>,
    },
    /// Unexpected behaviour of the peer that affects no exchange, for the log.
    Warning(ProtocolWarning),
}

/// The reason a call of ours failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallFailure {
    /// The peer responded with an error.
    Peer(RpcError),
    /// The response was malformed.
    Malformed(&'static str),
    /// A deadline passed. The call was abandoned, which cancels it at the peer unless it is opted out or was not sent.
    Timeout(CallTimeout),
    /// The wire ended.
    Ended(WireEnd),
    /// The peer ended this subscription.
    Unsubscribed,
}

/// How a wire ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a wire is closed by one side, or it fails"
)]
pub enum WireEnd {
    /// One side closed it.
    Closed,
    /// It failed.
    Broken,
}

/// The reason a call was not started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallRefused {
    /// Another pending call has the id that the caller chose.
    #[error("the request id {0} is in use by another call")]
    IdInUse(RequestId),
    /// Another pending call has the progress token that the caller chose.
    #[error("the progress token is in use by another call")]
    ProgressTokenInUse,
    /// The queue of outgoing messages is full.
    #[error("the queue of outgoing messages is full")]
    Full,
    /// The wire ended.
    #[error("the wire is closed")]
    Ended(WireEnd),
}

/// The reason a notification was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotifyError {
    /// Its request was answered or cancelled.
    RequestOver,
    /// The queue of outgoing messages is full.
    Full,
    /// The wire ended.
    Ended,
}

/// Unexpected behaviour of the peer that is not the outcome of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolWarning {
    /// A response that matches no pending call, for example a late one.
    UnexpectedResponse(RequestId),
    /// An error without an id: the peer could not decode a message of ours.
    ErrorWithoutId(RpcError),
    /// A request with an id that is in flight; it was rejected.
    DuplicateRequest(RequestId),
    /// A request that exceeded a limit; it was answered with an error.
    Overload(RequestId, ExceededLimit),
    /// A malformed response that matches no pending call.
    MalformedResponse(&'static str),
}

/// The limit that a request of the peer exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExceededLimit {
    /// [`MuxLimits::in_flight`]
    InFlight,
    /// [`MuxLimits::queued_bytes`]
    QueuedBytes,
}

/// An outgoing message, and the requests that it refers to, for wires that send requests separately, such as legacy
/// HTTP. Other wires send the message only.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutgoingMessage {
    /// The message.
    pub message: Message,
    /// The request of the peer that it belongs to. A wire with one stream per request sends it on that stream.
    pub within: Option<InFlightId>,
    /// The request of ours that it cancels. A wire that can reorder messages must not let it overtake that request.
    pub cancels: Option<RequestId>,
}

/// A message that belongs to no request of the peer and cancels none of ours.
impl From<Message> for OutgoingMessage {
    fn from(message: Message) -> Self {
        Self::new(message, None)
    }
}

impl OutgoingMessage {
    fn new(message: impl Into<Message>, within: Option<InFlightId>) -> Self {
        Self {
            message: message.into(),
            within,
            cancels: None,
        }
    }
}

/// The sizes of the tables of a [`Mux`]; all zero when it is idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "one number per table")]
pub struct TableSizes {
    /// Pending calls of ours.
    pub pending: usize,
    /// Unanswered requests of the peer.
    pub in_flight: usize,
    /// Queued messages.
    pub queued: usize,
    /// Queued bytes, including the overhead of each entry.
    pub queued_bytes: usize,
}

impl Default for Mux {
    fn default() -> Self {
        Self::new(MuxLimits::default())
    }
}

impl Mux {
    /// Creates an engine for a new wire.
    #[must_use]
    pub fn new(limits: MuxLimits) -> Self {
        Self {
            limits,
            pending: PendingCalls::default(),
            in_flight: InFlightRequests::default(),
            outbox: Outbox::new(limits.queued_bytes),
            // Not more: there may be thousands of wires that never have two events.
            events: VecDeque::with_capacity(1),
            ended: None,
        }
    }

    /// Puts a prefix and a dot before the number of each generated request id, for a peer that other engines send
    /// requests to as well.
    pub fn set_request_id_prefix(&mut self, prefix: impl Into<Arc<str>>) {
        self.pending.set_request_id_prefix(prefix.into());
    }

    // --- commands from the application ---

    /// Starts a call. [`Mux::poll_transmit`] returns its request; [`MuxEvent::Settled`] is its end.
    ///
    /// # Errors
    ///
    /// If the id or progress token is in use, the queue is full, or the wire ended. Nothing is sent then.
    pub fn call(
        &mut self,
        now: Instant,
        method: impl Into<Cow<'static, str>>,
        params: Option<Json>,
        options: CallOptions,
    ) -> Result<CallId, CallRefused> {
        if let Some(end) = self.ended {
            return Err(CallRefused::Ended(end));
        }
        if self.is_full() {
            return Err(CallRefused::Full);
        }
        let bytes = params.as_ref().map_or(0, |params| params.as_bytes().len());
        let position = self.outbox.next_position();
        let call = self
            .pending
            .insert(now, method.into(), params, position, options)?;
        self.outbox.push_call(call, bytes);
        Ok(call)
    }

    /// Queues a notification that belongs to no request.
    ///
    /// # Errors
    ///
    /// If the notification was dropped.
    pub fn notify(&mut self, notification: Notification) -> Result<(), NotifyError> {
        self.has_room()?;
        self.outbox.push(OutgoingMessage {
            cancels: references::cancelled_request(&notification),
            ..OutgoingMessage::new(notification, None)
        });
        Ok(())
    }

    /// Queues a notification that belongs to a request of the peer.
    ///
    /// # Errors
    ///
    /// If the notification was dropped.
    pub fn notify_within(
        &mut self,
        id: &InFlightId,
        notification: Notification,
    ) -> Result<(), NotifyError> {
        if !self.in_flight.is_open(id) {
            return Err(NotifyError::RequestOver);
        }
        self.has_room()?;
        self.outbox
            .push_notification_within(id.clone(), notification);
        Ok(())
    }

    /// Abandons a call: withdraws its request if it is not sent, otherwise queues a cancel. No event follows.
    pub fn abandon(&mut self, call: CallId, reason: &AbandonReason) {
        let Some(pending) = self.pending.remove_unanswered(call) else {
            return; // settled or abandoned before
        };
        if let Some(position) = pending.position() {
            self.outbox.withdraw(position);
        } else if pending.sends_cancel_for(reason) {
            let cancel = references::cancel(pending.id(), &reason.to_string());
            let (cancels, within) = pending.into_ids();
            self.outbox.push(OutgoingMessage {
                cancels: Some(cancels),
                ..OutgoingMessage::new(cancel, within)
            });
        }
    }

    /// Answers a request of the peer. Ignored if the request was answered or cancelled.
    ///
    /// Returns whether the outcome was queued: not if it was ignored, or if the queue is full and an error is sent in
    /// its place.
    pub fn respond(&mut self, id: &InFlightId, outcome: Outcome) -> bool {
        // A cancelled request must not be answered (spec: basic/patterns/cancellation). Its entry was removed, so a
        // late response ends here.
        if !self.in_flight.answer(id, self.outbox.next_position()) {
            return false;
        }
        let request = id.request_id();
        let is_overloaded = self.outbox.is_full();
        let outcome = match is_overloaded {
            true => Err(self.overload(request.clone(), ExceededLimit::QueuedBytes)),
            false => outcome,
        };
        let response = Response {
            id: Some(request.clone()),
            outcome,
        };
        self.outbox
            .push(OutgoingMessage::new(response, Some(id.clone())));
        !is_overloaded
    }

    // --- input from outside ---

    /// Processes a message of the peer.
    ///
    /// A request or log message of a server does not name the call that it was sent for. If exactly one call is in
    /// flight, it is taken to belong to that call; pings, subscriptions and the like do not count. A call that was
    /// abandoned does not count either, although the peer may have sent the message for it.
    pub fn handle_message(&mut self, now: Instant, message: Message) {
        self.handle_arrival(now, message, Arrival::Unknown);
    }

    /// Like [`Mux::handle_message`], for a wire with a stream per request, such as legacy HTTP: the message arrived on
    /// the stream of our request with this id.
    pub fn handle_message_within(&mut self, now: Instant, within: &RequestId, message: Message) {
        self.handle_arrival(now, message, Arrival::Within(within));
    }

    fn handle_arrival(&mut self, now: Instant, message: Message, arrival: Arrival<'_>) {
        if self.ended.is_some() {
            return;
        }
        match message {
            Message::Request(request) => self.handle_request(request, arrival),
            Message::Response(response) => self.handle_response(response),
            Message::Notification(notification) => {
                self.handle_notification(now, notification, arrival);
            }
        }
    }

    /// Processes a malformed frame: rejects a request, or fails the call that a response names.
    pub fn handle_malformed(&mut self, malformed: Malformed) {
        match malformed {
            Malformed::Request { id, error } => {
                // At the peer, an error with the id of a request in flight would settle that request.
                let id = id.filter(|id| !self.in_flight.contains_request(id));
                self.refuse(id, error);
            }
            Malformed::Response { id, why } => {
                let settled = id.and_then(|id| self.pending.take_answered(&id));
                match settled {
                    Some(call) => self.settle(call, Err(CallFailure::Malformed(why))),
                    None => self
                        .events
                        .push_back(MuxEvent::Warning(ProtocolWarning::MalformedResponse(why))),
                }
            }
        }
    }

    /// Pauses the deadlines of all calls, because the peer waits for us; it is unknown which call it does that for.
    pub fn pause_all_deadlines(&mut self, now: Instant) {
        self.pending.pause_all(now);
    }

    /// Resumes the deadlines of all calls. Idle deadlines restart at `now`, and total ones continue.
    pub fn resume_all_deadlines(&mut self, now: Instant) {
        self.pending.resume_all(now);
    }

    /// Returns how long the deadlines of all calls were paused, in total.
    #[must_use]
    pub fn all_paused_for(&self, now: Instant) -> Duration {
        self.pending.paused_for(now)
    }

    /// Pauses both deadlines of a call that is delayed on our side, for example by authorization. Returns the call.
    pub fn pause_deadlines(&mut self, now: Instant, id: &RequestId) -> Option<CallId> {
        self.pending.pause_deadlines(now, id)
    }

    /// Resumes the deadlines of a call, and returns it. The time since [`Mux::pause_deadlines`] does not count.
    pub fn resume_deadlines(&mut self, now: Instant, id: &RequestId) -> Option<CallId> {
        self.pending.resume_deadlines(now, id)
    }

    /// Removes a call whose request the wire could not deliver. The peer did not receive it, so no cancel follows; the
    /// caller of this method reports the failure.
    pub fn handle_undelivered(&mut self, id: &RequestId) -> Option<CallId> {
        self.pending.take_answered(id)
    }

    /// Fails a call now if it has a deadline before `until`. The wire cannot receive its response earlier than `until`;
    /// `None` means not at all.
    pub fn handle_wait(&mut self, until: Option<Instant>, id: &RequestId) {
        if let Some((call, timeout)) = self.pending.overdue_before(until, id) {
            self.time_out(call, timeout);
        }
    }

    /// Fails the calls whose deadline has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((call, timeout)) = self.pending.next_overdue(now) {
            self.time_out(call, timeout);
        }
    }

    fn time_out(&mut self, call: CallId, timeout: CallTimeout) {
        // The cancel is queued before the caller sees the timeout.
        self.abandon(call, &AbandonReason::Timeout(timeout));
        self.settle(call, Err(CallFailure::Timeout(timeout)));
    }

    /// Processes the loss of a connection that the wire opens again: removes the calls that were sent, whose failure
    /// the caller of this method reports, and cancels all requests in flight. Requests that were not sent stay queued;
    /// other queued messages refer to the old connection and are dropped.
    pub fn handle_disconnect(&mut self) -> Vec<CallId> {
        self.outbox.retain_calls();
        for id in self.in_flight.drain() {
            self.events
                .push_back(MuxEvent::Cancelled { id, reason: None });
        }
        self.pending.drain_sent()
    }

    /// Processes the end of the wire: fails all calls and cancels all requests in flight.
    pub fn handle_end(&mut self, end: WireEnd) {
        if self.ended.is_some() {
            return;
        }
        self.ended = Some(end);
        self.outbox.clear();
        for call in self.pending.drain() {
            self.settle(call, Err(CallFailure::Ended(end)));
        }
        for id in self.in_flight.drain() {
            self.events
                .push_back(MuxEvent::Cancelled { id, reason: None });
        }
    }

    // --- output ---

    /// Returns the next message for the wire. A returned request counts as sent.
    pub fn poll_transmit(&mut self) -> Option<Message> {
        self.poll_outgoing().map(|outgoing| outgoing.message)
    }

    /// Like [`Mux::poll_transmit`], with the request that the message belongs to.
    pub fn poll_outgoing(&mut self) -> Option<OutgoingMessage> {
        let send = |call| self.pending.send(call);
        self.outbox
            .pop(send, |id| self.in_flight.remove_answered(id))
    }

    /// Returns whether [`MuxLimits::queued_bytes`] were queued after the queue had reached that limit: the peer keeps
    /// sending requests and does not even read the short overload errors. The wire should be closed then.
    #[must_use]
    pub fn is_choked(&self) -> bool {
        self.outbox.is_choked()
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<MuxEvent> {
        self.events.pop_front()
    }

    /// Returns when to call [`Mux::handle_timeout`] next. The first deadline may be later.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.pending.next_deadline()
    }

    // --- inspection ---

    /// Returns the sizes of the tables.
    #[must_use]
    pub fn sizes(&self) -> TableSizes {
        TableSizes {
            pending: self.pending.len(),
            in_flight: self.in_flight.len(),
            queued: self.outbox.len(),
            queued_bytes: self.outbox.bytes(),
        }
    }

    /// Returns the request id of a pending call.
    #[must_use]
    pub fn request_id(&self, call: CallId) -> Option<&RequestId> {
        self.pending.request_id(call)
    }

    /// Returns whether the request of a call is still queued: abandoning it now sends nothing.
    #[must_use]
    pub fn is_unsent(&self, call: CallId) -> bool {
        self.pending.is_unsent(call)
    }

    // --- the parts of `handle_message` ---

    fn handle_request(&mut self, request: RawRequest, arrival: Arrival<'_>) {
        let RawRequest { id, method, params } = request;
        if self.in_flight.contains_request(&id) {
            // At the peer, an error with this id would settle the first request, which still gets its own response.
            let error = format!("the request id {} is already in flight", shortened(&id));
            self.refuse(None, RpcError::new(ErrorCode::INVALID_REQUEST, error));
            self.events
                .push_back(MuxEvent::Warning(ProtocolWarning::DuplicateRequest(id)));
            return;
        }
        let exceeded = if self.in_flight.len() >= self.limits.in_flight {
            Some(ExceededLimit::InFlight)
        } else if self.outbox.is_full() {
            Some(ExceededLimit::QueuedBytes)
        } else {
            None
        };
        if let Some(limit) = exceeded {
            let error = self.overload(id.clone(), limit);
            return self.refuse(Some(id), error);
        }
        let id = self.in_flight.insert(id);
        // The id and not the `CallId`: the call may be settled when the event is polled.
        let within = self.pending.cause(arrival);
        let within = within.and_then(|call| self.pending.request_id(call).cloned());
        self.events.push_back(MuxEvent::Request {
            id,
            method,
            params,
            within,
        });
    }

    fn handle_response(&mut self, response: Response) {
        let Response {
            id: Some(id),
            outcome,
        } = response
        else {
            if let Err(error) = response.outcome {
                match self.pending.take_only_opening() {
                    Some(call) => self.settle(call, Err(CallFailure::Peer(error))),
                    None => self
                        .events
                        .push_back(MuxEvent::Warning(ProtocolWarning::ErrorWithoutId(error))),
                }
            }
            return;
        };
        match self.pending.take_answered(&id) {
            Some(call) => self.settle(call, outcome.map_err(CallFailure::Peer)),
            None => self
                .events
                .push_back(MuxEvent::Warning(ProtocolWarning::UnexpectedResponse(id))),
        }
    }

    fn handle_notification(
        &mut self,
        now: Instant,
        notification: Notification,
        arrival: Arrival<'_>,
    ) {
        match references::read_reference(&notification) {
            Reference::Cancelled(cancelled) => self.handle_cancelled(cancelled),
            Reference::Progress(token) => {
                // Progress with an unknown token, for example late progress, is dropped.
                if let Some(call) = self.pending.record_progress(now, &token) {
                    self.events
                        .push_back(MuxEvent::CallNotification { call, notification });
                }
            }
            Reference::Subscription(id) => {
                if let Some(call) = self.pending.subscription(&id) {
                    self.events
                        .push_back(MuxEvent::CallNotification { call, notification });
                }
            }
            Reference::Log => {
                let event = match self.pending.cause(arrival) {
                    Some(call) => MuxEvent::CallNotification { call, notification },
                    None => MuxEvent::Notification(notification),
                };
                self.events.push_back(event);
            }
            Reference::NoExchange => self.events.push_back(MuxEvent::Notification(notification)),
            Reference::Malformed => {}
        }
    }

    /// Cancels the request of the peer with this id or, if there is none, ends our subscription with it.
    fn handle_cancelled(&mut self, cancelled: CancelledParams) {
        let CancelledParams { request_id, reason } = cancelled;
        if let Some((id, answer)) = self.in_flight.take(&request_id) {
            // Withdraw a queued response: no message may follow the cancel of its request.
            if let Some(position) = answer {
                self.outbox.withdraw(position);
            }
            self.outbox.withdraw_notifications(&id);
            self.events.push_back(MuxEvent::Cancelled { id, reason });
        } else if let Some(call) = self.pending.subscription(&request_id) {
            self.pending.remove_unanswered(call);
            self.settle(call, Err(CallFailure::Unsubscribed));
        }
    }

    fn has_room(&self) -> Result<(), NotifyError> {
        if self.ended.is_some() {
            return Err(NotifyError::Ended);
        }
        if self.is_full() {
            return Err(NotifyError::Full);
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.outbox.len() >= self.limits.queued || self.outbox.is_full()
    }

    /// Logs an overload, and returns the error for the request.
    fn overload(&mut self, id: RequestId, limit: ExceededLimit) -> RpcError {
        self.events
            .push_back(MuxEvent::Warning(ProtocolWarning::Overload(id, limit)));
        let why = match limit {
            ExceededLimit::InFlight => {
                "overloaded: too many requests in progress (limit `peer_requests`)"
            }
            ExceededLimit::QueuedBytes => {
                "overloaded: responses are not read (limit `output_bytes`)"
            }
        };
        RpcError::new(ErrorCode::INTERNAL_ERROR, why)
    }

    fn settle(&mut self, call: CallId, outcome: Result<Json, CallFailure>) {
        self.events.push_back(MuxEvent::Settled { call, outcome });
    }

    /// Queues the error for a rejected message, unless the queue [is choked](Self::is_choked): no other limit applies.
    fn refuse(&mut self, id: Option<RequestId>, error: RpcError) {
        if !self.is_choked() {
            let outcome = Err(error);
            self.outbox
                .push(OutgoingMessage::new(Response { id, outcome }, None));
        }
    }
}
