//! What all sessions of a service keep for resumption, and which of them loses events first.
//!
//! ```text
//! 1. sessions without an open response, the one that was idle for longest first
//! 2. sessions that are read, in the same order, all but their newest event
//! 3. these too, except the newest event of the session that needs the room
//! ```

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::session::Session;
use super::streams::Keep;
use crate::limits::{Held, Limit};

/// Every session that may hold events: also one that has ended while a response still reads it.
#[derive(Default)]
pub(super) struct EventPool {
    sessions: Mutex<BTreeMap<u64, Weak<Session>>>,
    last_number: AtomicU64,
    /// Whether a thread is making room.
    is_busy: AtomicBool,
}

impl EventPool {
    pub(super) fn next_number(&self) -> u64 {
        self.last_number.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn add(&self, number: u64, session: &Arc<Session>) {
        self.lock().insert(number, Arc::downgrade(session));
    }

    pub(super) fn remove(&self, number: u64) {
        self.lock().remove(&number);
    }

    /// Drops events until all that are left are within [`Limits::event_bytes`](crate::Limits::event_bytes). The newest
    /// event of `writer` stays. No lock of a session may be held.
    pub(super) fn make_room(&self, writer: &Session) {
        let max = writer.account.limits().event_bytes;
        let meters = writer.account.meters();
        while meters.held(Held::Event) > max && !self.is_busy.swap(true, Ordering::AcqRel) {
            // All sessions have to be looked at, so that it should not happen for every event.
            let dropped = self.drop_events(writer, max - max / 16);
            self.is_busy.store(false, Ordering::Release);
            if dropped == 0 {
                break;
            }
            // Others may have added events, and left the work to this thread.
        }
    }

    /// Drops events until no more bytes than `goal` are held, and returns how many.
    fn drop_events(&self, writer: &Session, goal: usize) -> u64 {
        let sessions: Vec<_> = self.lock().values().filter_map(Weak::upgrade).collect();
        let meters = writer.account.meters();
        let mut by_idleness: Vec<_> = sessions
            .iter()
            // Two services may have been given clones of one `Legacy`.
            .filter(|session| Arc::ptr_eq(session.account.meters(), meters))
            .filter_map(|session| Some((session.events_idleness()?, session)))
            .collect();
        by_idleness.sort_by_key(|(idleness, _)| *idleness);
        let unread = by_idleness.partition_point(|((is_read, _), _)| !is_read);
        let (unread, read) = by_idleness.split_at(unread);
        let is_writer = |session: &Session| std::ptr::eq(session, writer);
        let first = unread.iter().map(|(_, session)| (session, Keep::Nothing));
        let second = read.iter().map(|(_, session)| (session, Keep::Newest));
        let third = read.iter().map(|(_, session)| (session, Keep::Nothing));
        let limit = writer.account.limits().event_bytes;
        let mut dropped = 0;
        for (session, keep) in first.chain(second).chain(third) {
            let excess = meters.held(Held::Event).saturating_sub(goal);
            if excess == 0 {
                break;
            }
            let keep = match is_writer(session) {
                true => Keep::Newest,
                false => keep,
            };
            let lost = session.drop_events(excess, keep);
            for _ in 0..lost {
                meters.refuse(Limit::EventBytes, limit);
            }
            dropped += lost;
        }
        if dropped > 0 {
            tracing::debug!(dropped, "dropped events that were kept for resumption");
        }
        dropped
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Weak<Session>>> {
        // No code that could panic runs under this lock.
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
