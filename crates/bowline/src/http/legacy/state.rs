//! What one session holds, without its lock and its clock.
//!
//! What has to be woken or dropped is collected in [`State::leftovers`], for the moment when the lock is free again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use ::http::request::Parts;
use bowline_core::{Message, Notification, RawRequest};
use bowline_types::{CancelledNotification, CancelledNotificationParams, Json, Notice, RequestId};
use bytes::Bytes;
use tokio::time::Instant;

use super::early::EarlyCancels;
use super::few::Few;
use super::streams::{CannotRead, Form, Keep, Layout, Streams, UNSOLICITED};
use crate::limits::{Account, Charge, Held};

/// Everything under the lock of a session.
pub(super) struct State {
    pub(super) streams: Streams,
    layout: Layout,
    inbox: VecDeque<Waiting>,
    early: EarlyCancels,
    driver: Option<Waker>,
    /// How many responses are open.
    readers: usize,
    /// When a GET last got a stream.
    attached_at: Instant,
    /// When a message last came from the client, or went to it.
    last_active: Instant,
    /// Since when no response is open.
    alone_since: Instant,
    /// Whether the client did more than to open it.
    is_used: bool,
    has_ended: bool,
    account: Arc<Account>,
    events: Charge,
    output: Charge,
    leftovers: Few<Leftover>,
}

/// What a client posted to its session.
pub(super) struct Posted {
    /// What is well-formed of it, in order. No two requests have the same id.
    messages: Few<Message>,
    /// Answers to what is malformed.
    refusals: Vec<Bytes>,
    /// That of the POST, if it has requests.
    head: Option<Arc<Head>>,
    charge: Charge,
}

/// The head of a POST, shared by its requests, and charged as long as one of them keeps it. It also tells on whose
/// behalf they are made: that of the same principal, who may do more or less than when the session was opened.
pub(super) struct Head {
    pub(super) parts: Arc<Parts>,
    #[allow(dead_code, reason = "it is held")]
    charge: Charge,
}

/// A message that the driver has not taken yet.
pub(super) struct Waiting {
    message: Message,
    /// That of the POST, if this is its last message: it is given back when all of them are taken.
    charge: Option<Charge>,
}

/// Why what was posted is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NotTaken {
    /// The session is at its end.
    Ended,
    /// Too many messages wait for the driver.
    Full,
    /// A request with this id is not answered yet.
    InFlight(RequestId),
}

/// How long a session lives on its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub(super) idle_after: Duration,
    pub(super) orphan_limit: Duration,
}

/// What becomes of a session that is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tended {
    /// It goes on; look again then, or when something has changed.
    Until(Option<Instant>),
    /// It was idle for too long.
    Forsaken,
}

/// How easily a session can be missed; the least goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Idleness {
    pub(super) kind: Kind,
    last_active: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// It was opened, and nothing else.
    Unused,
    Idle,
    /// A response is open.
    Read,
    /// A call is not answered yet.
    Busy,
}

/// What a session holds.
/// How long after a stream was opened another GET may take it over without naming an event.
const TAKE_OVER_AFTER: Duration = Duration::from_secs(5);

#[cfg(test)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) unanswered: Vec<RequestId>,
    pub(super) heads: usize,
    pub(super) inbox: usize,
    pub(super) readers: usize,
    pub(super) early: usize,
    pub(super) event_bytes: usize,
    pub(super) output_bytes: usize,
}

/// What is woken or dropped once the lock is free.
#[allow(dead_code, reason = "all but the wakers is there to be dropped")]
pub(super) enum Leftover {
    Waker(Waker),
    Charge(Charge),
    Head(Head),
    Waiting(VecDeque<Waiting>),
}

impl Leftover {
    pub(super) fn release(self) {
        if let Self::Waker(waker) = self {
            waker.wake();
        }
    }
}

