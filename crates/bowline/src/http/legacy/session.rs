//! One legacy session over HTTP. [`SessionWire`], the driver's side of a [`Session`], implements [`EngineWire`]: it
//! receives from POST bodies and sends onto response streams.
//!
//! ```text
//! POST bodies ──▶ inbox ──▶ Driver, Mux, handlers ──▶ SessionStreams ──▶ responses
//! ```

use std::io;
use std::sync::{Arc, OnceLock};
use std::task::{self, Poll};
use std::time::Duration;

use ::http::StatusCode;
use bowline_core::era::Dialect;
use bowline_core::http::admission::HttpRejection;
use bowline_core::mux::{InFlightId, OutgoingMessage};
use bowline_core::{Message, Notification, Response, shortened};
use bowline_types::{
    ErrorCode, Json, NotificationMethod as _, RequestId, ResourceUpdatedNotification,
    ResourceUpdatedNotificationParams, RpcError,
};
use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::event_pool::EventPool;
use super::live_id::{EventId, LiveId, OwnerId};
use super::session_record::{SessionRecord, subscribed_uri};
use super::session_state::{
    DecodedPost, DeferredRelease, EvictionRank, PostHead, PostRejection, SessionState,
    SessionTimeouts, TimeoutOutcome, cancelled_request,
};
use super::streams::{
    AttachError, KeepEvents, NextEvent, ResponseForm, SessionStreams, StreamLayout, UNSOLICITED,
};
use crate::exchange::Principal;
use crate::http::server::overloaded;
use crate::limits::{Account, Charge, Limit};
use crate::sync::Mutex;
use crate::telemetry::TransportKind;
use crate::wire::{EngineWire, Received, WireEvent};

/// A legacy session, shared by its POSTs, its open responses and its driver.
pub(super) struct Session {
    /// Set once, before the session is published.
    id: OnceLock<Arc<str>>,
    pub(super) principal: Principal,
    /// The name of this live state in ids; `None` if no other can exist.
    live: Option<LiveId>,
    /// What the client has set since the handshake. Locked within `state` or alone.
    record: Mutex<SessionRecord>,
    /// The account that memory held for the client is charged to.
    pub(super) account: Arc<Account>,
    /// The version that the last handshake negotiated.
    dialect: Mutex<&'static Dialect>,
    state: Mutex<SessionState>,
    /// Wakes [`until_expired`](Self::until_expired) to compute its next deadline again.
    deadline_changed: Notify,
    pool: Arc<EventPool>,
    /// The key of this session in `pool`.
    number: u64,
}

impl Session {
    /// Creates a session without an id; with an `owner`, its ids of requests and events name this live state.
    pub(super) fn new(
        principal: Principal,
        layout: StreamLayout,
        streams: SessionStreams,
        account: Arc<Account>,
        pool: &Arc<EventPool>,
        owner: Option<OwnerId>,
    ) -> Arc<Self> {
        let state = SessionState::new(layout, streams, account.clone(), Instant::now());
        let number = pool.next_number();
        let session = Arc::new(Self {
            id: OnceLock::new(),
            principal,
            live: owner.map(|owner| LiveId { owner, number }),
            record: Mutex::default(),
            account,
            dialect: Mutex::new(Dialect::ASSUMED_ON_HTTP),
            state: Mutex::new(state),
            deadline_changed: Notify::new(),
            pool: pool.clone(),
            number,
        });
        pool.add(session.number, &session);
        session
    }

    /// Sets the id, unless it has one.
    pub(super) fn set_id(&self, id: Arc<str>) {
        let _ = self.id.set(id);
    }

    /// Returns the id; empty before it is set.
    pub(super) fn id(&self) -> Arc<str> {
        self.id.get().cloned().unwrap_or_default()
    }

    pub(super) fn live(&self) -> Option<LiveId> {
        self.live
    }

    /// Returns whether a response answers a request that another live state of this session has sent.
    pub(super) fn is_foreign_answer(&self, response: &Response) -> bool {
        let sender = response.id.as_ref().and_then(LiveId::of_request);
        sender.is_some() && sender != self.live
    }

    /// Returns the id of an event of this live state.
    pub(super) fn event_id(&self, key: u64, position: u64) -> EventId {
        let live = self.live;
        EventId {
            live,
            key,
            position,
        }
    }

    /// Returns what the client has set since the handshake.
    pub(super) fn record(&self) -> SessionRecord {
        self.record.lock().clone()
    }

    #[cfg(test)]
    pub(super) fn change_record(&self, change: super::session_record::RecordChange) -> bool {
        self.record.lock().apply(change)
    }

