//! Calls of ours that are not settled yet.
//!
//! A call is found by its [`CallId`], by the id its answer names, and by its progress token. Ids and
//! tokens are compared in the coerced domain of [`CorrelationKey`].

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bowline_types::{Json, ProgressToken, RequestId};

use super::deadlines::{Deadline, Deadlines};
use super::outbox::Place;
use super::{InFlightId, Outgoing, Overdue, Reason, Refused};
use crate::id::{CorrelationKey, Minter};
use crate::json::Params;
use crate::message::RawRequest;

/// One call of ours. Never used twice, whatever happens to request ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub(super) u64);

/// What can be chosen about a call.
#[derive(Clone, Debug)]
#[allow(
    clippy::exhaustive_structs,
    reason = "a shell names what it chooses and leaves the rest"
)]
pub struct CallOptions {
    /// The id to use on the wire; otherwise one is minted.
    ///
    /// An id is free again once its call is over. Do not choose that of an abandoned call again, though:
    /// if the peer's answer was already under way, it is taken for the answer to the new call.
    pub id: Option<RequestId>,
    /// The progress token that the params carry.
    pub progress_token: Option<ProgressToken>,
    /// How long to wait while nothing is heard of the call.
    pub idle_timeout: Option<Duration>,
    /// How long to wait in all.
    pub total_timeout: Option<Duration>,
    /// Whether the peer is told when the call is abandoned. It is always told of a reason that is given.
    pub cancel_on_abandon: bool,
    /// Whether the call is a subscription: notifications may name it, and the peer may end it.
    pub is_subscription: bool,
    /// The request of the peer that the call is made for; see [`Outgoing`].
    pub within: Option<InFlightId>,
}

impl Default for CallOptions {
    fn default() -> Self {
        Self {
            id: None,
            progress_token: None,
            idle_timeout: None,
            total_timeout: None,
            cancel_on_abandon: true,
            is_subscription: false,
            within: None,
        }
    }
}

/// One call in the table.
#[derive(Debug)]
pub(super) struct Pending {
    id: RequestId,
    token: Option<CorrelationKey>,
    deadline: Deadline,
    /// The request, until it leaves.
    unsent: Option<Unsent>,
    may_be_cancelled: bool,
    cancel_on_abandon: bool,
    is_subscription: bool,
    within: Option<InFlightId>,
}

/// A request that has not left.
#[derive(Debug)]
struct Unsent {
    method: Cow<'static, str>,
    params: Option<Json>,
    /// Where it waits.
    place: Place,
}

impl Pending {
    pub(super) fn id(&self) -> &RequestId {
        &self.id
    }

    pub(super) fn is_unsent(&self) -> bool {
        self.unsent.is_some()
    }

    /// Where the request waits, if it has not left.
    pub(super) fn place(&self) -> Option<Place> {
        self.unsent.as_ref().map(|unsent| unsent.place)
    }

    pub(super) fn within(&self) -> Option<&InFlightId> {
        self.within.as_ref()
    }

    /// Whether the peer is told that the call is given up. Who gives a reason wants it to be heard.
    pub(super) fn is_cancelled_by(&self, why: &Reason) -> bool {
        self.may_be_cancelled && (self.cancel_on_abandon || matches!(why, Reason::Given(_)))
    }
}

#[derive(Debug, Default)]
pub(super) struct PendingCalls {
    calls: BTreeMap<CallId, Pending>,
    by_id: BTreeMap<CorrelationKey, CallId>,
    by_token: BTreeMap<CorrelationKey, CallId>,
    deadlines: Deadlines,
    minter: Minter,
    last_call: u64,
}

impl PendingCalls {
    pub(super) fn insert(
        &mut self,
        now: Instant,
        method: Cow<'static, str>,
        params: Option<Json>,
        place: Place,
        options: CallOptions,
    ) -> Result<CallId, Refused> {
        let token = options.progress_token.as_ref().map(CorrelationKey::from);
        if token
            .as_ref()
            .is_some_and(|token| self.by_token.contains_key(token))
        {
            return Err(Refused::ProgressTokenInUse);
        }
        let id = match options.id {
            Some(id) if self.by_id.contains_key(&CorrelationKey::from(&id)) => {
                return Err(Refused::IdInUse(id));
            }
            Some(id) => id,
            None => self.minter.mint(|key| self.by_id.contains_key(key)),
        };

        self.last_call += 1;
        let call = CallId(self.last_call);
        let mut deadline = Deadline::new(now, options.idle_timeout, options.total_timeout);
        self.by_id.insert(CorrelationKey::from(&id), call);
        if let Some(token) = &token {
            self.by_token.insert(token.clone(), call);
        }
        self.deadlines.insert(call, &mut deadline);
        let pending = Pending {
            id,
            token,
            deadline,
            may_be_cancelled: !NEVER_CANCELLED.contains(&&*method),
            cancel_on_abandon: options.cancel_on_abandon,
            is_subscription: options.is_subscription,
            within: options.within,
            unsent: Some(Unsent {
                method,
                params,
                place,
            }),
        };
        self.calls.insert(call, pending);
        Ok(call)
    }

