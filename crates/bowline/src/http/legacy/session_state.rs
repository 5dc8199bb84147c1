//! The state of one session, without lock and clock; `Session` locks it and passes the time.
//!
//! Wakers to wake and values to drop are collected, and released once the lock is free; see
//! [`SessionState::take_deferred`].

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use ::http::request::Parts;
use bowline_core::input::may_need_input;
use bowline_core::{Message, Notification, RawRequest, Response};
use bowline_types::{
    CancelledNotification, CancelledNotificationParams, Json, NotificationMethod, RequestId,
};
use bytes::Bytes;
use tokio::time::Instant;

use super::early_cancels::EarlyCancels;
use super::inline_list::InlineList;
use super::session::Session;
use super::session_record::RecordChange;
use super::streams::{
    AttachError, KeepEvents, ResponseForm, SessionStreams, StreamLayout, UNSOLICITED,
};
use crate::limits::{Account, Charge, ChargeKind};

/// The state under the lock of a session.
pub(super) struct SessionState {
    pub(super) streams: SessionStreams,
    layout: StreamLayout,
    inbox: VecDeque<InboxMessage>,
    early: EarlyCancels,
    driver: Option<Waker>,
    /// The number of open responses.
    readers: usize,
    /// When a GET last attached to a stream.
    attached_at: Instant,
    /// When a message was last received from the client or sent to it.
    last_active: Instant,
    /// When a response last closed, or orphaned calls were last cancelled.
    orphaned_since: Instant,
    /// Whether the client did more than open the session.
    is_used: bool,
    /// Updates of subscriptions that another replica has received, by the request that subscribes here. At most one for
    /// each subscription of the session record.
    awaited_updates: BTreeMap<RequestId, Message>,
    list_watch: ListWatchState,
    has_ended: bool,
    account: Arc<Account>,
    events: Charge,
    output: Charge,
    deferred: InlineList<DeferredRelease>,
}

/// When the engine is told to watch the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListWatchState {
    /// Never: it does when the client is initialized.
    OnInitialized,
    /// When a GET attaches. The client was initialized at this time.
    NotAttached {
        opened_at: Instant,
    },
    /// A GET was attached, possibly after a gap, and the engine does not know yet.
    Attached {
        is_after_gap: bool,
    },
    Watching,
}

/// A decoded POST to a session.
pub(super) struct DecodedPost {
    /// The well-formed messages, in order. No two requests have the same id.
    messages: InlineList<Message>,
    /// Error responses to the malformed messages.
    refusals: Vec<Bytes>,
    /// The head of the POST, if it contains requests.
    head: Option<Arc<PostHead>>,
    charge: Charge,
}

/// The head of a POST, shared by its requests and charged until the last of them drops it. It also contains their
/// principal: the session's own, but with scopes that may have changed since the session was opened.
pub(super) struct PostHead {
    pub(super) parts: Arc<Parts>,
    #[allow(dead_code, reason = "held to be dropped")]
    charge: Charge,
}

/// A message that the driver has not received yet.
pub(super) struct InboxMessage {
    message: Message,
    /// The charge of the POST, if this is its last message: it is released when the driver has received all of them.
    charge: Option<Charge>,
}

/// Why a POST is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PostRejection {
    /// The session has ended.
    Ended,
    /// Too many messages wait for the driver.
    Full,
    /// An unanswered request has this id.
    InFlight(RequestId),
}

/// The timeouts of a session without an open response.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionTimeouts {
    pub(super) idle_timeout: Duration,
    pub(super) orphan_timeout: Duration,
}

/// The result of [`SessionState::handle_timeouts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeoutOutcome {
    /// The session continues; call `handle_timeouts` again at this time or after a change.
    NextDeadline(Option<Instant>),
    /// The session was idle for too long.
    Expired,
}

/// The rank of a session for eviction; the least is evicted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EvictionRank {
    pub(super) activity: Activity,
    last_active: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Activity {
    /// Opened and never used.
    Unused,
    Idle,
    /// A response is open.
    Read,
    /// A request is unanswered.
    Busy,
}

