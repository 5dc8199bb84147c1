//! [`Driver`], the task that moves messages between a wire and the `Mux`.
//!
//! ```text
//! Running ──close──▶ Closing ──flushed, or timed out────▶ Ended
//!    │                                                     ▲
//!    ├── end of input ──▶ Closing, until handlers end ─────┤
//!    └── the wire breaks ──────────────────────────────────┘
//! ```
//!
//! One turn: receive, expire deadlines, dispatch events, transmit. Receiving comes first and does not wait for the
//! output queue: the next message may be the answer or the cancel that a handler waits for.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bowline_core::mux::{ExceededLimit, MuxEvent, OutgoingMessage, ProtocolWarning, WireEnd};
use bowline_core::{
    BatchError, Malformed, Message, Notification, OutputLimit, decode_batch, is_batch, shortened,
};
use bowline_types::{
    ErrorCode, Json, NotificationMethod, PromptListChangedNotification, RequestId,
    ResourceListChangedNotification, ResourceUpdatedNotification,
    ResourceUpdatedNotificationParams, RpcError, ToolListChangedNotification,
};
use bytes::Bytes;
use tokio::time::{Instant, Sleep};

use super::request_handlers::{LocalRole, RequestHandlers};
use super::{CloseMode, Peer};
use crate::Error;
use crate::exchange::HandlerControl;
use crate::instant_after::instant_after;
use crate::limits::{Charge, ChargeKind, Limit};
use crate::wire::{EngineWire, Received, WireEvent, connection_error};

