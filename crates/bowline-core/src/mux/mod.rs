//! The engine: exchanges over one duplex wire, without the wire.
//!
//! A duplex wire carries a jumble of messages in both directions. The [`Mux`] makes exchanges out of
//! them: it gives our calls their ids and finds the answers, remembers which requests of the peer are
//! still to be answered, and knows when somebody stopped caring.
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
//! Methods sort themselves by name: plain verbs are commands, `handle_*` is input, `poll_*` is output.
//! It knows two methods, `notifications/cancelled` and `notifications/progress`, and one `_meta` key, the
//! subscription id, because they refer to its tables; no more.

mod deadlines;

mod in_flight;
pub use in_flight::InFlightId;

mod outbox;
use outbox::Outbox;

mod pending;
pub use pending::{CallId, CallOptions};

mod refers;

#[cfg(any(test, fuzzing))]
pub(crate) mod model;
#[cfg(test)]
mod pinned;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bowline_types::{ErrorCode, Json, RequestId, RpcError};

use crate::json::Params;
use crate::message::{Malformed, Message, Notification, Outcome, RawRequest, Response};
use crate::shortened;
use in_flight::InFlight;
use pending::PendingCalls;
use refers::{Cancelled, Referent};

/// The exchanges of one duplex wire.
///
/// # Examples
///
/// Two engines back to back; the wire is a variable.
///
/// ```
/// use std::time::Instant;
/// use bowline_core::mux::{CallOptions, Event, Mux};
/// use bowline_types::Json;
///
/// let now = Instant::now();
/// let (mut client, mut server) = (Mux::default(), Mux::default());
///
/// let call = client.call(now, "ping", None, CallOptions::default())?;
/// let request = client.poll_transmit().expect("the request is queued");
/// server.handle_message(now, request);
/// let Some(Event::Request { id, .. }) = server.poll_event() else { panic!("a request arrived") };
/// server.respond(&id, Ok(Json::empty_object()));
/// client.handle_message(now, server.poll_transmit().expect("the answer is queued"));
///
/// assert!(matches!(client.poll_event(), Some(Event::Settled { call: done, .. }) if done == call));
/// # Ok::<(), bowline_core::mux::Refused>(())
/// ```
#[derive(Debug)]
pub struct Mux {
    limits: Limits,
    pending: PendingCalls,
    in_flight: InFlight,
    outbox: Outbox,
    events: VecDeque<Event>,
    intake: Intake,
}

/// How much a [`Mux`] takes on.
#[derive(Clone, Copy, Debug)]
#[allow(
    clippy::exhaustive_structs,
    reason = "a shell names what it chooses and leaves the rest"
)]
pub struct Limits {
    /// Requests of the peer being answered at once; more are refused.
    pub in_flight: usize,
    /// Messages waiting for the wire, above which new calls and notifications are refused. Answers and
    /// cancels always find room: there are no more of them than requests.
    pub queued: usize,
    /// Bytes waiting for the wire, above which new calls, notifications and requests of the peer are refused, and
    /// answers are replaced by the error that the peer does not read. At twice as many, [`Mux::is_choked`].
    pub queued_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            in_flight: 4096,
            queued: 16_384,
            queued_bytes: 4 * 1024 * 1024,
        }
    }
}

/// What became of something.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The peer asks; owe it one [`Mux::respond`].
    Request {
        /// Under which to respond.
        id: InFlightId,
        /// What is asked for.
        method: Cow<'static, str>,
        /// With what.
        params: Option<Params>,
    },
    /// The peer no longer wants the answer, or can no longer get it. Stop working on it.
    Cancelled {
        /// Which request.
        id: InFlightId,
        /// Why, in the peer's words.
        reason: Option<String>,
    },
    /// The peer says something that belongs to no call.
    Notification(Notification),
    /// The peer says something that belongs to a call: progress, or news on a subscription.
    Notified {
        /// Which call.
        call: CallId,
        /// What it says.
        notification: Notification,
    },
    /// A call of ours is over.
    Settled {
        /// Which call.
        call: CallId,
        /// How it ended.
        outcome: Result<Json, Failure>,
    },
    /// Something that concerns no exchange, for the log.
    Oddity(Oddity),
}