impl State {
    pub(super) fn new(
        layout: Layout,
        streams: Streams,
        account: Arc<Account>,
        now: Instant,
    ) -> Self {
        Self {
            streams,
            layout,
            // Most sessions only wait, and never had more than one message.
            inbox: VecDeque::with_capacity(1),
            early: EarlyCancels::default(),
            driver: None,
            readers: 0,
            attached_at: now,
            last_active: now,
            alone_since: now,
            is_used: false,
            has_ended: false,
            events: account.nothing(Held::Event),
            output: account.nothing(Held::Output),
            account,
            leftovers: Few::default(),
        }
    }

    /// Whether what was posted can be taken: before anything is changed, so that a POST that is refused leaves nothing
    /// behind.
    pub(super) fn check(&self, posted: &Posted) -> Result<(), NotTaken> {
        if self.has_ended {
            return Err(NotTaken::Ended);
        }
        if self.inbox.len() >= self.account.limits().peer_requests {
            return Err(NotTaken::Full);
        }
        match self.streams.find_in_flight(posted.request_ids()) {
            Some(id) => Err(NotTaken::InFlight(id.clone())),
            None => Ok(()),
        }
    }

    /// Takes what was posted, which was [checked](Self::check), and opens a stream of that form for the answers. Returns
    /// the key and the reader of the stream.
    pub(super) fn take(
        &mut self,
        now: Instant,
        posted: Posted,
        form: Option<Form>,
    ) -> Option<(u64, u64)> {
        self.last_active = now;
        self.is_used |= posted.is_use();
        let expired = self.early.expire(now).map(Leftover::Charge);
        self.leftovers.extend(expired);
        let opened = match (self.layout, form) {
            (Layout::PerPost, Some(form)) => {
                self.readers += 1;
                Some(self.streams.open(form, posted.refusals))
            }
            (Layout::PerPost, None) | (Layout::One, _) => None,
        };
        let key = match self.layout {
            Layout::PerPost => opened.map(|(key, _)| key),
            Layout::One => Some(UNSOLICITED),
        };
        let waiting = self.inbox.len();
        let mut cancelled = Few::default();
        posted.messages.for_each(|message| {
            match &message {
                Message::Request(raw) => {
                    self.streams.expect(&raw.id, key, posted.head.as_ref());
                    if let Some(charge) = self.early.arrive(&raw.id) {
                        self.leftovers.push(Leftover::Charge(charge));
                        cancelled.push(raw.id.clone());
                        return;
                    }
                }
                Message::Notification(told) => {
                    if let Some(id) = cancelled_request(told)
                        && !self.streams.is_in_flight(&id)
                        && self.early.keep(now, &id, &self.account)
                    {
                        return;
                    }
                }
                Message::Response(_) => {}
            }
            let charge = None;
            self.inbox.push_back(Waiting { message, charge });
        });
        match self.inbox.range_mut(waiting..).last() {
            Some(last) => last.charge = Some(posted.charge),
            None => self.leftovers.push(Leftover::Charge(posted.charge)),
        }
        cancelled.for_each(|id| self.end_cancelled(&id));
        self.leave_head(posted.head);
        self.wake_driver();
        opened
    }

    /// Whether a cancel waits for its request.
    pub(super) fn has_early_cancels(&self) -> bool {
        self.early.next_expiry().is_some()
    }

    /// The next message for the driver, and a charge to drop once the lock is free.
    pub(super) fn next_message(&mut self) -> Option<(Message, Option<Charge>)> {
        let Waiting { message, charge } = self.inbox.pop_front()?;
        Some((message, charge))
    }

    /// Has the driver woken when there is a message. Returns an earlier waker, to drop once the lock is free.
    #[must_use = "it is dropped once the lock is free"]
    pub(super) fn wait_for_message(&mut self, driver: &Waker) -> Option<Waker> {
        match &self.driver {
            Some(own) if own.will_wake(driver) => None,
            _ => self.driver.replace(driver.clone()),
        }
    }

    /// The head of the POST that a request came with, for its handler.
    pub(super) fn take_head(&mut self, request: &RequestId) -> Option<Arc<Head>> {
        self.streams.take_head(request)
    }

