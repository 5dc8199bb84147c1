//! One legacy conversation over HTTP: a wire made of POSTs and streams.
//!
//! ```text
//! POST bodies ──▶ inbox ──▶ Driver, Mux, handlers ──▶ Streams ──▶ responses
//! ```
//!
//! The same engine drives it as any other wire. What is different is where messages come in and go out.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{self, Poll};
use std::time::Duration;

use ::http::StatusCode;
use bowline_core::era::Dialect;
use bowline_core::http::admission::Rejection;
use bowline_core::{Message, shortened};
use bowline_types::{ErrorCode, RequestId, RpcError};
use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::pool::EventPool;
use super::state::{Head, Idleness, Leftover, NotTaken, Patience, Posted, State, Tended};
use super::streams::{CannotRead, Form, Keep, Layout, Next, Streams};
use crate::exchange::Principal;
use crate::http::server::overloaded;
use crate::limits::{Account, Charge, Limit};
use crate::wire::{Received, Wire};

/// One legacy conversation.
pub(super) struct Session {
    pub(super) id: String,
    pub(super) principal: Principal,
    /// What is held for its client.
    pub(super) account: Arc<Account>,
    /// The version that the last handshake agreed on.
    dialect: Mutex<&'static Dialect>,
    state: Mutex<State>,
    /// A deadline may have been set that is nearer than those that are known.
    untended: Notify,
    pool: Arc<EventPool>,
    /// Its number in the pool.
    number: u64,
}

impl Session {
    pub(super) fn new(
        id: String,
        principal: Principal,
        layout: Layout,
        streams: Streams,
        account: Arc<Account>,
        pool: &Arc<EventPool>,
    ) -> Arc<Self> {
        let state = State::new(layout, streams, account.clone(), Instant::now());
        let session = Arc::new(Self {
            id,
            principal,
            account,
            dialect: Mutex::new(Dialect::UNNAMED_ON_HTTP),
            state: Mutex::new(state),
            untended: Notify::new(),
            pool: pool.clone(),
            number: pool.next_number(),
        });
        pool.add(session.number, &session);
        session
    }

    /// The version that was agreed upon, once it was.
    pub(super) fn dialect(&self) -> &'static Dialect {
        *self.dialect.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn agree_on(&self, dialect: &'static Dialect) {
        *self.dialect.lock().unwrap_or_else(PoisonError::into_inner) = dialect;
    }

    /// Takes what the client posted, and opens a stream of that form for the answers: both, or neither.
    pub(super) fn post(
        self: &Arc<Self>,
        posted: Posted,
        form: Option<Form>,
    ) -> Result<Option<Reader>, Rejection> {
        let now = Instant::now();
        let taken = self.with(|state| match state.check(&posted) {
            Ok(()) => Ok((state.take(now, posted, form), state.has_early_cancels())),
            // Dropped after the lock is released.
            Err(refused) => Err(Box::new((refused, posted))),
        });
        match taken {
            Ok((opened, has_early_cancels)) => {
                if has_early_cancels {
                    self.untended.notify_one(); // they expire
                }
                Ok(opened.map(|(key, reader)| self.reader(key, reader)))
            }
            Err(refused) => {
                let (refused, _posted) = *refused;
                Err(self.refuse(refused))
            }
        }
    }

    fn refuse(&self, refused: NotTaken) -> Rejection {
        match refused {
            NotTaken::Ended => gone(),
            NotTaken::Full => {
                let max = self.account.limits().peer_requests;
                overloaded(self.account.meters().refuse(Limit::PeerRequests, max))
            }
            NotTaken::InFlight(id) => already_in_flight(id),
        }
    }

    /// The head of the POST that a request came with, for its handler.
    pub(super) fn take_head(&self, request: &RequestId) -> Option<Arc<Head>> {
        self.lock().take_head(request)
    }

    /// Reads a stream from behind a place, or from where the last response stopped.
    pub(super) fn read(
        self: &Arc<Self>,
        key: u64,
        after: Option<u64>,
    ) -> Result<Reader, CannotRead> {
        let now = Instant::now();
        let reader = self.with(|state| state.attach(now, key, after))?;
        Ok(self.reader(key, reader))
    }

    fn reader(self: &Arc<Self>, key: u64, reader: u64) -> Reader {
        Reader {
            session: self.clone(),
            key,
            reader,
        }
    }