    /// Sets what the client has set in an earlier live state, before the first message.
    pub(super) fn restore(&self, record: SessionRecord) {
        let requests = SessionRecord::default().requests_to(&record);
        *self.record.lock() = record;
        self.queue_restored(requests);
    }

    /// Sets what another live state has set meanwhile.
    pub(super) fn apply_record(&self, record: SessionRecord) {
        let mut own = self.record.lock();
        let requests = own.requests_to(&record);
        *own = record;
        drop(own);
        self.queue_restored(requests);
    }

    fn queue_restored(&self, requests: Vec<Message>) {
        let updates = requests.iter().filter_map(|message| match message {
            Message::Request(raw) => {
                let uri = subscribed_uri(raw)?;
                Some((raw.id.clone(), resource_updated(&uri)))
            }
            _ => None,
        });
        let updates = updates.collect();
        self.with(|state| state.queue_restored(requests, updates));
    }

    /// Queues messages of the client that other replicas have received.
    pub(super) fn queue(&self, messages: Vec<Message>) {
        self.with(|state| state.queue_messages(messages));
    }

    /// Queues a notification of the client that another replica has received. It may concern another live state.
    pub(super) fn hear(&self, notification: Notification) {
        let now = Instant::now();
        self.with(|state| state.hear(now, notification));
        self.deadline_changed.notify_one(); // to set a timer if it is an early cancel
    }

    /// Returns whether a notification of the client concerns this live state and no other.
    pub(super) fn is_concerned_alone(&self, notification: &Notification) -> bool {
        let cancelled = cancelled_request(notification);
        cancelled.is_some_and(|id| self.state.lock().streams.is_in_flight(&id))
    }

    /// Ends the GET stream: the client has attached another elsewhere.
    pub(super) fn end_get_stream(&self) {
        self.with(SessionState::end_get_stream);
    }

    /// Starts to watch the lists when a GET attaches; `opened_at` is when the client completed its handshake.
    pub(super) fn watch_on_attach(&self, opened_at: Instant) {
        self.with(|state| state.watch_on_attach(opened_at));
    }

