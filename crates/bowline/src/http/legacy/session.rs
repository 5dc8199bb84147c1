//! One legacy conversation over HTTP: a wire made of POSTs and streams.
//!
//! ```text
//! POST bodies ──▶ inbox ──▶ Driver, Mux, handlers ──▶ Streams ──▶ responses
//! ```
//!
//! The same engine drives it as any other wire. What is different is where messages come in and go out.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{self, Poll, Waker};
use std::time::Duration;

use ::http::StatusCode;
use ::http::request::Parts;
use bowline_core::era::Dialect;
use bowline_core::http::admission::Rejection;
use bowline_core::{Message, Notification, Response};
use bowline_types::{CancelledNotification, CancelledNotificationParams, Json, Notice, RequestId};
use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::streams::{CannotRead, Form, Next, Streams};
use crate::exchange::Principal;
use crate::http::server::unavailable;
use crate::wire::{Received, Wire};

/// One legacy conversation.
pub(super) struct Session {
    pub(super) id: String,
    pub(super) principal: Principal,
    dialect: OnceLock<&'static Dialect>,
    state: Mutex<State>,
    _room: OwnedSemaphorePermit,
}

struct State {
    streams: Streams,
    /// The heads of the POSTs of requests that are not handled yet. They also tell on whose behalf: that of the
    /// same somebody, who may do more or less than when the session was opened.
    heads: BTreeMap<RequestId, Parts>,
    inbox: VecDeque<Received>,
    driver: Option<Waker>,
    /// How many responses are open.
    readers: usize,
    /// When something was last heard of the client, or said to it.
    seen: Instant,
    /// Since when no response is open.
    alone_since: Instant,
    is_over: bool,
}

/// How long a session lives without anybody there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub(super) idle_after: Duration,
    pub(super) orphan_limit: Duration,
}

impl Session {
    pub(super) fn new(
        id: String,
        principal: Principal,
        streams: Streams,
        room: OwnedSemaphorePermit,
    ) -> Self {
        let now = Instant::now();
        Self {
            id,
            principal,
            dialect: OnceLock::new(),
            state: Mutex::new(State {
                streams,
                heads: BTreeMap::new(),
                inbox: VecDeque::new(),
                driver: None,
                readers: 0,
                seen: now,
                alone_since: now,
                is_over: false,
            }),
            _room: room,
        }
    }