/// Drives one wire until it ends.
///
/// # Cancel safety
///
/// Dropping the driver closes the wire, fails every call and drops every handler.
#[must_use = "futures do nothing unless polled"]
pub(crate) struct Driver {
    wire: Box<dyn EngineWire>,
    peer: Peer,
    request_handlers: RequestHandlers,
    phase: DriverPhase,
    timer: Option<Pin<Box<Sleep>>>,
    /// A buffer that is reused between turns.
    events: Vec<MuxEvent>,
    /// The bytes of queued output.
    output: Charge,
    malformed_log: OutputLimit,
    started: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum DriverPhase {
    Running,
    Closing { until: Instant, input_ended: bool },
    Ended,
}

impl Driver {
    pub(super) fn new(wire: Box<dyn EngineWire>, peer: Peer, role: LocalRole) -> Self {
        let request_handlers = RequestHandlers::new(peer.clone(), role);
        let (phase, timer, events) = (DriverPhase::Running, None, Vec::with_capacity(1));
        let output = peer.shared.account.empty_charge(ChargeKind::Output);
        Self {
            wire,
            peer,
            request_handlers,
            phase,
            timer,
            events,
            output,
            malformed_log: OutputLimit::default(),
            started: Instant::now(),
        }
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        for _ in 0..MAX_TURNS {
            this.store_waker(cx.waker());
            let has_more = this.receive(cx);
            let timed_out = this.expire(cx);
            let wire_notified = this.dispatch();
            let sent = this.transmit(cx);
            this.update_phase(cx);
            if this.phase == DriverPhase::Ended {
                return Poll::Ready(());
            }
            // A wire that was notified of a cancel may have become ready to receive or send.
            if !(has_more || timed_out || wire_notified || sent) {
                return Poll::Pending;
            }
        }
        // Yields to other tasks of this worker.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Driver {
    /// Stores the waker for handles, before a turn reads the `Mux`, so that a later change wakes the driver.
    fn store_waker(&self, waker: &Waker) {
        let mut state = self.peer.shared.state.lock();
        if !state
            .driver
            .as_ref()
            .is_some_and(|own| own.will_wake(waker))
        {
            let old = state.driver.replace(waker.clone());
            drop(state);
            drop(old);
        }
    }

    /// Receives some frames. Returns whether there may be more.
    fn receive(&mut self, cx: &mut Context<'_>) -> bool {
        if matches!(
            self.phase,
            DriverPhase::Ended
                | DriverPhase::Closing {
                    input_ended: true,
                    ..
                }
        ) {
            return false;
        }
        let mut bytes = 0;
        for _ in 0..MAX_FRAMES {
            // Received messages are charged to the account when they are dispatched, so few are read before that.
            if bytes >= MAX_BYTES {
                break;
            }
            let Poll::Ready(event) = self.wire.poll_event(cx) else {
                return false;
            };
            match event {
                WireEvent::Received(Received::Frame(frame)) => {
                    bytes += frame.len();
                    self.receive_frame(&frame);
                }
                WireEvent::Received(Received::Message(message)) => {
                    bytes += message.encoded_len();
                    self.receive_message(Ok(message), None);
                }
                WireEvent::ReceivedWithin { request, message } => {
                    bytes += message.encoded_len();
                    self.receive_message(Ok(message), Some(&request));
                }
                WireEvent::Received(Received::TooLong { limit, response_to }) => {
                    self.receive_too_long(limit, response_to);
                }
                WireEvent::Received(Received::End) => {
                    self.input_ended();
                    return true;
                }
                WireEvent::Received(Received::Broken(error)) => {
                    self.broken(error);
                    return true;
                }
                WireEvent::RequestFailed { id, error } => self.request_failed(&id, error),
                WireEvent::Paused { id } => {
                    let now = Instant::now();
                    let mut state = self.peer.shared.state.lock();
                    let call = state.mux.pause_deadlines(now.into_std(), &id);
                    state.with_pauses_of(call, |pauses, mux| pauses.begin(now, mux));
                }
                WireEvent::Resumed { id } => {
                    let now = Instant::now();
                    let mut state = self.peer.shared.state.lock();
                    let call = state.mux.resume_deadlines(now.into_std(), &id);
                    state.with_pauses_of(call, |pauses, mux| pauses.end(now, mux));
                }
                WireEvent::ReconnectDelayed { id, until } => {
                    let until = until.map(Instant::into_std);
                    self.peer.shared.state.lock().mux.handle_wait(until, &id);
                }
                WireEvent::Disconnected { error } => self.disconnected(error.as_ref()),
                WireEvent::NotificationsMissed => self.notifications_missed(),
                WireEvent::Reset => self.reset(),
                WireEvent::ListenerAttached { is_after_gap } => {
                    self.request_handlers.watch_lists(is_after_gap);
                }
                WireEvent::StreamLost { error } => self.peer.notification_hub().report_loss(error),
            }
        }
        true
    }

    fn receive_frame(&mut self, frame: &Bytes) {
        if is_batch(frame) && self.request_handlers.accepts_batches() {
            let account = &self.peer.shared.account;
            match decode_batch(frame, account.limits().batch_messages) {
                Ok(parts) => parts
                    .into_iter()
                    .for_each(|part| self.receive_message(part, None)),
                Err(refused) => {
                    if let BatchError::TooLong { max } = refused {
                        account.counters().refuse(Limit::BatchMessages, max);
                    }
                    let description = self.wire.malformed(frame);
                    self.receive_malformed(refused.into(), description);
                }
            }
            return;
        }
        match Message::decode(frame) {
            Err(malformed @ Malformed::Request { id: None, .. }) => {
                let description = self.wire.malformed(frame);
                self.receive_malformed(malformed, description);
            }
            decoded => self.receive_message(decoded, None),
        }
    }

    /// `within` is the request of ours on whose stream the message arrived.
    fn receive_message(&mut self, message: Result<Message, Malformed>, within: Option<&RequestId>) {
        match message {
            Ok(Message::Request(request)) if self.request_handlers.ignores_requests() => {
                // Ignored and not refused: on stdio a modern client must not write responses.
                let method = shortened(&request.method).to_string();
                tracing::warn!(
                    method,
                    "ignored a request of the server; its protocol version has no server requests"
                );
                let error = format!(
                    "unexpected request `{method}`: this protocol version has no server requests"
                );
                self.peer
                    .notification_hub()
                    .run_error_callback(&Error::protocol(error));
            }
            Ok(message) => {
                let now = Instant::now().into_std();
                let mux = &mut self.peer.shared.state.lock().mux;
                match within {
                    Some(within) => mux.handle_message_within(now, within, message),
                    None => mux.handle_message(now, message),
                }
            }
            Err(malformed) => self.receive_malformed(malformed, None),
        }
    }

    /// `description` is that of the wire.
    fn receive_malformed(&mut self, malformed: Malformed, description: Option<String>) {
        let what = description.unwrap_or_else(|| shortened(&malformed).to_string());
        self.log_malformed(&what);
        let error = Error::protocol(format!("malformed message: {what}"));
        self.peer.notification_hub().run_error_callback(&error);
        if matches!(malformed, Malformed::Request { id: None, .. })
            && !self.request_handlers.is_server()
        {
            return; // a server printed to stdout by mistake; a client must not answer that
        }
        self.peer
            .shared
            .state
            .lock()
            .mux
            .handle_malformed(malformed);
    }

    /// Logs a malformed message. A server may print anything to stdout, so the log is limited as that of stderr.
    fn log_malformed(&mut self, what: &str) {
        let now = self.started.elapsed();
        if let Some(bytes) = self.malformed_log.take_dropped(now) {
            tracing::warn!(
                bytes,
                "malformed messages were not logged, because there were too many"
            );
        }
        match self.malformed_log.admit(what.len(), now) {
            0 => {}
            admitted => {
                let what = &what[..what.floor_char_boundary(admitted)];
                tracing::warn!(malformed = what, "received a malformed message");
            }
        }
    }

    /// Handles a message that was not kept. If it is a response, its call would otherwise wait for its deadline.
    fn receive_too_long(&mut self, limit: usize, response_to: Option<RequestId>) {
        let malformed = match response_to {
            Some(id) => Malformed::Response {
                id: Some(id),
                why: "message exceeds the limit of the wire",
            },
            None => {
                let why = format!("message exceeds {limit} bytes");
                let error = RpcError::new(ErrorCode::INVALID_REQUEST, why);
                Malformed::Request { id: None, error }
            }
        };
        self.receive_malformed(malformed, None);
    }

    fn request_failed(&mut self, id: &RequestId, error: Error) {
        let mut state = self.peer.shared.state.lock();
        let call = state.mux.handle_undelivered(id);
        let mailbox = call.and_then(|call| state.mailboxes.get_mut(&call));
        let waker = mailbox.and_then(|mailbox| mailbox.fail(error));
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Handles [`WireEvent::Disconnected`]: fails the calls that were sent. They are not sent again, because they may
    /// have run.
    fn disconnected(&mut self, failure: Option<&Arc<io::Error>>) {
        let error = || failure.map_or(Error::Closed, |failure| connection_error(failure.clone()));
        let mut state = self.peer.shared.state.lock();
        let mut wakers = Vec::new();
        for call in state.mux.handle_disconnect() {
            let mailbox = state.mailboxes.get_mut(&call);
            wakers.extend(mailbox.and_then(|mailbox| mailbox.fail(error())));
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Handles [`WireEvent::NotificationsMissed`]: reports every list and every subscribed resource as changed.
    fn notifications_missed(&mut self) {
        let resources = self.peer.shared.state.lock().legacy.subscribed_resources();
        for notification in all_change_notifications(resources) {
            self.handle_notification(&notification);
        }
    }

    /// Handles [`WireEvent::Reset`]: cancels the server's requests, and restores subscriptions and the log level.
    fn reset(&mut self) {
        for cancel in self.request_handlers.cancel_notifications() {
            let now = Instant::now().into_std();
            let mut state = self.peer.shared.state.lock();
            state.mux.handle_message(now, Message::from(cancel));
        }
        self.peer.with(|state| state.legacy.reset());
        self.peer.notification_hub().reset();
        self.request_handlers.restore_log_level();
    }

    /// Fails calls whose deadline has passed. Returns whether the timer fired.
    fn expire(&mut self, cx: &mut Context<'_>) -> bool {
        let deadline = self
            .peer
            .shared
            .state
            .lock()
            .mux
            .poll_timeout()
            .map(Instant::from_std);
        let closing = match self.phase {
            DriverPhase::Closing { until, .. } => Some(until),
            DriverPhase::Running | DriverPhase::Ended => None,
        };
        let Some(next) = [deadline, closing].into_iter().flatten().min() else {
            return false;
        };
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(next)));
        if timer.deadline() != next {
            timer.as_mut().reset(next);
        }
        if timer.as_mut().poll(cx).is_pending() {
            return false;
        }
        self.timer = None;
        let now = Instant::now();
        self.peer
            .shared
            .state
            .lock()
            .mux
            .handle_timeout(now.into_std());
        if closing.is_some_and(|until| until <= now) {
            self.end(WireEnd::Closed);
        }
        true
    }

    /// Dispatches the events of the `Mux`. Returns whether the wire was notified of a cancel.
    fn dispatch(&mut self) -> bool {
        let mut events = std::mem::take(&mut self.events);
        {
            let mut state = self.peer.shared.state.lock();
            events.extend(std::iter::from_fn(|| state.mux.poll_event()));
        }
        let mut wire_notified = false;
        for event in events.drain(..) {
            wire_notified |= matches!(event, MuxEvent::Cancelled { .. });
            self.handle(event);
        }
        self.events = events;
        self.request_handlers.reap();
        wire_notified
    }

    fn handle(&mut self, event: MuxEvent) {
        match event {
            MuxEvent::Settled { call, outcome } => {
                self.peer.deliver(call, |mailbox| mailbox.settle(outcome));
            }
            MuxEvent::CallNotification { call, notification } => {
                self.peer.notification_hub().run_callback(&notification);
                let account = &self.peer.shared.account;
                self.peer
                    .deliver(call, |mailbox| mailbox.notify(notification, account));
            }
            MuxEvent::Request {
                id,
                method,
                params,
                within,
            } => self.request_handlers.begin(id, method, params, within),
            MuxEvent::Cancelled { id, reason } => {
                let (request, why) = (id.request_id(), reason.as_deref().map(shortened));
                tracing::debug!(id = %shortened(request), reason = ?why, "peer cancelled a request");
                self.request_handlers.cancel(&id, reason);
                self.wire.cancelled(id.request_id());
            }
            MuxEvent::Notification(notification) => self.handle_notification(&notification),
            MuxEvent::Warning(ProtocolWarning::ErrorWithoutId(error)) => {
                let what = shortened(&error);
                tracing::warn!(error = %what, "received an error response without an id");
                self.peer
                    .notification_hub()
                    .run_error_callback(&Error::Rpc(error));
            }
            MuxEvent::Warning(ProtocolWarning::Overload(id, limit)) => {
                self.overloaded(&id, limit);
            }
            MuxEvent::Warning(warning) => {
                tracing::debug!(warning = ?shortened(warning), "unexpected message");
            }
            _ => {}
        }
    }

    fn overloaded(&self, id: &RequestId, limit: ExceededLimit) {
        let account = &self.peer.shared.account;
        let limits = account.limits();
        let reached = match limit {
            ExceededLimit::QueuedBytes => account
                .counters()
                .refuse(Limit::OutputBytes, limits.output_bytes),
            _ => account
                .counters()
                .refuse(Limit::PeerRequests, limits.peer_requests),
        };
        tracing::debug!(id = %shortened(id), %reached, "refused a request");
    }

    fn handle_notification(&mut self, notification: &Notification) {
        self.request_handlers.handle_notification(notification);
        self.peer.notification_hub().publish(notification);
    }

    /// Sends messages while the wire is ready. Returns whether any was sent.
    fn transmit(&mut self, cx: &mut Context<'_>) -> bool {
        let mut sent = false;
        loop {
            match self.wire.poll_ready(cx) {
                Poll::Pending => break,
                Poll::Ready(Err(error)) => {
                    self.broken(error);
                    return true;
                }
                Poll::Ready(Ok(())) => {}
            }
            let Some((outgoing, watched)) = self.next_outgoing() else {
                break;
            };
            self.wire.send(&outgoing);
            watched.iter().for_each(HandlerControl::answer_sent);
            sent = true;
        }
        if let Poll::Ready(Err(error)) = self.wire.poll_flush(cx) {
            self.broken(error);
            return true;
        }
        sent
    }

    /// Returns the next message, and the handler that must know that it is sent.
    fn next_outgoing(&self) -> Option<(OutgoingMessage, Option<HandlerControl>)> {
        let mut state = self.peer.shared.state.lock();
        let outgoing = state.mux.poll_outgoing()?;
        let watched = match (&outgoing.message, &outgoing.within) {
            (Message::Response(_), Some(id)) => state.watched_answers.remove(id),
            _ => None,
        };
        Some((outgoing, watched))
    }

    /// Starts or completes a requested close, and breaks the wire if the peer does not read.
    fn update_phase(&mut self, cx: &mut Context<'_>) {
        let (closing, sizes, is_choked, is_held_open) = {
            let state = self.peer.shared.state.lock();
            let (sizes, is_choked) = (state.mux.sizes(), state.mux.is_choked());
            (state.closing, sizes, is_choked, state.is_held_open)
        };
        self.output.set(sizes.queued_bytes);
        if is_choked {
            return self.handle_unread_output();
        }
        if let (DriverPhase::Running, Some(how)) = (self.phase, closing) {
            let limit = match how {
                CloseMode::Flush(limit) => limit,
                CloseMode::Drain => Duration::MAX, // `Peer::drain` limits it
            };
            self.phase = DriverPhase::Closing {
                until: instant_after(Instant::now(), limit),
                input_ended: false,
            };
            self.request_handlers.shut_down();
            cx.waker().wake_by_ref();
            return;
        }
        let DriverPhase::Closing { input_ended, .. } = self.phase else {
            return;
        };
        let drains = input_ended || matches!(closing, Some(CloseMode::Drain));
        // Without input there is no next request of a call that waits for one.
        let is_held_open = is_held_open && !input_ended;
        let is_done = sizes.queued == 0 && (!drains || sizes.in_flight == 0) && !is_held_open;
        if is_done && self.wire.poll_close(cx).is_ready() {
            self.end(WireEnd::Closed);
        }
    }

    fn handle_unread_output(&mut self) {
        let account = &self.peer.shared.account;
        let limit = account.limits().output_bytes;
        let reached = account.counters().refuse(Limit::OutputBytes, limit);
        let why = "the peer sends requests but does not read the answers";
        tracing::warn!(%reached, "closed the wire: {why}");
        self.broken(io::Error::other(why));
    }

    /// Handles the end of the input. The peer may still read answers, including those in the wire's buffer, so the
    /// handlers may finish. In a drain too they get no more time than that: the only peer is gone.
    fn input_ended(&mut self) {
        let limit = Instant::now() + INPUT_END_GRACE;
        let until = match self.phase {
            DriverPhase::Closing { until, .. } => until.min(limit),
            DriverPhase::Running | DriverPhase::Ended => limit,
        };
        self.phase = DriverPhase::Closing {
            until,
            input_ended: true,
        };
        self.request_handlers.shut_down();
    }

    fn broken(&mut self, error: io::Error) {
        if self.phase == DriverPhase::Ended {
            return; // writing to a closed wire fails, as expected
        }
        tracing::debug!(%error, "wire broken");
        if let DriverPhase::Closing {
            input_ended: true, ..
        } = self.phase
        {
            // The peer closed both directions; that is an orderly end.
            return self.end(WireEnd::Closed);
        }
        self.peer
            .shared
            .state
            .lock()
            .failure
            .get_or_insert(Arc::new(error));
        self.end(WireEnd::Broken);
    }

    fn end(&mut self, end: WireEnd) {
        if self.phase == DriverPhase::Ended {
            return;
        }
        self.phase = DriverPhase::Ended;
        self.peer.shared.state.lock().mux.handle_end(end);
        self.dispatch();
        self.request_handlers.stop();
        self.output.set(0);
        self.peer.notification_hub().end();
        // Here and not only with the last handle: a value may own a `Context` of this connection, and so a handle.
        self.peer.shared.connection_state.clear();
        self.peer.shared.ended.send_replace(true);
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.end(WireEnd::Closed);
    }
}

/// Returns the notifications that may have been lost: one per list, and one per resource in `subscribed`.
fn all_change_notifications(subscribed: Vec<String>) -> Vec<Notification> {
    let lists = [
        ToolListChangedNotification::NAME,
        PromptListChangedNotification::NAME,
        ResourceListChangedNotification::NAME,
    ];
    let lists = lists.map(|name| Notification::new(name, None));
    let resources = subscribed.into_iter().map(|uri| {
        let params = Json::encode(&ResourceUpdatedNotificationParams::new(uri));
        Notification::new(ResourceUpdatedNotification::NAME, params.ok())
    });
    lists.into_iter().chain(resources).collect()
}

/// Turns per poll, before the driver yields to other tasks.
const MAX_TURNS: usize = 8;
/// Frames that are received per turn.
const MAX_FRAMES: usize = 64;
/// Bytes that are received per turn; a single frame may be longer.
const MAX_BYTES: usize = 256 * 1024;
/// How long handlers may run after the end of the input.
const INPUT_END_GRACE: Duration = Duration::from_secs(2);
