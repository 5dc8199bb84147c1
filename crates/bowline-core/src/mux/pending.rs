//! The table of our calls that are not settled.
//!
//! A call is found by its [`CallId`], by its request id and by its progress token. Ids and tokens are compared as
//! [`CorrelationKey`]s, so that `7` equals `"7"`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_types::{Json, Method, ProgressToken, RequestId, SubscriptionsListenRequest};

use super::deadlines::{CallDeadlines, DeadlineQueue};
use super::outbox::QueuePosition;
use super::{AbandonReason, CallRefused, CallTimeout, InFlightId, OutgoingMessage};
use crate::id::{CorrelationKey, RequestIdGenerator};
use crate::json::Params;
use crate::message::RawRequest;

/// Identifies a call of ours. Unlike a request id, it is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub(super) u64);

/// The options of a call.
#[derive(Clone, Debug)]
#[allow(
    clippy::exhaustive_structs,
    reason = "callers set some fields and take the others from `Default`"
)]
pub struct CallOptions {
    /// The request id; by default one is generated.
    ///
    /// An id is free again once its call has ended. Do not reuse that of an abandoned call: a late response to it would
    /// settle the new call.
    pub id: Option<RequestId>,
    /// The progress token in the params.
    pub progress_token: Option<ProgressToken>,
    /// The maximum time without progress.
    pub idle_timeout: Option<Duration>,
    /// The maximum time in total.
    pub timeout: Option<Duration>,
    /// Whether abandoning the call sends a cancel. [`AbandonReason::Cancelled`] always does.
    pub cancel_on_abandon: bool,
    /// The request of the peer whose handler makes the call; see [`OutgoingMessage`].
    pub within: Option<InFlightId>,
}

impl Default for CallOptions {
    fn default() -> Self {
        Self {
            id: None,
            progress_token: None,
            idle_timeout: None,
            timeout: None,
            cancel_on_abandon: true,
            within: None,
        }
    }
}

/// What the wire knows of the call that a message of the peer was sent for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arrival<'a> {
    /// Nothing.
    Unknown,
    /// It arrived on the stream of the request with this id.
    Within(&'a RequestId),
}

/// A pending call.
#[derive(Debug)]
pub(super) struct PendingCall {
    id: RequestId,
    token: Option<CorrelationKey>,
    deadlines: CallDeadlines,
    /// The request, until it is sent.
    unsent: Option<UnsentRequest>,
    may_be_cancelled: bool,
    cancel_on_abandon: bool,
    /// Whether notifications may carry its id, and the peer may cancel it.
    is_subscription: bool,
    /// Whether the peer may send requests and log messages for it.
    is_cause: bool,
    within: Option<InFlightId>,
}

/// A request that is not sent yet.
#[derive(Debug)]
struct UnsentRequest {
    method: Cow<'static, str>,
    params: Option<Json>,
    /// Its position in the outbox.
    position: QueuePosition,
}

impl PendingCall {
    pub(super) fn id(&self) -> &RequestId {
        &self.id
    }

    pub(super) fn is_unsent(&self) -> bool {
        self.unsent.is_some()
    }

    /// Returns the position of the request in the outbox, if it is not sent yet.
    pub(super) fn position(&self) -> Option<QueuePosition> {
        self.unsent.as_ref().map(|unsent| unsent.position)
    }

    /// Returns the id of its request, and the request of the peer that it belongs to.
    pub(super) fn into_ids(self) -> (RequestId, Option<InFlightId>) {
        (self.id, self.within)
    }

    /// Returns whether abandoning the call for this reason sends a cancel.
    pub(super) fn sends_cancel_for(&self, reason: &AbandonReason) -> bool {
        self.may_be_cancelled
            && (self.cancel_on_abandon || matches!(reason, AbandonReason::Cancelled(_)))
    }
}

#[derive(Debug, Default)]
pub(super) struct PendingCalls {
    calls: BTreeMap<CallId, PendingCall>,
    by_id: BTreeMap<CorrelationKey, CallId>,
    by_token: BTreeMap<CorrelationKey, CallId>,
    deadline_queue: DeadlineQueue,
    id_generator: RequestIdGenerator,
    last_call: u64,
}

impl PendingCalls {
    pub(super) fn set_request_id_prefix(&mut self, prefix: Arc<str>) {
        self.id_generator.set_prefix(prefix);
    }