/// Why a call of ours failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// The peer said no.
    Peer(RpcError),
    /// The peer's answer could not be understood.
    Malformed(&'static str),
    /// It took too long. The peer was told to stop.
    Timeout(Overdue),
    /// The wire is at its end.
    Ended(End),
    /// The peer ended the subscription that this call was.
    Unsubscribed,
}

/// Which deadline passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overdue {
    /// Nothing was heard of the call for this long.
    Idle(Duration),
    /// The call as a whole was allowed this long.
    Total(Duration),
}

/// How a wire comes to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a wire is closed by somebody, or it breaks"
)]
pub enum End {
    /// One side closed it.
    Closed,
    /// It failed.
    Broken,
}

/// Why a call is abandoned.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// Its caller let go of it.
    Dropped,
    /// A deadline passed.
    Overdue(Overdue),
    /// The caller gave a reason.
    Given(String),
}

/// Why a call did not begin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The caller chose an id that another call of ours has.
    #[error("the request id {0} is in use by another call")]
    IdInUse(RequestId),
    /// The caller chose a progress token that another call of ours has.
    #[error("the progress token is in use by another call")]
    ProgressTokenInUse,
    /// Too much is waiting for the wire already.
    #[error("too many messages are waiting for the wire")]
    Full,
    /// The wire is at its end.
    #[error("the wire is closed")]
    Ended(End),
}

/// Why a notification was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotSent {
    /// The request it belongs to is answered or cancelled.
    RequestOver,
    /// Too much is waiting for the wire already.
    Full,
    /// The wire is at its end.
    Ended,
}

/// Something odd that the peer did, which is nobody's outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Oddity {
    /// It answered nothing we asked, or too late.
    UnexpectedResponse(RequestId),
    /// It could not read a message of ours.
    ErrorWithoutId(RpcError),
    /// It used an id for two requests at once; the second was refused.
    DuplicateRequest(RequestId),
    /// It sent more requests than we take, or does not read the answers; one was refused.
    Overload(RequestId, Overload),
    /// It sent a response that could not be read, to nobody.
    MalformedResponse(&'static str),
}

/// Which limit a request of the peer met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overload {
    /// [`Limits::in_flight`]
    InFlight,
    /// [`Limits::queued_bytes`]
    QueuedBytes,
}

/// A message on its way out, and what it belongs to.
///
/// A wire that has one stream per request, as a legacy conversation over HTTP does, puts the message onto
/// the stream of that request; every other wire does not care.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outgoing {
    /// The message.
    pub message: Message,
    /// The request of the peer that it belongs to.
    pub within: Option<InFlightId>,
}

/// Whether new requests of the peer are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Intake {
    Open,
    Draining,
    Ended(End),
}

/// How many entries the tables of a [`Mux`] hold; all zero when nothing is going on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "one number per table")]
pub struct Sizes {
    /// Calls of ours that are not settled.
    pub pending: usize,
    /// Requests of the peer that are not answered.
    pub in_flight: usize,
    /// Messages that wait for the wire.
    pub queued: usize,
    /// Bytes that wait for the wire, with what the queue itself takes up.
    pub queued_bytes: usize,
}