/// How long after the handshake a client that attaches its first GET is taken to have missed nothing.
const ATTACH_SOON: Duration = Duration::from_secs(10);

/// How long after a GET attached to a stream another GET without `Last-Event-ID` may take it over.
const TAKE_OVER_AFTER: Duration = Duration::from_secs(5);

/// The sizes of what a session holds.
#[cfg(test)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SessionSizes {
    pub(super) unanswered: Vec<RequestId>,
    pub(super) heads: usize,
    pub(super) inbox: usize,
    pub(super) readers: usize,
    pub(super) early: usize,
    pub(super) event_bytes: usize,
    pub(super) output_bytes: usize,
}

/// A value that is woken or dropped once the lock is free.
#[allow(dead_code, reason = "all but the wakers are held to be dropped")]
pub(super) enum DeferredRelease {
    Waker(Waker),
    Charge(Charge),
    Head(PostHead),
    Inbox(VecDeque<InboxMessage>),
}

impl DeferredRelease {
    pub(super) fn release(self) {
        if let Self::Waker(waker) = self {
            waker.wake();
        }
    }
}

impl SessionState {
    pub(super) fn new(
        layout: StreamLayout,
        streams: SessionStreams,
        account: Arc<Account>,
        now: Instant,
    ) -> Self {
        Self {
            streams,
            layout,
            // Most sessions are idle, and never had more than one message queued.
            inbox: VecDeque::with_capacity(1),
            early: EarlyCancels::default(),
            driver: None,
            readers: 0,
            attached_at: now,
            last_active: now,
            orphaned_since: now,
            is_used: false,
            list_watch: ListWatchState::OnInitialized,
            awaited_updates: BTreeMap::new(),
            has_ended: false,
            events: account.empty_charge(ChargeKind::Event),
            output: account.empty_charge(ChargeKind::Output),
            account,
            deferred: InlineList::default(),
        }
    }

    /// Checks whether a POST can be accepted. Changes no state, so that a rejected POST leaves no traces.
    pub(super) fn check(&self, post: &DecodedPost) -> Result<(), PostRejection> {
        if self.has_ended {
            return Err(PostRejection::Ended);
        }
        if self.inbox.len() >= self.account.limits().peer_requests {
            return Err(PostRejection::Full);
        }
        match self.streams.find_in_flight(post.request_ids()) {
            Some(id) => Err(PostRejection::InFlight(id.clone())),
            None => Ok(()),
        }
    }

    /// Accepts a POST that was [checked](Self::check) and, given a form, opens a stream for its answers. Returns the
    /// key and the reader of the stream.
    pub(super) fn accept(
        &mut self,
        now: Instant,
        post: DecodedPost,
        form: Option<ResponseForm>,
    ) -> Option<(u64, u64)> {
        self.last_active = now;
        self.is_used |= post.uses_session();
        let expired = self.early.expire(now).map(DeferredRelease::Charge);
        self.deferred.extend(expired);
        let opened = match (self.layout, form) {
            (StreamLayout::StreamableHttp, Some(form)) => {
                self.readers += 1;
                Some(self.streams.open(form, post.refusals))
            }
            (StreamLayout::StreamableHttp, None) | (StreamLayout::HttpSse, _) => None,
        };
        let key = match self.layout {
            StreamLayout::StreamableHttp => opened.map(|(key, _)| key),
            StreamLayout::HttpSse => Some(UNSOLICITED),
        };
        let queued = self.inbox.len();
        let mut cancelled = InlineList::default();
        post.messages.for_each(|message| {
            match &message {
                Message::Request(raw) => {
                    self.streams.expect_answer(raw, key, post.head.as_ref());
                    // A client expects no requests on the streams of others, such as `tools/list`.
                    if let Some(key) = key.filter(|_| may_need_input(&raw.method)) {
                        self.streams.allow_carrying(key);
                    }
                    if let Some(charge) = self.early.record_request(&raw.id) {
                        self.deferred.push(DeferredRelease::Charge(charge));
                        cancelled.push(raw.id.clone());
                        return;
                    }
                }
                Message::Notification(notification) => {
                    if let Some(id) = cancelled_request(notification)
                        && !self.streams.is_in_flight(&id)
                        && self.early.keep(now, &id, &self.account)
                    {
                        return;
                    }
                }
                Message::Response(response) => {
                    if let Some(id) = &response.id {
                        self.streams.answered(id);
                    }
                }
            }
            let charge = None;
            self.inbox.push_back(InboxMessage { message, charge });
        });
        match self.inbox.range_mut(queued..).last() {
            Some(last) => last.charge = Some(post.charge),
            None => self.deferred.push(DeferredRelease::Charge(post.charge)),
        }
        cancelled.for_each(|id| self.end_cancelled(&id));
        self.defer_head_drop(post.head);
        self.wake_driver();
        opened
    }