    /// Hands out the request of a call that is still wanted, and counts it as sent.
    pub(super) fn send(&mut self, call: CallId) -> Option<Outgoing> {
        let pending = self.calls.get_mut(&call)?;
        let Unsent { method, params, .. } = pending.unsent.take()?;
        let request = RawRequest {
            id: pending.id.clone(),
            method,
            params: params.map(Params::from),
        };
        Some(Outgoing {
            message: request.into(),
            within: pending.within.clone(),
        })
    }

    /// Removes a call that is given up before its answer came.
    pub(super) fn give_up(&mut self, call: CallId) -> Option<Pending> {
        let pending = self.remove(call)?;
        if !pending.is_unsent() {
            self.minter.avoid(&CorrelationKey::from(&pending.id));
        }
        Some(pending)
    }

    fn remove(&mut self, call: CallId) -> Option<Pending> {
        let pending = self.calls.remove(&call)?;
        self.by_id.remove(&CorrelationKey::from(&pending.id));
        if let Some(token) = &pending.token {
            self.by_token.remove(token);
        }
        self.deadlines.remove(call, &pending.deadline);
        Some(pending)
    }

    /// Removes the call that an answer names. What was not sent cannot have been answered.
    pub(super) fn take_answered(&mut self, id: &RequestId) -> Option<CallId> {
        let call = *self.by_id.get(&CorrelationKey::from(id))?;
        if self.calls.get(&call)?.is_unsent() {
            return None;
        }
        self.remove(call).map(|_| call)
    }

    /// Removes the opening, if it was sent and is all that waits for an answer: an error that names no
    /// request can then be about nothing else.
    pub(super) fn take_lone_opening(&mut self) -> Option<CallId> {
        let (call, pending) = self.calls.first_key_value()?;
        let is_lone = self.calls.len() == 1 && !pending.may_be_cancelled && !pending.is_unsent();
        let call = is_lone.then_some(*call)?;
        self.remove(call).map(|_| call)
    }

    /// The call that a progress token names; its idle deadline moves.
    pub(super) fn heard(&mut self, now: Instant, token: &ProgressToken) -> Option<CallId> {
        let call = *self.by_token.get(&CorrelationKey::from(token))?;
        let pending = self.calls.get_mut(&call)?;
        self.deadlines.heard(now, call, &mut pending.deadline);
        Some(call)
    }

    /// The subscription that has this id.
    pub(super) fn subscription(&self, id: &RequestId) -> Option<CallId> {
        let call = *self.by_id.get(&CorrelationKey::from(id))?;
        self.calls.get(&call)?.is_subscription.then_some(call)
    }

    /// A call whose deadline has passed.
    pub(super) fn next_overdue(&mut self, now: Instant) -> Option<(CallId, Overdue)> {
        while let Some((_, call)) = self.deadlines.next().filter(|(at, _)| *at <= now) {
            let deadline = &mut self.calls.get_mut(&call)?.deadline;
            if let Some(which) = self.deadlines.overdue(now, call, deadline) {
                return Some((call, which));
            }
        }
        None
    }

    /// The call with this id, if its deadline passes before `until`, and which that is.
    pub(super) fn overdue_by(
        &self,
        until: Option<Instant>,
        id: &RequestId,
    ) -> Option<(CallId, Overdue)> {
        let call = *self.by_id.get(&CorrelationKey::from(id))?;
        let pending = self.calls.get(&call).filter(|it| !it.is_unsent())?;
        let (at, which) = self.deadlines.first(&pending.deadline)?;
        until
            .is_none_or(|until| at < until)
            .then_some((call, which))
    }

    pub(super) fn hold(&mut self, now: Instant, id: &RequestId) {
        if let Some(call) = self.by_id.get(&CorrelationKey::from(id))
            && let Some(pending) = self.calls.get_mut(call)
            // What was not sent cannot be held up: this is about a predecessor with the same id.
            && !pending.is_unsent()
        {
            self.deadlines.hold(now, *call, &mut pending.deadline);
        }
    }

    pub(super) fn release(&mut self, now: Instant, id: &RequestId) {
        if let Some(call) = self.by_id.get(&CorrelationKey::from(id))
            && let Some(pending) = self.calls.get_mut(call)
        {
            self.deadlines.release(now, *call, &mut pending.deadline);
        }
    }

    pub(super) fn pause_idle(&mut self) {
        self.deadlines.pause_idle();
    }

    pub(super) fn resume_idle(&mut self, now: Instant) {
        for call in self.deadlines.resume_idle(now) {
            if let Some(pending) = self.calls.get_mut(&call) {
                self.deadlines.remove(call, &pending.deadline);
                self.deadlines.insert(call, &mut pending.deadline);
            }
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.next().map(|(at, _)| at)
    }

    /// Forgets all, in call order.
    pub(super) fn drain(&mut self) -> Vec<CallId> {
        self.by_id.clear();
        self.by_token.clear();
        self.deadlines.clear();
        std::mem::take(&mut self.calls).into_keys().collect()
    }

    pub(super) fn is_unsent(&self, call: CallId) -> bool {
        self.calls.get(&call).is_some_and(Pending::is_unsent)
    }

    pub(super) fn request_id(&self, call: CallId) -> Option<&RequestId> {
        self.calls.get(&call).map(Pending::id)
    }

    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }
}

/// Openings: the specification forbids cancelling the first, and the second decides what "cancel" means.
const NEVER_CANCELLED: [&str; 2] = ["initialize", "server/discover"];