    pub(super) fn insert(
        &mut self,
        now: Instant,
        method: Cow<'static, str>,
        params: Option<Json>,
        position: QueuePosition,
        options: CallOptions,
    ) -> Result<CallId, CallRefused> {
        let token = options.progress_token.as_ref().map(CorrelationKey::from);
        if token
            .as_ref()
            .is_some_and(|token| self.by_token.contains_key(token))
        {
            return Err(CallRefused::ProgressTokenInUse);
        }
        let id = match options.id {
            Some(id) if self.by_id.contains_key(&CorrelationKey::from(&id)) => {
                return Err(CallRefused::IdInUse(id));
            }
            Some(id) => id,
            None => self
                .id_generator
                .next_id(|key| self.by_id.contains_key(key)),
        };

        self.last_call += 1;
        let call = CallId(self.last_call);
        self.by_id.insert(CorrelationKey::from(&id), call);
        if let Some(token) = &token {
            self.by_token.insert(token.clone(), call);
        }
        let (idle, total) = (options.idle_timeout, options.timeout);
        let deadlines = self.deadline_queue.start(now, call, idle, total);
        let pending = PendingCall {
            id,
            token,
            deadlines,
            may_be_cancelled: !NEVER_CANCELLED.contains(&&*method),
            cancel_on_abandon: options.cancel_on_abandon,
            is_subscription: method == SubscriptionsListenRequest::NAME,
            is_cause: !NO_CAUSE.contains(&&*method),
            within: options.within,
            unsent: Some(UnsentRequest {
                method,
                params,
                position,
            }),
        };
        self.calls.insert(call, pending);
        Ok(call)
    }

    /// Returns the request of a pending call, which counts as sent from now on.
    pub(super) fn send(&mut self, call: CallId) -> Option<OutgoingMessage> {
        let pending = self.calls.get_mut(&call)?;
        let UnsentRequest { method, params, .. } = pending.unsent.take()?;
        let request = RawRequest {
            id: pending.id.clone(),
            method,
            params: params.map(Params::from),
        };
        Some(OutgoingMessage::new(request, pending.within.clone()))
    }

    /// Removes a call that ends without a response.
    pub(super) fn remove_unanswered(&mut self, call: CallId) -> Option<PendingCall> {
        let pending = self.remove(call)?;
        if !pending.is_unsent() {
            // A late response would settle a new call with the same id.
            self.id_generator.avoid(&CorrelationKey::from(&pending.id));
        }
        Some(pending)
    }

    fn remove(&mut self, call: CallId) -> Option<PendingCall> {
        let pending = self.calls.remove(&call)?;
        self.by_id.remove(&CorrelationKey::from(&pending.id));
        if let Some(token) = &pending.token {
            self.by_token.remove(token);
        }
        self.deadline_queue.remove(call, &pending.deadlines);
        Some(pending)
    }

    /// Removes the call with this request id, unless its request is not sent yet: a response cannot be meant for it.
    pub(super) fn take_answered(&mut self, id: &RequestId) -> Option<CallId> {
        let call = *self.by_id.get(&CorrelationKey::from(id))?;
        if self.calls.get(&call)?.is_unsent() {
            return None;
        }
        self.remove(call).map(|_| call)
    }

    /// Removes the `initialize` or `server/discover` call if it was sent and is the only pending call: an error without
    /// an id can then only be its response.
    pub(super) fn take_only_opening(&mut self) -> Option<CallId> {
        let (call, pending) = self.calls.first_key_value()?;
        let is_only = self.calls.len() == 1 && !pending.may_be_cancelled && !pending.is_unsent();
        let call = is_only.then_some(*call)?;
        self.remove(call).map(|_| call)
    }

    /// Returns the call with this progress token, and restarts its idle deadline.
    pub(super) fn record_progress(
        &mut self,
        now: Instant,
        token: &ProgressToken,
    ) -> Option<CallId> {
        let call = *self.by_token.get(&CorrelationKey::from(token))?;
        let pending = self.calls.get_mut(&call)?;
        self.deadline_queue
            .restart_idle(now, call, &mut pending.deadlines);
        Some(call)
    }

    /// Returns the subscription with this request id.
    pub(super) fn subscription(&self, id: &RequestId) -> Option<CallId> {
        let call = *self.by_id.get(&CorrelationKey::from(id))?;
        self.calls.get(&call)?.is_subscription.then_some(call)
    }

