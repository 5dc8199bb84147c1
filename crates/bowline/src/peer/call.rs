//! [`WireCall`], an exchange over a wire that this side started; dropping it cancels the request.

use std::borrow::Cow;
use std::task::{self, Poll, Waker};
use std::time::Duration;

use bowline_core::Notification;
use bowline_core::era::{Dialect, Request, unseal};
use bowline_core::mux::{AbandonReason, CallFailure, CallId, CallTimeout, Mux, WireEnd};
use bowline_types::{DiscoverRequest, Json, Method, RequestId};
use tokio::time::Instant;

use super::unread_queue::UnreadQueue;
use super::{Peer, legacy};
use crate::Error;
use crate::exchange::{Answer, ExchangeEvent, OverflowPolicy, PausedTime, PollExchange};
use crate::limits::Account;

/// The received notifications and outcome of one call, until the call is polled.
pub(super) struct Mailbox {
    notifications: UnreadQueue,
    overflow_policy: OverflowPolicy,
    outcome: Option<CallEnd>,
    waker: Option<Waker>,
    pub(super) pauses: CallPauses,
}

/// The pauses of the timeouts of one call.
#[derive(Clone, Copy, Default)]
pub(super) struct CallPauses {
    /// Those of this call alone, without the time in which all calls were paused.
    own: PausedTime,
    /// How long all calls were paused before this one started.
    before: Duration,
}

impl CallPauses {
    pub(super) fn start(now: Instant, mux: &Mux) -> Self {
        let (own, before) = (PausedTime::default(), mux.all_paused_for(now.into_std()));
        Self { own, before }
    }

    pub(super) fn begin(&mut self, now: Instant, mux: &Mux) {
        self.own.begin(now - mux.all_paused_for(now.into_std()));
    }

    pub(super) fn end(&mut self, now: Instant, mux: &Mux) {
        self.own.end(now - mux.all_paused_for(now.into_std()));
    }

    fn total(&self, now: Instant, mux: &Mux) -> Duration {
        let all = mux.all_paused_for(now.into_std());
        self.own.total(now - all) + all.saturating_sub(self.before)
    }
}

/// How a call ended.
enum CallEnd {
    /// With the outcome of the `Mux`.
    Settled(Result<Json, CallFailure>),
    /// The wire failed to carry the request or its answer.
    Lost(Error),
}

impl Mailbox {
    pub(super) fn new(overflow_policy: OverflowPolicy) -> Self {
        Self {
            notifications: UnreadQueue::default(),
            overflow_policy,
            outcome: None,
            waker: None,
            pauses: CallPauses::default(),
        }
    }

    /// Queues a notification. Returns the waker, to be woken after the lock is released.
    pub(super) fn notify(
        &mut self,
        notification: Notification,
        account: &Account,
    ) -> Option<Waker> {
        let is_news = self
            .notifications
            .push(notification, self.overflow_policy, account);
        self.waker.take_if(|_| is_news)
    }

    pub(super) fn settle(&mut self, outcome: Result<Json, CallFailure>) -> Option<Waker> {
        self.outcome = Some(CallEnd::Settled(outcome));
        self.waker.take()
    }

    pub(super) fn fail(&mut self, error: Error) -> Option<Waker> {
        self.outcome = Some(CallEnd::Lost(error));
        self.waker.take()
    }
}

/// A call in progress. Dropping it before it is answered cancels the request.
pub(super) struct WireCall {
    peer: Peer,
    call: CallId,
    id: RequestId,
    method: Cow<'static, str>,
    dialect: &'static Dialect,
    /// Its pauses; in its mailbox until it ends.
    pauses: Option<CallPauses>,
}

impl WireCall {
    pub(super) fn new(peer: Peer, call: CallId, id: RequestId, request: &Request) -> Self {
        let (method, dialect) = (request.method.clone(), request.caller.dialect);
        Self {
            peer,
            call,
            id,
            method,
            dialect,
            pauses: None,
        }
    }

    fn abandon(&self, reason: &AbandonReason) {
        let mailbox = self.peer.with(|state| {
            state.mux.abandon(self.call, reason);
            state.mailboxes.remove(&self.call)
        });
        drop(mailbox); // contains a waker, which must not be dropped under the lock
    }

    fn answer(&self, outcome: Result<Json, CallFailure>) -> Result<Answer, Error> {
        let outcome = match outcome {
            Ok(result) => Ok(result),
            Err(CallFailure::Peer(error)) => Err(error),
            Err(CallFailure::Malformed(why)) => return Err(Error::protocol(why)),
            Err(CallFailure::Timeout(CallTimeout::Idle(after) | CallTimeout::Total(after))) => {
                return Err(Error::Timeout { after });
            }
            Err(CallFailure::Ended(WireEnd::Closed)) => return Err(Error::Closed),
            Err(CallFailure::Ended(WireEnd::Broken)) => return Err(self.peer.end_error()),
            Err(CallFailure::Unsubscribed) => {
                return Err(Error::Cancelled {
                    reason: "the server ended the subscription".into(),
                });
            }
            Err(other) => return Err(Error::protocol(format!("{other:?}"))),
        };
        let answer = Answer::from_unsealed(unseal(&self.method, self.dialect, outcome));
        if self.method == DiscoverRequest::NAME
            && !self.dialect.is_modern()
            && let Ok(Answer::Complete(introduction)) = &answer
        {
            legacy::remember_capabilities(&self.peer, introduction);
        }
        answer
    }
}

impl PollExchange for WireCall {
    fn poll_event(&mut self, cx: &mut task::Context<'_>) -> Poll<ExchangeEvent> {
        // Cloned before locking, like old wakers are dropped after unlocking: a waker is foreign code.
        let waker = cx.waker().clone();
        let mut state = self.peer.shared.state.lock();
        let Some(mailbox) = state.mailboxes.get_mut(&self.call) else {
            drop(state);
            return Poll::Ready(ExchangeEvent::Answered(Err(Error::Closed)));
        };
        if let Some(notification) = mailbox.notifications.pop() {
            drop(state);
            return Poll::Ready(ExchangeEvent::Notification(notification));
        }
        if mailbox.notifications.has_overflowed() {
            drop(state);
            self.abandon(&AbandonReason::Cancelled("subscription lagged".into()));
            return Poll::Ready(ExchangeEvent::Answered(Err(Error::Lagged)));
        }
        let Some(outcome) = mailbox.outcome.take() else {
            let old = mailbox.waker.replace(waker);
            drop(state);
            drop(old);
            return Poll::Pending;
        };
        let mailbox = state.mailboxes.remove(&self.call);
        drop(state);
        self.pauses = mailbox.map(|mailbox| mailbox.pauses);
        Poll::Ready(ExchangeEvent::Answered(match outcome {
            CallEnd::Settled(outcome) => self.answer(outcome),
            CallEnd::Lost(error) => Err(error),
        }))
    }

    fn request_id(&self) -> Option<&RequestId> {
        Some(&self.id)
    }

    fn paused(&self) -> Duration {
        let state = self.peer.shared.state.lock();
        let in_mailbox = || Some(state.mailboxes.get(&self.call)?.pauses);
        let pauses = self.pauses.or_else(in_mailbox);
        pauses.map_or(Duration::ZERO, |it| it.total(Instant::now(), &state.mux))
    }

    fn cancel(self: Box<Self>, reason: String) {
        self.abandon(&AbandonReason::Cancelled(reason));
    }
}

impl Drop for WireCall {
    fn drop(&mut self) {
        self.abandon(&AbandonReason::Dropped); // no effect if it is already settled or cancelled
    }
}