impl Default for Mux {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl Mux {
    /// An engine for a fresh wire.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            pending: PendingCalls::default(),
            in_flight: InFlight::default(),
            outbox: Outbox::default(),
            // There may be thousands of wires that never had more than one.
            events: VecDeque::with_capacity(1),
            intake: Intake::Open,
        }
    }

    // --- commands from the application ---

    /// Starts a call. Its request leaves with [`Mux::poll_transmit`]; its end is [`Event::Settled`].
    ///
    /// # Errors
    ///
    /// If the chosen id is in use, too much is queued, or the wire is at its end. Nothing was sent then.
    pub fn call(
        &mut self,
        now: Instant,
        method: impl Into<Cow<'static, str>>,
        params: Option<Json>,
        options: CallOptions,
    ) -> Result<CallId, Refused> {
        if let Intake::Ended(end) = self.intake {
            return Err(Refused::Ended(end));
        }
        if self.is_full() {
            return Err(Refused::Full);
        }
        let bytes = params.as_ref().map_or(0, |params| params.as_bytes().len());
        let place = self.outbox.next_place();
        let call = self
            .pending
            .insert(now, method.into(), params, place, options)?;
        self.outbox.push_call(call, bytes);
        Ok(call)
    }

    /// Queues a notification that belongs to no request.
    ///
    /// # Errors
    ///
    /// If it was dropped instead.
    pub fn notify(&mut self, notification: Notification) -> Result<(), NotSent> {
        self.has_room()?;
        self.outbox.push(notification, None);
        Ok(())
    }

    /// Queues a notification that belongs to a request of the peer, unless that is over.
    ///
    /// # Errors
    ///
    /// If it was dropped instead.
    pub fn notify_within(
        &mut self,
        id: &InFlightId,
        notification: Notification,
    ) -> Result<(), NotSent> {
        if !self.in_flight.is_open(id) {
            return Err(NotSent::RequestOver);
        }
        self.has_room()?;
        self.outbox.push_word(id.clone(), notification);
        Ok(())
    }

    /// Forgets a call. This is what dropping it means.
    pub fn abandon(&mut self, call: CallId, why: &Reason) {
        let Some(pending) = self.pending.give_up(call) else {
            return; // settled or abandoned before
        };
        if let Some(place) = pending.place() {
            self.outbox.take_back(place);
        } else if pending.is_cancelled_by(why) {
            let cancel = refers::cancel(pending.id(), &why.to_string());
            self.outbox.push(cancel, pending.within().cloned());
        }
    }

    /// Answers a request of the peer. A request that is over is not answered.
    pub fn respond(&mut self, id: &InFlightId, outcome: Outcome) {
        // A cancelled request must not be answered (spec: basic/patterns/cancellation), so having
        // forgotten it is what silences a late answer.
        if !self.in_flight.answer(id, self.outbox.next_place()) {
            return;
        }
        let request = id.request_id();
        let outcome = match self.outbox.bytes() >= self.limits.queued_bytes {
            true => Err(self.overload(request.clone(), Overload::QueuedBytes)),
            false => outcome,
        };
        let response = Response {
            id: Some(request.clone()),
            outcome,
        };
        self.outbox.push(response, Some(id.clone()));
    }

    /// Refuses new requests of the peer from now on; those in flight may still be answered.
    pub fn drain(&mut self) {
        if self.intake == Intake::Open {
            self.intake = Intake::Draining;
        }
    }

    // --- input from outside ---

    /// Takes in what the peer sent.
    pub fn handle_message(&mut self, now: Instant, message: Message) {
        if matches!(self.intake, Intake::Ended(_)) {
            return;
        }
        match message {
            Message::Request(request) => self.handle_request(request),
            Message::Response(response) => self.handle_response(response),
            Message::Notification(notification) => self.handle_notification(now, notification),
        }
    }

    /// Takes in a frame that was no message. It costs only itself.
    pub fn handle_malformed(&mut self, malformed: Malformed) {
        match malformed {
            Malformed::Request { id, error } => {
                // An error that names a request in flight would settle that one.
                let id = id.filter(|id| !self.in_flight.contains_request(id));
                self.refuse(id, error);
            }
            Malformed::Response { id, why } => {
                let settled = id.and_then(|id| self.pending.take_answered(&id));
                match settled {
                    Some(call) => self.settle(call, Err(Failure::Malformed(why))),
                    None => self
                        .events
                        .push_back(Event::Oddity(Oddity::MalformedResponse(why))),
                }
            }
        }
    }

    /// Lets idle deadlines stand still, total ones not: the peer may be silent because it waits for us.
    pub fn pause_idle(&mut self) {
        self.pending.pause_idle();
    }

    /// Lets idle deadlines count again, from now on.
    pub fn resume_idle(&mut self, now: Instant) {
        self.pending.resume_idle(now);
    }

    /// Lets both deadlines of one call stand still: it is held up on our side of the wire, for instance
    /// because a person has to agree first.
    pub fn hold(&mut self, now: Instant, id: &RequestId) {
        self.pending.hold(now, id);
    }

    /// Lets the deadlines of a call that was held count again; the time in between does not.
    pub fn release(&mut self, now: Instant, id: &RequestId) {
        self.pending.release(now, id);
    }

    /// Forgets a call whose request was lost on its way, where the wire can tell. The peer has not heard of
    /// it, so it is told nothing; why it was lost is for the wire to say.
    pub fn handle_lost(&mut self, id: &RequestId) -> Option<CallId> {
        self.pending.take_answered(id)
    }

    /// The wire will not receive anything for a call before `until` (`None`: ever). Fails the call now if its deadline is earlier.
    pub fn handle_wait(&mut self, until: Option<Instant>, id: &RequestId) {
        if let Some((call, overdue)) = self.pending.overdue_by(until, id) {
            self.fail_overdue(call, overdue);
        }
    }

    /// Fails the calls whose deadline has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((call, overdue)) = self.pending.next_overdue(now) {
            self.fail_overdue(call, overdue);
        }
    }

    fn fail_overdue(&mut self, call: CallId, overdue: Overdue) {
        // The cancel is queued before the caller learns that it timed out.
        self.abandon(call, &Reason::Overdue(overdue));
        self.settle(call, Err(Failure::Timeout(overdue)));
    }

    /// Ends everything: the wire is closed or broken.
    pub fn handle_end(&mut self, end: End) {
        if matches!(self.intake, Intake::Ended(_)) {
            return;
        }
        self.intake = Intake::Ended(end);
        self.outbox.clear();
        for call in self.pending.drain() {
            self.settle(call, Err(Failure::Ended(end)));
        }
        for id in self.in_flight.drain() {
            self.events.push_back(Event::Cancelled { id, reason: None });
        }
    }

    // --- output ---

    /// The next message for the wire. A request handed out here counts as sent.
    pub fn poll_transmit(&mut self) -> Option<Message> {
        self.poll_outgoing().map(|outgoing| outgoing.message)
    }

    /// The same, with what the message belongs to.
    pub fn poll_outgoing(&mut self) -> Option<Outgoing> {
        let send = |call| self.pending.send(call);
        self.outbox.pop(send, |id| self.in_flight.left(id))
    }

    /// Whether so much waits for the wire, with even the short errors that are sent in the place of answers, that the
    /// wire should be closed: the peer keeps asking and does not read.
    #[must_use]
    pub fn is_choked(&self) -> bool {
        self.outbox.bytes() >= self.limits.queued_bytes.saturating_mul(2)
    }

    /// The next thing the application should know.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When to call [`Mux::handle_timeout`] next. It may find that nothing is overdue yet.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.pending.next_deadline()
    }

    // --- questions ---

    /// How much the tables hold.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        Sizes {
            pending: self.pending.len(),
            in_flight: self.in_flight.len(),
            queued: self.outbox.len(),
            queued_bytes: self.outbox.bytes(),
        }
    }

    /// The id of a call that is not settled, as it is on the wire.
    #[must_use]
    pub fn request_id(&self, call: CallId) -> Option<&RequestId> {
        self.pending.request_id(call)
    }

    /// Whether the request of a call still waits for the wire: abandoned now, it never was.
    #[must_use]
    pub fn is_unsent(&self, call: CallId) -> bool {
        self.pending.is_unsent(call)
    }

    // --- the parts of `handle_message` ---

    fn handle_request(&mut self, request: RawRequest) {
        let RawRequest { id, method, params } = request;
        if self.in_flight.contains_request(&id) {
            // An answer with this id would settle the first request, which is still to get its own.
            let error = format!("the request id {} is already in flight", shortened(&id));
            self.refuse(None, RpcError::new(ErrorCode::INVALID_REQUEST, error));
            self.events
                .push_back(Event::Oddity(Oddity::DuplicateRequest(id)));
            return;
        }
        if self.intake == Intake::Draining {
            return self.refuse(
                Some(id),
                RpcError::new(ErrorCode::INTERNAL_ERROR, "shutting down"),
            );
        }
        let overload = if self.in_flight.len() >= self.limits.in_flight {
            Some(Overload::InFlight)
        } else if self.outbox.bytes() >= self.limits.queued_bytes {
            Some(Overload::QueuedBytes)
        } else {
            None
        };
        if let Some(overload) = overload {
            let error = self.overload(id.clone(), overload);
            return self.refuse(Some(id), error);
        }
        let id = self.in_flight.insert(id);
        self.events.push_back(Event::Request { id, method, params });
    }

    fn handle_response(&mut self, response: Response) {
        let Response {
            id: Some(id),
            outcome,
        } = response
        else {
            if let Err(error) = response.outcome {
                match self.pending.take_lone_opening() {
                    Some(call) => self.settle(call, Err(Failure::Peer(error))),
                    None => self
                        .events
                        .push_back(Event::Oddity(Oddity::ErrorWithoutId(error))),
                }
            }
            return;
        };
        match self.pending.take_answered(&id) {
            Some(call) => self.settle(call, outcome.map_err(Failure::Peer)),
            None => self
                .events
                .push_back(Event::Oddity(Oddity::UnexpectedResponse(id))),
        }
    }

    fn handle_notification(&mut self, now: Instant, notification: Notification) {
        match refers::referent(&notification) {
            Referent::Cancelled(cancelled) => self.handle_cancelled(cancelled),
            Referent::Progress(token) => {
                // Late progress, or progress on nothing, is nobody's.
                if let Some(call) = self.pending.heard(now, &token) {
                    self.events
                        .push_back(Event::Notified { call, notification });
                }
            }
            Referent::Subscription(id) => {
                if let Some(call) = self.pending.subscription(&id) {
                    self.events
                        .push_back(Event::Notified { call, notification });
                }
            }
            Referent::Nothing => self.events.push_back(Event::Notification(notification)),
            Referent::Unreadable => {}
        }
    }

    /// Looks for the request among the peer's; failing that, for a subscription of ours.
    fn handle_cancelled(&mut self, cancelled: Cancelled) {
        let Cancelled { request_id, reason } = cancelled;
        if let Some((id, answer)) = self.in_flight.take(&request_id) {
            // An answer that has not left is taken back: nothing is said of a request after its cancel.
            if let Some(place) = answer {
                self.outbox.take_back(place);
            }
            self.outbox.silence(&id);
            self.events.push_back(Event::Cancelled { id, reason });
        } else if let Some(call) = self.pending.subscription(&request_id) {
            self.pending.give_up(call);
            self.settle(call, Err(Failure::Unsubscribed));
        }
    }

    fn has_room(&self) -> Result<(), NotSent> {
        if matches!(self.intake, Intake::Ended(_)) {
            return Err(NotSent::Ended);
        }
        if self.is_full() {
            return Err(NotSent::Full);
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.outbox.len() >= self.limits.queued || self.outbox.bytes() >= self.limits.queued_bytes
    }

    /// The error for a request that met a limit.
    fn overload(&mut self, id: RequestId, overload: Overload) -> RpcError {
        self.events
            .push_back(Event::Oddity(Oddity::Overload(id, overload)));
        let why = match overload {
            Overload::InFlight => {
                "overloaded: too many requests in progress (limit `peer_requests`)"
            }
            Overload::QueuedBytes => "overloaded: answers are not read (limit `output_bytes`)",
        };
        RpcError::new(ErrorCode::INTERNAL_ERROR, why)
    }

    fn settle(&mut self, call: CallId, outcome: Result<Json, Failure>) {
        self.events.push_back(Event::Settled { call, outcome });
    }

    /// Answers what never became a request in flight. [`Mux::is_choked`] bounds these answers.
    fn refuse(&mut self, id: Option<RequestId>, error: RpcError) {
        if !self.is_choked() {
            let outcome = Err(error);
            self.outbox.push(Response { id, outcome }, None);
        }
    }
}

/// As the peer is told.
impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Dropped => f.write_str("caller cancelled"),
            Self::Overdue(overdue) => overdue.fmt(f),
            Self::Given(reason) => f.write_str(reason),
        }
    }
}

impl std::fmt::Display for Overdue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Idle(after) | Self::Total(after) => write!(f, "timed out after {after:?}"),
        }
    }
}