    /// Returns whether a cancel waits for its request.
    pub(super) fn has_early_cancels(&self) -> bool {
        self.early.next_expiry().is_some()
    }

    /// Takes the next message for the driver, and a charge to drop once the lock is free.
    pub(super) fn next_message(&mut self) -> Option<(Message, Option<Charge>)> {
        let InboxMessage { message, charge } = self.inbox.pop_front()?;
        Some((message, charge))
    }

    /// Stores the waker of the driver. Returns the one it replaces, to drop once the lock is free.
    #[must_use = "drop it once the lock is free"]
    pub(super) fn wait_for_message(&mut self, driver: &Waker) -> Option<Waker> {
        match &self.driver {
            Some(own) if own.will_wake(driver) => None,
            _ => self.driver.replace(driver.clone()),
        }
    }

    /// Takes the head of the POST that a request came with, for its handler.
    pub(super) fn take_head(&mut self, request: &RequestId) -> Option<Arc<PostHead>> {
        self.streams.take_head(request)
    }

    /// Puts an outbound message onto its stream. Returns what a request that it accepts changes in the record of the
    /// session.
    pub(super) fn route(
        &mut self,
        now: Instant,
        within: Option<&RequestId>,
        message: &Message,
    ) -> Option<RecordChange> {
        self.last_active = now;
        if let Message::Response(response) = message
            && let Some(update) = self.take_awaited_update(response)
        {
            return self.route(now, None, &update);
        }
        let routed = self.streams.route(within, message);
        self.defer_wake(routed.wake);
        self.defer_head_drop(routed.head);
        if let Some(message) = routed.answer {
            self.queue_message(message);
        }
        routed.change.map(|change| *change)
    }

    /// Puts the cancel of a request of the server onto the stream of that request.
    pub(super) fn route_cancel(&mut self, now: Instant, request: &RequestId, cancel: &Message) {
        self.last_active = now;
        let routed = self.streams.route_cancel(request, cancel);
        self.defer_wake(routed.wake);
    }

    /// Ends a request that the client cancelled.
    pub(super) fn cancelled(&mut self, now: Instant, request: &RequestId) {
        self.last_active = now;
        self.end_cancelled(request);
    }

    fn end_cancelled(&mut self, request: &RequestId) {
        let routed = self.streams.end_cancelled(request);
        self.defer_wake(routed.wake);
        self.defer_head_drop(routed.head);
    }

    /// Queues messages for the driver that the client did not send here.
    pub(super) fn queue_messages(&mut self, messages: Vec<Message>) {
        messages
            .into_iter()
            .for_each(|message| self.queue_message(message));
    }

    /// Queues requests on behalf of the client, for what it has set in another live state. For each new subscription
    /// that the GET stream is here for, `updates` has an update to send once it is in effect: the resource may have
    /// changed since the other replica has answered the client.
    pub(super) fn queue_restored(
        &mut self,
        requests: Vec<Message>,
        updates: BTreeMap<RequestId, Message>,
    ) {
        self.awaited_updates.extend(updates);
        self.queue_messages(requests);
    }