    /// Returns the negotiated version; before the handshake, the one assumed for a request without the header
    /// `MCP-Protocol-Version`.
    pub(super) fn dialect(&self) -> &'static Dialect {
        *self.dialect.lock()
    }

    pub(super) fn set_dialect(&self, dialect: &'static Dialect) {
        *self.dialect.lock() = dialect;
    }

    /// Queues the messages of a POST. A `form` is given if the response to the POST will contain the answers (never in
    /// HTTP+SSE): then opens a stream for them and returns its reader. A rejected POST has no effect.
    pub(super) fn post(
        self: &Arc<Self>,
        post: DecodedPost,
        form: Option<ResponseForm>,
    ) -> Result<Option<StreamReader>, HttpRejection> {
        let now = Instant::now();
        let accepted = self.with(|state| match state.check(&post) {
            Ok(()) => Ok((state.accept(now, post, form), state.has_early_cancels())),
            // The post is returned, so that it is dropped after the lock is released.
            Err(rejection) => Err(Box::new((rejection, post))),
        });
        match accepted {
            Ok((opened, has_early_cancels)) => {
                if has_early_cancels {
                    self.deadline_changed.notify_one(); // to set a timer for their expiry
                }
                Ok(opened.map(|(key, reader_id)| self.reader(key, reader_id)))
            }
            Err(rejected) => {
                let (rejection, _post) = *rejected;
                Err(self.http_rejection(rejection))
            }
        }
    }

    fn http_rejection(&self, rejection: PostRejection) -> HttpRejection {
        match rejection {
            PostRejection::Ended => session_not_found(),
            PostRejection::Full => {
                let max = self.account.limits().peer_requests;
                overloaded(self.account.counters().refuse(Limit::PeerRequests, max))
            }
            PostRejection::InFlight(id) => already_in_flight(id),
        }
    }

    /// Puts a message onto its stream; `within` is the request of the client that it belongs to.
    pub(super) fn send(&self, within: Option<&RequestId>, message: &Message) {
        let now = Instant::now();
        self.with(|state| {
            // Under the lock, so that a session that is freed once it is idle has the change.
            if let Some(change) = state.route(now, within, message) {
                self.record.lock().apply(change);
            }
        });
    }

    /// Puts the cancel of a request that belongs to no request of the client onto the stream of that request.
    pub(super) fn send_cancel(&self, request: &RequestId, cancel: &Message) {
        let now = Instant::now();
        self.with(|state| state.route_cancel(now, request, cancel));
    }

    /// Takes the head of the POST that a request came with, for its handler.
    pub(super) fn take_head(&self, request: &RequestId) -> Option<Arc<PostHead>> {
        self.state.lock().take_head(request)
    }

    /// Attaches a response to a stream, to read after position `after` or from where the last response stopped.
    pub(super) fn attach(
        self: &Arc<Self>,
        key: u64,
        after: Option<u64>,
    ) -> Result<StreamReader, AttachError> {
        let now = Instant::now();
        let reader_id = self.with(|state| state.attach(now, key, after))?;
        Ok(self.reader(key, reader_id))
    }

    /// Attaches a GET that continues a stream of another live state, so that the client has missed notifications: sends
    /// all that it may have missed.
    pub(super) fn attach_after_gap(self: &Arc<Self>) -> Result<StreamReader, AttachError> {
        let (now, record) = (Instant::now(), self.record());
        let updates: Vec<Message> = record
            .subscriptions()
            .map(|uri| resource_updated(uri))
            .collect();
        let reader_id = self.with(|state| state.attach_after_gap(now, &updates))?;
        Ok(self.reader(UNSOLICITED, reader_id))
    }

    fn reader(self: &Arc<Self>, key: u64, reader_id: u64) -> StreamReader {
        StreamReader {
            session: self.clone(),
            key,
            reader_id,
        }
    }

    /// Waits until the session has had no open response and no unanswered request for `idle_timeout`. Meanwhile cancels
    /// the client's requests when no response has been open for `orphan_timeout`, and expires early cancels.
    ///
    /// # Cancel safety
    ///
    /// Safe: it can be called again.
    pub(super) async fn until_expired(&self, timeouts: SessionTimeouts) {
        // Closing a response or answering a request does not notify `deadline_changed`, but sets a deadline at least
        // this far ahead. So a wake-up at this interval misses none.
        let max_sleep = timeouts.idle_timeout.min(timeouts.orphan_timeout);
        let max_sleep = max_sleep.max(Duration::from_millis(1));
        loop {
            let now = Instant::now();
            let next = match self.with(|state| state.handle_timeouts(now, timeouts)) {
                TimeoutOutcome::Expired => return,
                TimeoutOutcome::NextDeadline(next) => next,
            };
            // `checked_add` fails if the time cannot be represented; that deadline never comes.
            let next = [next, now.checked_add(max_sleep)]
                .into_iter()
                .flatten()
                .min();
            let sleep = async {
                match next {
                    Some(next) => tokio::time::sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.deadline_changed.notified() => {}
                () = sleep => {}
            }
        }
    }

    /// Returns whether a stream has ended that was not read to its end.
    pub(super) fn has_unread(&self) -> bool {
        self.state.lock().streams.has_unread()
    }

    pub(super) fn eviction_rank(&self) -> EvictionRank {
        self.state.lock().eviction_rank()
    }

    /// Returns the eviction rank of its events (lowest is evicted first): sessions without an open response, then the
    /// least recently active. `None` without events.
    pub(super) fn event_eviction_rank(&self) -> Option<(bool, Instant)> {
        self.state.lock().event_eviction_rank()
    }

    /// Drops the oldest events until this many bytes are free, and returns how many were dropped.
    pub(super) fn drop_events(&self, bytes: usize, keep: KeepEvents) -> u64 {
        self.with(|state| state.drop_events(bytes, keep))
    }

    #[cfg(test)]
    pub(super) fn sizes(&self) -> super::session_state::SessionSizes {
        self.state.lock().sizes()
    }

    #[cfg(test)]
    pub(super) fn handle_timeouts(&self, timeouts: SessionTimeouts) -> TimeoutOutcome {
        let now = Instant::now();
        self.with(|state| state.handle_timeouts(now, timeouts))
    }

    /// Changes the state under its lock. Wakers are woken and values dropped after it is released, because both may run
    /// code that locks it again.
    fn with<T>(&self, change: impl FnOnce(&mut SessionState) -> T) -> T {
        let mut state = self.state.lock();
        let result = change(&mut state);
        let (deferred, more_events) = state.take_deferred();
        drop(state);
        deferred.for_each(DeferredRelease::release);
        if more_events {
            self.pool.make_room(self);
        }
        result
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.pool.remove(self.number);
    }
}

/// An open response that reads a stream. Dropping it detaches it.
pub(super) struct StreamReader {
    session: Arc<Session>,
    /// The key of the stream.
    key: u64,
    /// Distinguishes this response from later ones that take over the stream.
    reader_id: u64,
}

impl StreamReader {
    pub(super) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    #[cfg(test)]
    pub(super) fn key(&self) -> u64 {
        self.key
    }

    /// Returns the id of the event at a position of its stream.
    pub(super) fn event_id(&self, position: u64) -> String {
        self.session.event_id(self.key, position).to_string()
    }

