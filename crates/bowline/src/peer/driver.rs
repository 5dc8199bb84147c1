//! The task that moves messages between a wire and the engine.
//!
//! ```text
//! Running ──close──▶ Closing ──flushed, or time is up──▶ Ended
//!    │                                                     ▲
//!    ├── input ends ──▶ Closing, until handlers are done ──┤
//!    └── the wire breaks ──────────────────────────────────┘
//! ```
//!
//! One turn: receive, expire deadlines, hand out events, transmit. Receiving comes first and never stops
//! for want of room to send: the message that would free a handler may be the next one.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bowline_core::mux::{End, Event, Oddity, Outgoing, Overload};
use bowline_core::{
    BatchError, Malformed, Message, Notification, decode_batch, is_batch, shortened,
};
use bowline_types::{ErrorCode, RequestId, RpcError};
use bytes::Bytes;
use tokio::time::{Instant, Sleep};

use super::serving::{Role, Serving};
use super::{Closing, Peer, legacy};
use crate::Error;
use crate::far_future::instant_after;
use crate::limits::{Charge, Held, Limit};
use crate::wire::{Received, Wire};

/// Drives one wire until it is at its end.
///
/// # Cancel safety
///
/// Dropping the driver closes the wire, fails every call and drops every handler.
#[must_use = "nothing happens on a wire that nobody drives"]
pub(crate) struct Driver {
    wire: Box<dyn Wire>,
    peer: Peer,
    serving: Serving,
    phase: Phase,
    timer: Option<Pin<Box<Sleep>>>,
    /// Kept between turns for its room.
    events: Vec<Event>,
    /// What waits for the wire.
    output: Charge,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Running,
    Closing { until: Instant, input_ended: bool },
    Ended,
}