    /// Takes the update that waits for this answer. Without a reader of the GET stream nothing was missed.
    fn take_awaited_update(&mut self, response: &Response) -> Option<Message> {
        if self.awaited_updates.is_empty() {
            return None;
        }
        let update = self.awaited_updates.remove(response.id.as_ref()?)?;
        let is_missed = response.outcome.is_ok() && self.streams.has_reader(UNSOLICITED);
        is_missed.then_some(update)
    }

    /// Queues a notification of the client that another replica has received. A cancel is kept if its request may still
    /// arrive here.
    pub(super) fn hear(&mut self, now: Instant, notification: Notification) {
        if self.inbox.len() >= self.account.limits().peer_requests {
            tracing::warn!("too many messages of other replicas; dropped one");
            return;
        }
        match cancelled_request(&notification) {
            Some(id) if !self.streams.is_in_flight(&id) => {
                self.early.keep(now, &id, &self.account);
            }
            _ => self.queue_message(notification.into()),
        }
    }

    /// Ends the response that reads the GET stream.
    pub(super) fn end_get_stream(&mut self) {
        let reader = self.streams.detach_reader(UNSOLICITED);
        self.defer_wake(reader);
    }

    /// Queues a message for the driver that the client did not send.
    fn queue_message(&mut self, message: Message) {
        let charge = None;
        self.inbox.push_back(InboxMessage { message, charge });
        self.wake_driver();
    }

    fn wake_driver(&mut self) {
        let driver = self.driver.take();
        self.defer_wake(driver);
    }

    fn defer_wake(&mut self, waker: Option<Waker>) {
        self.deferred.extend(waker.map(DeferredRelease::Waker));
    }

    /// Defers the drop of a head, unless it is still shared.
    fn defer_head_drop(&mut self, head: Option<Arc<PostHead>>) {
        let head = head.and_then(Arc::into_inner);
        self.deferred.extend(head.map(DeferredRelease::Head));
    }

    /// Attaches a response to a stream, to read after position `after` or from where the last one stopped.
    ///
    /// Another response may still be attached, because the server does not detect every dead connection. A client that
    /// sends `Last-Event-ID` has lost the stream and takes it over. One without may have lost it before the first
    /// event: it takes over after [`TAKE_OVER_AFTER`], or else two clients would displace each other endlessly.
    pub(super) fn attach(
        &mut self,
        now: Instant,
        key: u64,
        after: Option<u64>,
    ) -> Result<u64, AttachError> {
        let is_due = self.layout == StreamLayout::StreamableHttp
            && now.saturating_duration_since(self.attached_at) >= TAKE_OVER_AFTER;
        let takes_over = after.is_some() || is_due;
        let (reader, replaced) = self.streams.attach(key, after, takes_over)?;
        self.attached_at = now;
        self.is_used = true;
        self.readers += 1;
        self.defer_wake(replaced);
        if key == UNSOLICITED {
            self.listener_attached(now);
        }
        Ok(reader)
    }

    /// Attaches a GET that continues a stream of another live state, after `updates`. It takes over.
    pub(super) fn attach_after_gap(
        &mut self,
        now: Instant,
        updates: &[Message],
    ) -> Result<u64, AttachError> {
        // What is stored for it was sent before: the client is told of all changes anyway.
        let end = self.streams.written(UNSOLICITED);
        let (reader, replaced) = self.streams.attach(UNSOLICITED, Some(end), true)?;
        self.attached_at = now;
        self.is_used = true;
        self.readers += 1;
        self.defer_wake(replaced);
        self.list_watch = ListWatchState::Attached { is_after_gap: true };
        self.wake_driver();
        for update in updates {
            self.route(now, None, update);
        }
        Ok(reader)
    }

    /// Starts to watch the lists when a GET attaches; `opened_at` is when the client was initialized.
    pub(super) fn watch_on_attach(&mut self, opened_at: Instant) {
        self.list_watch = ListWatchState::NotAttached { opened_at };
    }