    /// Puts a message of the server onto its stream.
    pub(super) fn route(&mut self, now: Instant, within: Option<&RequestId>, message: &Message) {
        self.last_active = now;
        let routed = self.streams.route(within, message);
        self.leave_waker(routed.wake);
        self.leave_head(routed.head);
        if let Some(message) = routed.answer {
            self.hear(message);
        }
    }

    /// Ends a request that the client cancelled.
    pub(super) fn cancelled(&mut self, now: Instant, request: &RequestId) {
        self.last_active = now;
        self.end_cancelled(request);
    }

    fn end_cancelled(&mut self, request: &RequestId) {
        let routed = self.streams.cancelled(request);
        self.leave_waker(routed.wake);
        self.leave_head(routed.head);
    }

    /// Takes a message that the client did not send.
    fn hear(&mut self, message: Message) {
        let charge = None;
        self.inbox.push_back(Waiting { message, charge });
        self.wake_driver();
    }

    fn wake_driver(&mut self) {
        let driver = self.driver.take();
        self.leave_waker(driver);
    }

    fn leave_waker(&mut self, waker: Option<Waker>) {
        self.leftovers.extend(waker.map(Leftover::Waker));
    }

    /// Leaves a head to be dropped, unless it is still shared.
    fn leave_head(&mut self, head: Option<Arc<Head>>) {
        let head = head.and_then(Arc::into_inner);
        self.leftovers.extend(head.map(Leftover::Head));
    }

    /// Lets a response read a stream from behind a place, or from where the last one stopped.
    ///
    /// Another response may be reading it: on a path that died the server cannot see that nobody reads. Only a client
    /// that lost the stream can name a place on it, and so takes it over. So does a client that names none, as it may
    /// have seen no event, but not at once: two that want the same stream would take it from each other without end.
    pub(super) fn attach(
        &mut self,
        now: Instant,
        key: u64,
        after: Option<u64>,
    ) -> Result<u64, CannotRead> {
        let is_due = self.layout == Layout::PerPost
            && now.saturating_duration_since(self.attached_at) >= TAKE_OVER_AFTER;
        let takes_over = after.is_some() || is_due;
        let (reader, replaced) = self.streams.attach(key, after, takes_over)?;
        self.attached_at = now;
        self.is_used = true;
        self.readers += 1;
        self.leave_waker(replaced);
        Ok(reader)
    }

    pub(super) fn detach(&mut self, now: Instant, key: u64, reader: u64) {
        self.streams.detach(key, reader);
        self.readers -= 1;
        (self.last_active, self.alone_since) = (now, now);
    }

    /// Looks after a session that may have been left alone: drops what has waited for too long, and cancels calls whose
    /// client is gone.
    pub(super) fn tend(&mut self, now: Instant, patience: Patience) -> Tended {
        let expired = self.early.expire(now).map(Leftover::Charge);
        self.leftovers.extend(expired);
        let next = self.early.next_expiry();
        if self.readers > 0 {
            return Tended::Until(next);
        }
        let deadline = if self.streams.unanswered().len() > 0 {
            self.alone_since.checked_add(patience.orphan_limit)
        } else {
            self.last_active.checked_add(patience.idle_after)
        };
        if deadline.is_none_or(|deadline| deadline > now) {
            return Tended::Until([next, deadline].into_iter().flatten().min());
        }
        if self.streams.unanswered().len() == 0 {
            return Tended::Forsaken;
        }
        self.cancel_all();
        // Calls that cannot be stopped are cancelled again, but not at once.
        self.alone_since = now;
        Tended::Until(next)
    }

    fn cancel_all(&mut self) {
        let cancels: Vec<_> = self.streams.unanswered().map(cancel_orphan).collect();
        tracing::debug!(calls = cancels.len(), "cancelled calls of an absent client");
        cancels.into_iter().for_each(|cancel| self.hear(cancel));
    }

    pub(super) fn idleness(&self) -> Idleness {
        let kind = if self.streams.unanswered().len() > 0 {
            Kind::Busy
        } else if self.readers > 0 {
            Kind::Read
        } else if self.is_used {
            Kind::Idle
        } else {
            Kind::Unused
        };
        Idleness {
            kind,
            last_active: self.last_active,
        }
    }

