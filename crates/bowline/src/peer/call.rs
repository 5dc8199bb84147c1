//! Our side of an exchange over a wire: a future whose drop is the cancel.

use std::borrow::Cow;
use std::task::{self, Poll, Waker};
use std::time::Duration;

use bowline_core::Notification;
use bowline_core::era::{Dialect, Request, unseal};
use bowline_core::mux::{CallId, End, Failure, Overdue, Reason};
use bowline_types::{Json, RequestId};

use super::Peer;
use super::unread::{Unread, WhenFull};
use crate::Error;
use crate::exchange::{Answer, Ongoing, Step};
use crate::limits::Account;

/// What has arrived for one call and was not picked up yet.
pub(super) struct Mailbox {
    notifications: Unread,
    when_full: WhenFull,
    outcome: Option<Ended>,
    waker: Option<Waker>,
}

/// How a call ended.
enum Ended {
    /// As the engine tells it.
    Settled(Result<Json, Failure>),
    /// Its request was lost, as the wire tells it.
    Lost(Error),
}

impl Mailbox {
    pub(super) fn new(when_full: WhenFull) -> Self {
        Self {
            notifications: Unread::default(),
            when_full,
            outcome: None,
            waker: None,
        }
    }

    /// Takes in a notification; returns whom to wake, once the lock is released.
    pub(super) fn notify(
        &mut self,
        notification: Notification,
        account: &Account,
    ) -> Option<Waker> {
        let is_news = self
            .notifications
            .push(notification, self.when_full, account);
        self.waker.take_if(|_| is_news)
    }

    pub(super) fn settle(&mut self, outcome: Result<Json, Failure>) -> Option<Waker> {
        self.outcome = Some(Ended::Settled(outcome));
        self.waker.take()
    }

    pub(super) fn lose(&mut self, error: Error) -> Option<Waker> {
        self.outcome = Some(Ended::Lost(error));
        self.waker.take()
    }
}

/// A request that is on its way. Dropping it before it is answered cancels the request.
pub(super) struct Call {
    peer: Peer,
    call: CallId,
    id: RequestId,
    method: Cow<'static, str>,
    dialect: &'static Dialect,
}

impl Call {
    pub(super) fn new(peer: Peer, call: CallId, id: RequestId, request: &Request) -> Self {
        let (method, dialect) = (request.method.clone(), request.caller.dialect);
        Self {
            peer,
            call,
            id,
            method,
            dialect,
        }
    }

    fn abandon(&self, why: &Reason) {
        let mailbox = self.peer.with(|state| {
            state.mux.abandon(self.call, why);
            state.mailboxes.remove(&self.call)
        });
        drop(mailbox); // it holds a waker: not under the lock
    }

    fn answer(&self, outcome: Result<Json, Failure>) -> Result<Answer, Error> {
        let outcome = match outcome {
            Ok(result) => Ok(result),
            Err(Failure::Peer(error)) => Err(error),
            Err(Failure::Malformed(why)) => return Err(Error::protocol(why)),
            Err(Failure::Timeout(Overdue::Idle(after) | Overdue::Total(after))) => {
                return Err(Error::Timeout { after });
            }
            Err(Failure::Ended(End::Closed)) => return Err(Error::Closed),
            Err(Failure::Ended(End::Broken)) => return Err(self.peer.end_error()),
            Err(Failure::Unsubscribed) => {
                return Err(Error::Cancelled {
                    reason: "the server ended it".into(),
                });
            }
            Err(other) => return Err(Error::protocol(format!("{other:?}"))),
        };
        Answer::from_unsealed(unseal(&self.method, self.dialect, &[], outcome))
    }
}

impl Ongoing for Call {
    fn poll_step(&mut self, cx: &mut task::Context<'_>) -> Poll<Step> {
        let waker = cx.waker().clone();
        let mut state = self.peer.shared.lock();
        let Some(mailbox) = state.mailboxes.get_mut(&self.call) else {
            drop(state);
            return Poll::Ready(Step::Answered(Err(Error::Closed)));
        };
        if let Some(notification) = mailbox.notifications.pop() {
            drop(state);
            return Poll::Ready(Step::Notification(notification));
        }
        if mailbox.notifications.has_lost() {
            drop(state);
            self.abandon(&Reason::Given("the listener fell behind".into()));
            return Poll::Ready(Step::Answered(Err(Error::Lagged)));
        }
        let Some(outcome) = mailbox.outcome.take() else {
            let old = mailbox.waker.replace(waker);
            drop(state);
            drop(old);
            return Poll::Pending;
        };
        let mailbox = state.mailboxes.remove(&self.call);
        drop(state);
        drop(mailbox);
        Poll::Ready(Step::Answered(match outcome {
            Ended::Settled(outcome) => self.answer(outcome),
            Ended::Lost(error) => Err(error),
        }))
    }

    fn request_id(&self) -> Option<&RequestId> {
        Some(&self.id)
    }

    fn paused(&self) -> Duration {
        Duration::ZERO
    }

    fn cancel(self: Box<Self>, reason: String) {
        self.abandon(&Reason::Given(reason));
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.abandon(&Reason::Dropped); // nothing happens if it is settled or cancelled already
    }
}