    /// The version that was agreed upon, once it was.
    pub(super) fn dialect(&self) -> &'static Dialect {
        self.dialect
            .get()
            .copied()
            .unwrap_or(Dialect::UNNAMED_ON_HTTP)
    }

    pub(super) fn agree_on(&self, dialect: &'static Dialect) {
        let _ = self.dialect.set(dialect);
    }

    /// Takes in messages of the client, among which are these requests, which came with `head`.
    pub(super) fn hear(
        &self,
        messages: impl IntoIterator<Item = Received>,
        requests: &[RequestId],
        head: Parts,
    ) -> Result<(), Rejection> {
        let mut state = self.lock();
        if state.is_over {
            return Err(gone());
        }
        if state.inbox.len() >= MOST_WAITING {
            return Err(unavailable("overloaded"));
        }
        state.seen = Instant::now();
        state.inbox.extend(messages);
        // One that is in flight already is refused, and must not lend its credential to the first.
        if let Some((last, others)) = requests.split_last() {
            for id in others {
                let own = state.heads.entry(id.clone());
                own.or_insert_with(|| head.clone());
            }
            state.heads.entry(last.clone()).or_insert(head);
        }
        let driver = state.driver.take();
        drop(state);
        driver.into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// The head of the POST that a request came with, for its handler.
    pub(super) fn take_head(&self, request: &RequestId) -> Option<Parts> {
        self.lock().heads.remove(request)
    }

    /// Makes a stream for the answers to these requests and reads it, or names the request that is in
    /// flight already.
    pub(super) fn open(
        self: &Arc<Self>,
        requests: &[RequestId],
        form: Form,
    ) -> Result<Reader, RequestId> {
        let key = self.lock().streams.open(requests, form)?;
        let reader = self.read(key, None);
        Ok(reader.expect("a stream that was just opened can be read"))
    }

    /// Reads a stream from behind a place, or from where the last reader stopped.
    pub(super) fn read(
        self: &Arc<Self>,
        key: u64,
        after: Option<u64>,
    ) -> Result<Reader, CannotRead> {
        let mut state = self.lock();
        let (reader, replaced) = state.streams.attach(key, after)?;
        state.readers += 1;
        drop(state);
        replaced.into_iter().for_each(Waker::wake);
        Ok(Reader {
            session: self.clone(),
            key,
            reader,
        })
    }

    /// Waits until nobody has been there for so long that nobody will come. On the way there, drops calls
    /// that nobody waits for.
    pub(super) async fn until_forsaken(&self, patience: Patience) {
        // Whatever sets a deadline sets it at least this far ahead. So nobody has to tell that one was set: it
        // is enough to look this often.
        let often = patience.idle_after.min(patience.orphan_limit);
        let often = often.max(Duration::from_millis(1));
        loop {
            let now = Instant::now();
            let mut next = now + often;
            match self.deadlines(patience) {
                (Some(orphaned_at), _) if orphaned_at <= now => self.cancel_everything(),
                (_, Some(idle_at)) if idle_at <= now => return,
                (orphaned_at, idle_at) => {
                    let deadlines = [orphaned_at, idle_at].into_iter().flatten();
                    next = deadlines.fold(next, Instant::min);
                }
            }
            tokio::time::sleep_until(next).await;
        }
    }

    /// When its calls are given up, and when it is itself.
    fn deadlines(&self, patience: Patience) -> (Option<Instant>, Option<Instant>) {
        let state = self.lock();
        if state.readers > 0 {
            return (None, None);
        }
        if state.streams.unanswered().len() > 0 {
            return (Some(state.alone_since + patience.orphan_limit), None);
        }
        (None, Some(state.seen + patience.idle_after))
    }

    fn cancel_everything(&self) {
        let mut state = self.lock();
        let cancels: Vec<_> = state.streams.unanswered().map(orphan_cancel).collect();
        tracing::debug!(
            calls = cancels.len(),
            "calls that nobody waits for are dropped"
        );
        state.inbox.extend(cancels);
        // Those that cannot be stopped are asked again, but not at once.
        state.alone_since = Instant::now();
        let driver = state.driver.take();
        drop(state);
        driver.into_iter().for_each(Waker::wake);
    }

    fn route(&self, within: Option<&RequestId>, message: &Message) {
        let mut state = self.lock();
        if let Message::Response(Response { id: Some(id), .. }) = message {
            state.heads.remove(id);
        }
        let routed = state.streams.route(within, message);
        state.inbox.extend(routed.answer.map(Received::Message));
        let driver = state.driver.take();
        self.answered(state, [routed.wake, driver]);
    }

    fn cancelled(&self, request: &RequestId) {
        let mut state = self.lock();
        state.heads.remove(request);
        let wake = state.streams.cancelled(request);
        self.answered(state, [wake, None]);
    }

    fn answered(&self, mut state: MutexGuard<'_, State>, wakers: [Option<Waker>; 2]) {
        state.seen = Instant::now();
        drop(state);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    fn end(&self) {
        let mut state = self.lock();
        state.is_over = true;
        let wakers = state.streams.end();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that could panic runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody who reads a stream: an open response.
pub(super) struct Reader {
    session: Arc<Session>,
    key: u64,
    reader: u64,
}

impl Reader {
    pub(super) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(super) fn key(&self) -> u64 {
        self.key
    }

    pub(super) fn poll_next(&mut self, cx: &mut task::Context<'_>) -> Poll<Option<(u64, Bytes)>> {
        let next = self
            .session
            .lock()
            .streams
            .next(self.key, self.reader, cx.waker());
        match next {
            Next::Event { place, frame } => Poll::Ready(Some((place, frame))),
            Next::End => Poll::Ready(None),
            Next::Wait => Poll::Pending,
        }
    }

    /// Which form the response takes, once that is clear.
    pub(super) fn poll_form(&mut self, cx: &mut task::Context<'_>) -> Poll<Form> {
        let form = self.session.lock().streams.form(self.key, cx.waker());
        match form {
            Form::Undecided => Poll::Pending,
            form => Poll::Ready(form),
        }
    }

    pub(super) fn answer_already(&self, answers: Vec<Bytes>) {
        self.session
            .lock()
            .streams
            .answer_already(self.key, answers);
    }

    pub(super) fn commit_to_events(&self) {
        self.session.lock().streams.commit_to_events(self.key);
    }

    pub(super) fn take_answers(&self) -> Vec<Bytes> {
        self.session.lock().streams.take_answers(self.key)
    }

    pub(super) fn read_so_far(&self) -> u64 {
        self.session.lock().streams.read_so_far(self.key)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.session.lock();
        state.streams.detach(self.key, self.reader);
        state.readers -= 1;
        let now = Instant::now();
        (state.seen, state.alone_since) = (now, now);
    }
}

/// The driver's side of a session.
pub(super) struct SessionWire(pub(super) Arc<Session>);

impl Wire for SessionWire {
    fn poll_receive(&mut self, cx: &mut task::Context<'_>) -> Poll<Received> {
        let mut state = self.0.lock();
        if let Some(received) = state.inbox.pop_front() {
            return Poll::Ready(received);
        }
        state.driver = Some(cx.waker().clone());
        Poll::Pending
    }

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn send(&mut self, message: &Message) {
        self.0.route(None, message);
    }

    fn send_within(&mut self, request: &RequestId, message: &Message) {
        self.0.route(Some(request), message);
    }

    fn cancelled(&mut self, request: &RequestId) {
        self.0.cancelled(request);
    }

    fn poll_flush(&mut self, _: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(&mut self, _: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for SessionWire {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// What a client is told that names no session, or one that has ended.
pub(super) fn gone() -> Rejection {
    Rejection::http(StatusCode::NOT_FOUND, "there is no such session")
}

/// A cancel in the client's name.
fn orphan_cancel(id: &RequestId) -> Received {
    let params = CancelledNotificationParams::new(id.clone()).with_reason("nobody waits for it");
    let cancel = Notification::new(CancelledNotification::NAME, Json::encode(&params).ok());
    Received::Message(cancel.into())
}

/// Messages of the client that the driver has not taken in yet.
const MOST_WAITING: usize = 1024;