    /// How easily its events can be missed, if there are any.
    pub(super) fn events_idleness(&self) -> Option<(bool, Instant)> {
        let is_read = self.readers > 0;
        (self.streams.event_bytes() > 0).then_some((is_read, self.last_active))
    }

    /// Drops the oldest events until this many bytes are free, and returns how many events that were.
    pub(super) fn drop_events(&mut self, bytes: usize, keep: Keep) -> u64 {
        self.streams.drop_events(bytes, keep)
    }

    /// Ends everything; what open responses have not read yet stays for them.
    pub(super) fn end(&mut self) {
        self.has_ended = true;
        let (wakers, heads) = self.streams.end();
        self.leftovers
            .extend(wakers.into_iter().map(Leftover::Waker));
        heads.for_each(|head| self.leave_head(Some(head)));
        let early = self.early.clear().map(Leftover::Charge);
        self.leftovers.extend(early);
        let inbox = std::mem::take(&mut self.inbox);
        self.leftovers.push(Leftover::Waiting(inbox));
    }

    /// How much of everything there is.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> Sizes {
        Sizes {
            unanswered: self.streams.unanswered().cloned().collect(),
            heads: self.streams.heads(),
            inbox: self.inbox.len(),
            readers: self.readers,
            early: self.early.len(),
            event_bytes: self.streams.event_bytes(),
            output_bytes: self.streams.output_bytes(),
        }
    }

    /// Makes the charges what they should be, and takes what is left to wake and to drop. Also tells whether there are
    /// more events than before.
    pub(super) fn leftovers(&mut self) -> (Few<Leftover>, bool) {
        let (events, output) = (self.streams.event_bytes(), self.streams.output_bytes());
        let more_events = events > self.events.bytes();
        for (charge, bytes) in [(&mut self.events, events), (&mut self.output, output)] {
            match charge.bytes().checked_sub(bytes) {
                Some(0) => {}
                Some(freed) => self.leftovers.push(Leftover::Charge(charge.split(freed))),
                None => charge.set(bytes),
            }
        }
        (std::mem::take(&mut self.leftovers), more_events)
    }
}

impl Posted {
    /// `head_bytes` of the charge are for the head.
    pub(super) fn new(
        messages: Few<Message>,
        refusals: Vec<Bytes>,
        head: Parts,
        mut charge: Charge,
        head_bytes: usize,
    ) -> Self {
        let is_request = |message: &Message| matches!(message, Message::Request(_));
        let head = messages.iter().any(is_request).then(|| {
            Arc::new(Head {
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

    /// Whether it does more than to open a session.
    fn is_use(&self) -> bool {
        self.messages.iter().any(|message| match message {
            Message::Request(raw) => raw.method != super::INITIALIZE,
            Message::Response(_) => true,
            Message::Notification(_) => false,
        })
    }

    /// Whether it has to be answered by more than a status.
    pub(super) fn wants_answer(&self) -> bool {
        self.head.is_some() || !self.refusals.is_empty()
    }

    pub(super) fn requests(&self) -> impl Iterator<Item = &RawRequest> {
        self.messages.iter().filter_map(|message| match message {
            Message::Request(raw) => Some(raw),
            Message::Response(_) | Message::Notification(_) => None,
        })
    }

    fn request_ids(&self) -> impl Iterator<Item = &RequestId> {
        self.requests().map(|raw| &raw.id)
    }
}

/// Which request a notification cancels.
fn cancelled_request(told: &Notification) -> Option<RequestId> {
    if told.method != CancelledNotification::NAME {
        return None;
    }
    let params: CancelledNotificationParams = told.params.as_ref()?.decode().ok()?;
    params.request_id
}

/// A cancel in the client's name.
fn cancel_orphan(id: &RequestId) -> Message {
    let params = CancelledNotificationParams::new(id.clone()).with_reason("the client is gone");
    Notification::new(CancelledNotification::NAME, Json::encode(&params).ok()).into()
}