    /// Returns the call that the peer sent a request or log message for, if that is known.
    pub(super) fn cause(&self, arrival: Arrival<'_>) -> Option<CallId> {
        let is_sent = |pending: &PendingCall| !pending.is_unsent();
        if let Arrival::Within(id) = arrival {
            let call = *self.by_id.get(&CorrelationKey::from(id))?;
            return self.calls.get(&call).is_some_and(is_sent).then_some(call);
        }
        let mut causes = self
            .calls
            .iter()
            .filter(|(_, pending)| pending.is_cause && is_sent(pending));
        let (call, _) = causes.next()?;
        causes.next().is_none().then_some(*call)
    }

    /// Returns a call whose deadline has passed.
    pub(super) fn next_overdue(&mut self, now: Instant) -> Option<(CallId, CallTimeout)> {
        while let Some((_, call)) = self.deadline_queue.next().filter(|(at, _)| *at <= now) {
            let deadlines = &mut self.calls.get_mut(&call)?.deadlines;
            if let Some(timeout) = self.deadline_queue.overdue(now, call, deadlines) {
                return Some((call, timeout));
            }
        }
        None
    }

    /// Returns the call with this id and its first deadline, if that passes before `until`.
    pub(super) fn overdue_before(
        &self,
        until: Option<Instant>,
        id: &RequestId,
    ) -> Option<(CallId, CallTimeout)> {
        let call = *self.by_id.get(&CorrelationKey::from(id))?;
        let pending = self.calls.get(&call).filter(|it| !it.is_unsent())?;
        let (at, timeout) = self.deadline_queue.first(&pending.deadlines)?;
        until
            .is_none_or(|until| at < until)
            .then_some((call, timeout))
    }

    pub(super) fn pause_deadlines(&mut self, now: Instant, id: &RequestId) -> Option<CallId> {
        let call = *self.by_id.get(&CorrelationKey::from(id))?;
        // A request that is not sent cannot be delayed: this is about an earlier call with the same id.
        let pending = self.calls.get_mut(&call).filter(|it| !it.is_unsent())?;
        self.deadline_queue.pause(now, call, &mut pending.deadlines);
        Some(call)
    }

    pub(super) fn resume_deadlines(&mut self, now: Instant, id: &RequestId) -> Option<CallId> {
        let call = *self.by_id.get(&CorrelationKey::from(id))?;
        let pending = self.calls.get_mut(&call)?;
        self.deadline_queue
            .resume(now, call, &mut pending.deadlines);
        Some(call)
    }

    pub(super) fn pause_all(&mut self, now: Instant) {
        self.deadline_queue.pause_all(now);
    }

    pub(super) fn resume_all(&mut self, now: Instant) {
        for call in self.deadline_queue.resume_all(now) {
            if let Some(pending) = self.calls.get_mut(&call) {
                self.deadline_queue.remove(call, &pending.deadlines);
                self.deadline_queue.insert(call, &mut pending.deadlines);
            }
        }
    }

    pub(super) fn paused_for(&self, now: Instant) -> Duration {
        self.deadline_queue.paused_for(now)
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadline_queue.next().map(|(at, _)| at)
    }

    /// Removes the calls whose request was sent, and returns them in call order.
    pub(super) fn drain_sent(&mut self) -> Vec<CallId> {
        let is_sent =
            |(call, pending): (&CallId, &PendingCall)| (!pending.is_unsent()).then_some(*call);
        let sent: Vec<_> = self.calls.iter().filter_map(is_sent).collect();
        for call in &sent {
            self.remove(*call);
        }
        sent
    }

    /// Removes all calls and returns them in call order.
    pub(super) fn drain(&mut self) -> Vec<CallId> {
        self.by_id.clear();
        self.by_token.clear();
        self.deadline_queue.clear();
        std::mem::take(&mut self.calls).into_keys().collect()
    }

    pub(super) fn is_unsent(&self, call: CallId) -> bool {
        self.calls.get(&call).is_some_and(PendingCall::is_unsent)
    }

    pub(super) fn request_id(&self, call: CallId) -> Option<&RequestId> {
        self.calls.get(&call).map(PendingCall::id)
    }

    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }
}

/// Methods for which a server sends neither requests nor log messages.
const NO_CAUSE: [&str; 7] = [
    "initialize",
    "server/discover",
    "ping",
    "logging/setLevel",
    "resources/subscribe",
    "resources/unsubscribe",
    "subscriptions/listen",
];

/// The specification forbids cancelling `initialize`. How to cancel is known only after `server/discover`.
const NEVER_CANCELLED: [&str; 2] = ["initialize", "server/discover"];