    fn listener_attached(&mut self, now: Instant) {
        if let ListWatchState::NotAttached { opened_at } = self.list_watch {
            // Most clients attach right after the handshake; the others may have missed a change.
            let is_after_gap = now.saturating_duration_since(opened_at) > ATTACH_SOON;
            self.list_watch = ListWatchState::Attached { is_after_gap };
            self.wake_driver();
        }
    }

    /// Takes the event that a GET was attached, for the engine.
    pub(super) fn take_attached(&mut self) -> Option<bool> {
        let ListWatchState::Attached { is_after_gap } = self.list_watch else {
            return None;
        };
        self.list_watch = ListWatchState::Watching;
        Some(is_after_gap)
    }

    pub(super) fn detach(&mut self, now: Instant, key: u64, reader: u64) {
        self.streams.detach(key, reader);
        self.readers -= 1;
        (self.last_active, self.orphaned_since) = (now, now);
    }

    /// Expires early cancels, cancels calls whose client is gone, and reports whether the session has expired.
    pub(super) fn handle_timeouts(
        &mut self,
        now: Instant,
        timeouts: SessionTimeouts,
    ) -> TimeoutOutcome {
        let expired = self.early.expire(now).map(DeferredRelease::Charge);
        self.deferred.extend(expired);
        let next = self.early.next_expiry();
        if self.readers > 0 {
            return TimeoutOutcome::NextDeadline(next);
        }
        let deadline = if self.streams.unanswered().len() > 0 {
            self.orphaned_since.checked_add(timeouts.orphan_timeout)
        } else {
            self.last_active.checked_add(timeouts.idle_timeout)
        };
        if deadline.is_none_or(|deadline| deadline > now) {
            return TimeoutOutcome::NextDeadline([next, deadline].into_iter().flatten().min());
        }
        if self.streams.unanswered().len() == 0 {
            return TimeoutOutcome::Expired;
        }
        self.cancel_all();
        // Calls that do not stop are cancelled again after another `orphan_timeout`.
        self.orphaned_since = now;
        TimeoutOutcome::NextDeadline(next)
    }

    fn cancel_all(&mut self) {
        let cancels: Vec<_> = self
            .streams
            .unanswered()
            .map(cancelled_notification)
            .collect();
        tracing::debug!(calls = cancels.len(), "cancelled calls of an absent client");
        cancels
            .into_iter()
            .for_each(|cancel| self.queue_message(cancel));
    }

    pub(super) fn eviction_rank(&self) -> EvictionRank {
        let activity = if self.streams.unanswered().len() > 0 {
            Activity::Busy
        } else if self.readers > 0 {
            Activity::Read
        } else if self.is_used {
            Activity::Idle
        } else {
            Activity::Unused
        };
        EvictionRank {
            activity,
            last_active: self.last_active,
        }
    }

    /// Returns the rank of its events for eviction, least first; `None` without events.
    pub(super) fn event_eviction_rank(&self) -> Option<(bool, Instant)> {
        let is_read = self.readers > 0;
        (self.streams.event_bytes() > 0).then_some((is_read, self.last_active))
    }

    /// Drops the oldest events until this many bytes are free, and returns how many were dropped.
    pub(super) fn drop_events(&mut self, bytes: usize, keep: KeepEvents) -> u64 {
        self.streams.drop_events(bytes, keep)
    }

    /// Ends the session. Events that open responses have not read yet are kept for them.
    pub(super) fn end(&mut self) {
        self.has_ended = true;
        let (wakers, heads) = self.streams.end();
        self.deferred
            .extend(wakers.into_iter().map(DeferredRelease::Waker));
        heads.for_each(|head| self.defer_head_drop(Some(head)));
        let early = self.early.clear().map(DeferredRelease::Charge);
        self.deferred.extend(early);
        let inbox = std::mem::take(&mut self.inbox);
        self.deferred.push(DeferredRelease::Inbox(inbox));
    }

