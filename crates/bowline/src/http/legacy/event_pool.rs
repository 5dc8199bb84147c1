//! Bounds the events that all sessions of a service keep for resumption. Events are dropped in this order:
//!
//! ```text
//! 1. of sessions without an open response, longest idle first
//! 2. of sessions with an open response, in the same order, except their newest event
//! 3. these newest events too, except that of the session that needs the room
//! ```

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use super::session::Session;
use super::streams::KeepEvents;
use crate::limits::{ChargeKind, Limit};
use crate::sync::Mutex;

/// The sessions that may hold events, including an ended one that a response still reads.
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
        self.sessions.lock().insert(number, Arc::downgrade(session));
    }

    pub(super) fn remove(&self, number: u64) {
        self.sessions.lock().remove(&number);
    }

    /// Drops events until all sessions are within [`Limits::event_bytes`](crate::Limits::event_bytes). Keeps the newest
    /// event of `writer`. Locks every session, so the caller must not hold a session's lock.
    pub(super) fn make_room(&self, writer: &Session) {
        let max = writer.account.limits().event_bytes;
        let counters = writer.account.counters();
        while counters.charged_bytes(ChargeKind::Event) > max
            && !self.is_busy.swap(true, Ordering::AcqRel)
        {
            // Frees a sixteenth more than needed: visiting all sessions for every event would be slow.
            let dropped = self.drop_events(writer, max - max / 16);
            self.is_busy.store(false, Ordering::Release);
            if dropped == 0 {
                break;
            }
            // Checks again: threads that added events meanwhile saw `is_busy` and left the work to this one.
        }
    }

    /// Drops events until at most `goal` bytes are held, and returns how many were dropped.
    fn drop_events(&self, writer: &Session, goal: usize) -> u64 {
        let sessions: Vec<_> = self
            .sessions
            .lock()
            .values()
            .filter_map(Weak::upgrade)
            .collect();
        let counters = writer.account.counters();
        let mut by_rank: Vec<_> = sessions
            .iter()
            // Two services that were configured with clones of one `Legacy` share the pool.
            .filter(|session| Arc::ptr_eq(session.account.counters(), counters))
            .filter_map(|session| Some((session.event_eviction_rank()?, session)))
            .collect();
        by_rank.sort_by_key(|(rank, _)| *rank);
        let unread = by_rank.partition_point(|((is_read, _), _)| !is_read);
        let (unread, read) = by_rank.split_at(unread);
        let is_writer = |session: &Session| std::ptr::eq(session, writer);
        let first = unread
            .iter()
            .map(|(_, session)| (session, KeepEvents::Nothing));
        let second = read
            .iter()
            .map(|(_, session)| (session, KeepEvents::Newest));
        let third = read
            .iter()
            .map(|(_, session)| (session, KeepEvents::Nothing));
        let limit = writer.account.limits().event_bytes;
        let mut dropped = 0;
        for (session, keep) in first.chain(second).chain(third) {
            let excess = counters
                .charged_bytes(ChargeKind::Event)
                .saturating_sub(goal);
            if excess == 0 {
                break;
            }
            let keep = match is_writer(session) {
                true => KeepEvents::Newest,
                false => keep,
            };
            let lost = session.drop_events(excess, keep);
            for _ in 0..lost {
                counters.refuse(Limit::EventBytes, limit);
            }
            dropped += lost;
        }
        if dropped > 0 {
            tracing::debug!(dropped, "dropped events kept for resumption");
        }
        dropped
    }
}