impl Driver {
    pub(super) fn new(wire: Box<dyn Wire>, peer: Peer, role: Role) -> Self {
        let serving = Serving::new(peer.clone(), role);
        let (phase, timer, events) = (Phase::Running, None, Vec::with_capacity(1));
        let output = peer.shared.account.nothing(Held::Output);
        Self {
            wire,
            peer,
            serving,
            phase,
            timer,
            events,
            output,
        }
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        for _ in 0..MOST_TURNS {
            this.park(cx.waker());
            let has_more = this.receive(cx);
            let timed_out = this.expire(cx);
            let told = this.dispatch();
            let sent = this.transmit(cx);
            this.consider_ending(cx);
            if this.phase == Phase::Ended {
                return Poll::Ready(());
            }
            // A wire that was told something may have something to say.
            if !(has_more || timed_out || told || sent) {
                return Poll::Pending;
            }
        }
        // Others on this thread want their turn too.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Driver {
    /// Leaves the waker where handles find it.
    fn park(&self, waker: &Waker) {
        let mut state = self.peer.shared.lock();
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

    /// Takes in some frames. Whether there may be more.
    fn receive(&mut self, cx: &mut Context<'_>) -> bool {
        if matches!(
            self.phase,
            Phase::Ended
                | Phase::Closing {
                    input_ended: true,
                    ..
                }
        ) {
            return false;
        }
        let mut bytes = 0;
        for _ in 0..MOST_FRAMES {
            // What is taken in is charged when it is dispatched, so that not much is taken in before that.
            if bytes >= MOST_BYTES {
                break;
            }
            match self.wire.poll_receive(cx) {
                Poll::Pending => return false,
                Poll::Ready(Received::Frame(frame)) => {
                    bytes += frame.len();
                    self.take_in(&frame);
                }
                Poll::Ready(Received::Message(message)) => self.take_in_message(Ok(message)),
                Poll::Ready(Received::TooLong { limit }) => {
                    let why = format!("a frame is at most {limit} bytes long");
                    let error = RpcError::new(ErrorCode::INVALID_REQUEST, why);
                    self.take_in_malformed(Malformed::Request { id: None, error });
                }
                Poll::Ready(Received::Lost { id, error }) => self.lost(&id, error),
                Poll::Ready(Received::Held { id }) => {
                    let now = Instant::now().into_std();
                    self.peer.shared.lock().mux.hold(now, &id);
                }
                Poll::Ready(Received::Released { id }) => {
                    let now = Instant::now().into_std();
                    self.peer.shared.lock().mux.release(now, &id);
                }
                Poll::Ready(Received::Waiting { id, until }) => {
                    let until = until.map(Instant::into_std);
                    self.peer.shared.lock().mux.handle_wait(until, &id);
                }
                Poll::Ready(Received::Missed) => self.missed(),
                Poll::Ready(Received::Reset) => self.reset(),
                Poll::Ready(Received::StreamLost { error }) => self.peer.notices().lose(error),
                Poll::Ready(Received::End) => {
                    self.input_ended();
                    return true;
                }
                Poll::Ready(Received::Broken(error)) => {
                    self.broken(error);
                    return true;
                }
            }
        }
        true
    }

    fn take_in(&mut self, frame: &Bytes) {
        if is_batch(frame) && self.serving.accepts_batches() {
            let account = &self.peer.shared.account;
            match decode_batch(frame, account.limits().batch_messages) {
                Ok(parts) => parts
                    .into_iter()
                    .for_each(|part| self.take_in_message(part)),
                Err(refused) => {
                    if let BatchError::TooLong { max } = refused {
                        account.meters().refuse(Limit::BatchMessages, max);
                    }
                    self.take_in_malformed(refused.into());
                }
            }
        } else {
            self.take_in_message(Message::decode(frame));
        }
    }

    fn take_in_message(&mut self, message: Result<Message, Malformed>) {
        match message {
            Ok(Message::Request(request)) if self.serving.answers_nothing() => {
                // Ignored, not refused: on stdio a modern client must not write responses.
                let method = shortened(&request.method).to_string();
                tracing::warn!(
                    method,
                    "ignored a request of the server, which its version does not have"
                );
                let error = format!(
                    "the server sent the request `{method}`, which its version does not have"
                );
                self.peer.notices().overhear_error(&Error::protocol(error));
            }
            Ok(message) => {
                let now = Instant::now().into_std();
                self.peer.shared.lock().mux.handle_message(now, message);
            }
            Err(malformed) => self.take_in_malformed(malformed),
        }
    }

    fn take_in_malformed(&mut self, malformed: Malformed) {
        let what = shortened(&malformed).to_string();
        tracing::warn!(malformed = what, "a frame was no message");
        let error = Error::protocol(format!("a frame was no message: {what}"));
        self.peer.notices().overhear_error(&error);
        if matches!(malformed, Malformed::Request { id: None, .. }) && !self.serving.is_server() {
            return; // servers print to their output by mistake, and a client has no answer to that
        }
        self.peer.shared.lock().mux.handle_malformed(malformed);
    }

    fn lost(&mut self, id: &RequestId, error: Error) {
        let mut state = self.peer.shared.lock();
        let call = state.mux.handle_lost(id);
        let mailbox = call.and_then(|call| state.mailboxes.get_mut(&call));
        let waker = mailbox.and_then(|mailbox| mailbox.lose(error));
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Notifications may have been lost: what they would have been about counts as changed.
    fn missed(&mut self) {
        let held = self.peer.shared.lock().legacy.held();
        for notification in legacy::everything_changed(held) {
            self.hear(&notification);
        }
    }

    /// The other side has forgotten what it asked and what it was asked to tell.
    fn reset(&mut self) {
        for cancel in self.serving.cancels() {
            let now = Instant::now().into_std();
            let mut state = self.peer.shared.lock();
            state.mux.handle_message(now, Message::from(cancel));
        }
        self.peer.with(|state| state.legacy.reset());
        self.peer.notices().reset();
        self.serving.restore_log_level();
    }

    /// Fails what is overdue. Whether the timer rang.
    fn expire(&mut self, cx: &mut Context<'_>) -> bool {
        let deadline = self
            .peer
            .shared
            .lock()
            .mux
            .poll_timeout()
            .map(Instant::from_std);
        let closing = match self.phase {
            Phase::Closing { until, .. } => Some(until),
            Phase::Running | Phase::Ended => None,
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
        self.peer.shared.lock().mux.handle_timeout(now.into_std());
        if closing.is_some_and(|until| until <= now) {
            self.end(End::Closed);
        }
        true
    }

    /// Hands out what the engine has to tell. Whether the wire was told anything.
    fn dispatch(&mut self) -> bool {
        let mut events = std::mem::take(&mut self.events);
        {
            let mut state = self.peer.shared.lock();
            events.extend(std::iter::from_fn(|| state.mux.poll_event()));
        }
        let mut told = false;
        for event in events.drain(..) {
            told |= matches!(event, Event::Cancelled { .. });
            self.handle(event);
        }
        self.events = events;
        self.serving.reap();
        told
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Settled { call, outcome } => {
                self.peer.deliver(call, |mailbox| mailbox.settle(outcome));
            }
            Event::Notified { call, notification } => {
                self.peer.notices().overhear(&notification);
                let account = &self.peer.shared.account;
                self.peer
                    .deliver(call, |mailbox| mailbox.notify(notification, account));
            }
            Event::Request { id, method, params } => self.serving.begin(id, method, params),
            Event::Cancelled { id, reason } => {
                let (request, reason) = (id.request_id(), reason.as_deref().map(shortened));
                tracing::debug!(id = %shortened(request), reason = ?reason, "the caller gave up");
                self.serving.cancel(&id);
                self.wire.cancelled(id.request_id());
            }
            Event::Notification(notification) => self.hear(&notification),
            Event::Oddity(Oddity::ErrorWithoutId(error)) => {
                let what = shortened(&error);
                tracing::warn!(error = %what, "the other side refused something without saying what");
                self.peer.notices().overhear_error(&Error::Peer(error));
            }
            Event::Oddity(Oddity::Overload(id, overload)) => self.overloaded(&id, overload),
            Event::Oddity(oddity) => {
                tracing::debug!(oddity = ?shortened(oddity), "the other side did something odd");
            }
            _ => {}
        }
    }

    fn overloaded(&self, id: &RequestId, overload: Overload) {
        let account = &self.peer.shared.account;
        let limits = account.limits();
        let reached = match overload {
            Overload::QueuedBytes => account
                .meters()
                .refuse(Limit::OutputBytes, limits.output_bytes),
            _ => account
                .meters()
                .refuse(Limit::PeerRequests, limits.peer_requests),
        };
        tracing::debug!(id = %shortened(id), %reached, "refused a request");
    }

    fn hear(&mut self, notification: &Notification) {
        self.serving.hear(notification);
        self.peer.notices().publish(notification);
    }

    /// Moves messages onto the wire while there is room. Whether any moved.
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
            let Some(Outgoing {
                message, within, ..
            }) = self.peer.shared.lock().mux.poll_outgoing()
            else {
                break;
            };
            match within {
                Some(within) => self.wire.send_within(within.request_id(), &message),
                None => self.wire.send(&message),
            }
            sent = true;
        }
        if let Poll::Ready(Err(error)) = self.wire.poll_flush(cx) {
            self.broken(error);
            return true;
        }
        sent
    }

    /// Looks whether a close that somebody asked for is done, or the other side has to be given up.
    fn consider_ending(&mut self, cx: &mut Context<'_>) {
        let (closing, sizes, is_choked) = {
            let state = self.peer.shared.lock();
            (state.closing, state.mux.sizes(), state.mux.is_choked())
        };
        self.output.set(sizes.queued_bytes);
        if is_choked {
            return self.choked();
        }
        if let (Phase::Running, Some(how)) = (self.phase, closing) {
            let (Closing::Flush(limit) | Closing::Drain(limit)) = how;
            self.phase = Phase::Closing {
                until: instant_after(Instant::now(), limit),
                input_ended: false,
            };
            self.serving.shut_down();
            cx.waker().wake_by_ref();
            return;
        }
        let Phase::Closing { input_ended, .. } = self.phase else {
            return;
        };
        let drains = input_ended || matches!(closing, Some(Closing::Drain(_)));
        let is_done = sizes.queued == 0 && (!drains || sizes.in_flight == 0);
        if is_done && self.wire.poll_close(cx).is_ready() {
            self.end(End::Closed);
        }
    }

    fn choked(&mut self) {
        let account = &self.peer.shared.account;
        let limit = account.limits().output_bytes;
        let reached = account.meters().refuse(Limit::OutputBytes, limit);
        let why = "the other side keeps sending requests and does not read the answers";
        tracing::warn!(%reached, "closed the wire: {why}");
        self.broken(io::Error::other(why));
    }

    /// The other side will say nothing more. It may still want the answers to what it asked, those
    /// included that sit in the wire's buffer.
    fn input_ended(&mut self) {
        let until = match self.phase {
            Phase::Closing { until, .. } => until,
            Phase::Running | Phase::Ended => Instant::now() + AFTER_INPUT,
        };
        self.phase = Phase::Closing {
            until,
            input_ended: true,
        };
        self.serving.shut_down();
    }

    fn broken(&mut self, error: io::Error) {
        if self.phase == Phase::Ended {
            return; // a wire that was closed cannot be written to, and that is no failure
        }
        tracing::debug!(%error, "the wire broke");
        if let Phase::Closing {
            input_ended: true, ..
        } = self.phase
        {
            // It said its last word and left; that it takes in nothing any more is no failure.
            return self.end(End::Closed);
        }
        self.peer
            .shared
            .lock()
            .failure
            .get_or_insert(Arc::new(error));
        self.end(End::Broken);
    }

    fn end(&mut self, end: End) {
        if self.phase == Phase::Ended {
            return;
        }
        self.phase = Phase::Ended;
        self.peer.shared.lock().mux.handle_end(end);
        self.dispatch();
        self.serving.stop();
        self.output.set(0);
        self.peer.notices().end();
        self.peer.shared.ended.send_replace(true);
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.end(End::Closed);
    }
}

/// How many turns a driver takes before it lets others have theirs.
const MOST_TURNS: usize = 8;
/// How many frames it takes in before it looks at anything else.
const MOST_FRAMES: usize = 64;
/// How many bytes of frames it takes in before it looks at anything else; one frame may be longer.
const MOST_BYTES: usize = 256 * 1024;
/// How long handlers may go on after the input has ended.
const AFTER_INPUT: Duration = Duration::from_secs(2);