    /// Returns the sizes of what the session holds.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> SessionSizes {
        SessionSizes {
            unanswered: self.streams.unanswered().cloned().collect(),
            heads: self.streams.heads(),
            inbox: self.inbox.len(),
            readers: self.readers,
            early: self.early.len(),
            event_bytes: self.streams.event_bytes(),
            output_bytes: self.streams.output_bytes(),
        }
    }

    /// Adjusts the charges to what is held, and takes the deferred values. Also returns whether event bytes have grown.
    pub(super) fn take_deferred(&mut self) -> (InlineList<DeferredRelease>, bool) {
        let (events, output) = (self.streams.event_bytes(), self.streams.output_bytes());
        let more_events = events > self.events.bytes();
        for (charge, bytes) in [(&mut self.events, events), (&mut self.output, output)] {
            match charge.bytes().checked_sub(bytes) {
                Some(0) => {}
                Some(freed) => self
                    .deferred
                    .push(DeferredRelease::Charge(charge.split(freed))),
                None => charge.set(bytes),
            }
        }
        (std::mem::take(&mut self.deferred), more_events)
    }
}

impl DecodedPost {
    /// Creates a decoded POST; `head_bytes` of the charge are for the head.
    pub(super) fn new(
        messages: InlineList<Message>,
        refusals: Vec<Bytes>,
        head: Parts,
        mut charge: Charge,
        head_bytes: usize,
    ) -> Self {
        let is_request = |message: &Message| matches!(message, Message::Request(_));
        let head = messages.iter().any(is_request).then(|| {
            Arc::new(PostHead {
                charge: charge.split(head_bytes),
                parts: Arc::new(head),
            })
        });
        Self {
            messages,
            refusals,
            head,
            charge,
        }
    }

    /// Returns whether it does more than open a session.
    fn uses_session(&self) -> bool {
        self.messages.iter().any(|message| match message {
            Message::Request(raw) => raw.method != super::INITIALIZE,
            Message::Response(_) => true,
            Message::Notification(_) => false,
        })
    }

    /// Returns whether the response needs a body.
    pub(super) fn wants_answer(&self) -> bool {
        self.head.is_some() || !self.refusals.is_empty()
    }

    pub(super) fn requests(&self) -> impl Iterator<Item = &RawRequest> {
        self.messages.iter().filter_map(|message| match message {
            Message::Request(raw) => Some(raw),
            Message::Response(_) | Message::Notification(_) => None,
        })
    }

    pub(super) fn notifications(&self) -> impl Iterator<Item = &Notification> {
        self.messages.iter().filter_map(|message| match message {
            Message::Notification(notification) => Some(notification),
            Message::Request(_) | Message::Response(_) => None,
        })
    }

    /// Takes out the responses to requests of other live states.
    pub(super) fn take_foreign_answers(&mut self, session: &Session) -> Vec<Response> {
        let mut foreign = Vec::new();
        let messages = std::mem::take(&mut self.messages).into_iter();
        let own = messages.filter_map(|message| match message {
            Message::Response(response) if session.is_foreign_answer(&response) => {
                foreign.push(response);
                None
            }
            message => Some(message),
        });
        self.messages = own.collect();
        foreign
    }

    pub(super) fn responses(&self) -> impl Iterator<Item = &Response> {
        self.messages.iter().filter_map(|message| match message {
            Message::Response(response) => Some(response),
            Message::Request(_) | Message::Notification(_) => None,
        })
    }

    fn request_ids(&self) -> impl Iterator<Item = &RequestId> {
        self.requests().map(|raw| &raw.id)
    }
}

/// Returns the id of the request that a notification cancels.
pub(super) fn cancelled_request(notification: &Notification) -> Option<RequestId> {
    if notification.method != CancelledNotification::NAME {
        return None;
    }
    let params: CancelledNotificationParams = notification.params.as_ref()?.decode().ok()?;
    params.request_id
}

/// Creates a `notifications/cancelled` on behalf of the client.
fn cancelled_notification(id: &RequestId) -> Message {
    let params = CancelledNotificationParams::new(id.clone()).with_reason("the client is gone");
    Notification::new(CancelledNotification::NAME, Json::encode(&params).ok()).into()
}