    /// Waits until the client has been away for too long. On the way there, drops calls that it left behind.
    ///
    /// # Cancel safety
    ///
    /// Safe: it can be called again.
    pub(super) async fn until_forsaken(&self, patience: Patience) {
        // Whatever sets a deadline without notifying sets it at least this far ahead. So it is enough to look this often.
        let often = patience.idle_after.min(patience.orphan_limit);
        let often = often.max(Duration::from_millis(1));
        loop {
            let now = Instant::now();
            let next = match self.with(|state| state.tend(now, patience)) {
                Tended::Forsaken => return,
                Tended::Until(next) => next,
            };
            // A time that is too far away to be told never comes.
            let next = [next, now.checked_add(often)].into_iter().flatten().min();
            let asleep = async {
                match next {
                    Some(next) => tokio::time::sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.untended.notified() => {}
                () = asleep => {}
            }
        }
    }

    pub(super) fn idleness(&self) -> Idleness {
        self.lock().idleness()
    }

    /// How easily its events can be missed, if there are any: whether a response is open, and when it was last active.
    pub(super) fn events_idleness(&self) -> Option<(bool, Instant)> {
        self.lock().events_idleness()
    }

    /// Drops the oldest events until this many bytes are free, and returns how many events that were.
    pub(super) fn drop_events(&self, bytes: usize, keep: Keep) -> u64 {
        self.with(|state| state.drop_events(bytes, keep))
    }

    #[cfg(test)]
    pub(super) fn sizes(&self) -> super::state::Sizes {
        self.lock().sizes()
    }

    #[cfg(test)]
    pub(super) fn tend(&self, patience: Patience) -> Tended {
        let now = Instant::now();
        self.with(|state| state.tend(now, patience))
    }

    /// Changes the state; then wakes and drops what has to be, with the lock released.
    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let result = change(&mut state);
        let (leftovers, more_events) = state.leftovers();
        drop(state);
        leftovers.for_each(Leftover::release);
        if more_events {
            self.pool.make_room(self);
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that could panic runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.pool.remove(self.number);
    }
}

/// An open response that reads a stream.
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
        let mut state = self.session.lock();
        let next = state.streams.next(self.key, self.reader, cx.waker());
        drop(state);
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

    pub(super) fn commit_to_events(&self) {
        let commit = |state: &mut State| state.streams.commit_to_events(self.key);
        self.session.with(commit);
    }

    pub(super) fn take_answers(&self) -> Vec<Bytes> {
        let take = |state: &mut State| state.streams.take_answers(self.key);
        self.session.with(take)
    }

    pub(super) fn read_so_far(&self) -> u64 {
        self.session.lock().streams.read_so_far(self.key)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let now = Instant::now();
        let detach = |state: &mut State| state.detach(now, self.key, self.reader);
        self.session.with(detach);
    }
}

/// The driver's side of a session.
pub(super) struct SessionWire {
    session: Arc<Session>,
    /// How many bytes the driver has taken since it last dispatched them, after which they are charged again.
    taken: usize,
}

impl SessionWire {
    pub(super) fn new(session: Arc<Session>) -> Self {
        Self { session, taken: 0 }
    }
}

impl Wire for SessionWire {
    fn poll_receive(&mut self, cx: &mut task::Context<'_>) -> Poll<Received> {
        if self.taken >= MAX_TAKEN {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut state = self.session.lock();
        let Some((message, charge)) = state.next_message() else {
            let replaced = state.wait_for_message(cx.waker());
            drop(state);
            drop(replaced);
            return Poll::Pending;
        };
        drop(state);
        self.taken += charge.as_ref().map_or(0, Charge::bytes);
        Poll::Ready(Received::Message(message))
    }

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn send(&mut self, message: &Message) {
        let now = Instant::now();
        self.session.with(|state| state.route(now, None, message));
    }

    fn send_within(&mut self, request: &RequestId, message: &Message) {
        let now = Instant::now();
        self.session
            .with(|state| state.route(now, Some(request), message));
    }

    fn cancelled(&mut self, request: &RequestId) {
        let now = Instant::now();
        self.session.with(|state| state.cancelled(now, request));
    }

    fn poll_flush(&mut self, _: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        self.taken = 0;
        Poll::Ready(Ok(()))
    }

    fn poll_close(&mut self, _: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for SessionWire {
    fn drop(&mut self) {
        self.session.with(State::end);
    }
}

/// The refusal of a request that names no session, or one that has ended.
pub(super) fn gone() -> Rejection {
    Rejection::http(StatusCode::NOT_FOUND, "session not found")
}

/// The refusal of a request whose id an unanswered request has.
pub(super) fn already_in_flight(id: RequestId) -> Rejection {
    let why = format!("the request id {} is already in flight", shortened(&id));
    Rejection::from(RpcError::new(ErrorCode::INVALID_REQUEST, why)).about(id)
}

/// How many bytes the driver takes before it has to dispatch them; one message may be longer.
const MAX_TAKEN: usize = 256 * 1024;