    pub(super) fn poll_next(&mut self, cx: &mut task::Context<'_>) -> Poll<Option<(u64, Bytes)>> {
        let mut state = self.session.state.lock();
        let next = state.streams.next(self.key, self.reader_id, cx.waker());
        drop(state);
        match next {
            NextEvent::Event { position, frame } => Poll::Ready(Some((position, frame))),
            NextEvent::End => Poll::Ready(None),
            NextEvent::Wait => Poll::Pending,
        }
    }

    /// Polls for the form of the response.
    pub(super) fn poll_form(&mut self, cx: &mut task::Context<'_>) -> Poll<ResponseForm> {
        let form = self.session.state.lock().streams.form(self.key, cx.waker());
        match form {
            ResponseForm::Undecided => Poll::Pending,
            form => Poll::Ready(form),
        }
    }

    /// Sets the form of the response to events, including the answers so far.
    pub(super) fn commit_to_events(&self) {
        let commit = |state: &mut SessionState| state.streams.commit_to_events(self.key);
        self.session.with(commit);
    }

    /// Takes the answers for a response whose form is JSON, and removes the stream.
    pub(super) fn take_answers(&self) -> Vec<Bytes> {
        let take = |state: &mut SessionState| state.streams.take_answers(self.key);
        self.session.with(take)
    }

    pub(super) fn read_so_far(&self) -> u64 {
        self.session.state.lock().streams.read_so_far(self.key)
    }
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        let now = Instant::now();
        let detach = |state: &mut SessionState| state.detach(now, self.key, self.reader_id);
        self.session.with(detach);
    }
}

/// The driver's side of a session. Dropping it ends the session.
pub(super) struct SessionWire {
    session: Arc<Session>,
    /// Bytes received since the last flush: they are no longer charged to the POST and not yet to a request.
    undispatched: usize,
}

impl SessionWire {
    pub(super) fn new(session: Arc<Session>) -> Self {
        Self {
            session,
            undispatched: 0,
        }
    }
}

impl EngineWire for SessionWire {
    fn poll_event(&mut self, cx: &mut task::Context<'_>) -> Poll<WireEvent> {
        if self.undispatched >= MAX_UNDISPATCHED_BYTES {
            // Makes the driver dispatch what it has before it receives more.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut state = self.session.state.lock();
        if let Some(is_after_gap) = state.take_attached() {
            return Poll::Ready(WireEvent::ListenerAttached { is_after_gap });
        }
        let Some((message, charge)) = state.next_message() else {
            let replaced = state.wait_for_message(cx.waker());
            drop(state);
            drop(replaced);
            return Poll::Pending;
        };
        drop(state);
        self.undispatched += charge.as_ref().map_or(0, Charge::bytes);
        Poll::Ready(Received::Message(message).into())
    }

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn send(&mut self, outgoing: &OutgoingMessage) {
        let within = outgoing.within.as_ref().map(InFlightId::request_id);
        match (within, &outgoing.cancels) {
            (None, Some(request)) => self.session.send_cancel(request, &outgoing.message),
            (within, _) => self.session.send(within, &outgoing.message),
        }
    }

    fn cancelled(&mut self, request: &RequestId) {
        let now = Instant::now();
        self.session.with(|state| state.cancelled(now, request));
    }

    fn poll_flush(&mut self, _: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        self.undispatched = 0;
        Poll::Ready(Ok(()))
    }

    fn poll_close(&mut self, _: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn transport(&self) -> TransportKind {
        TransportKind::Http
    }
}

impl Drop for SessionWire {
    fn drop(&mut self) {
        self.session.with(SessionState::end);
    }
}

/// Returns `notifications/resources/updated`.
fn resource_updated(uri: &str) -> Message {
    let params = Json::encode(&ResourceUpdatedNotificationParams::new(uri));
    Notification::new(ResourceUpdatedNotification::NAME, params.ok()).into()
}

/// Returns the rejection (404) of a request whose session does not exist or has ended.
pub(super) fn session_not_found() -> HttpRejection {
    HttpRejection::new(StatusCode::NOT_FOUND, "session not found")
}

/// Returns the rejection of a request with the id of another request that is unanswered.
pub(super) fn already_in_flight(id: RequestId) -> HttpRejection {
    let why = format!("the request id {} is already in flight", shortened(&id));
    HttpRejection::from(RpcError::new(ErrorCode::INVALID_REQUEST, why)).with_id(id)
}

/// How many bytes the driver may receive before it has to dispatch them; one message may be longer.
const MAX_UNDISPATCHED_BYTES: usize = 256 * 1024;
