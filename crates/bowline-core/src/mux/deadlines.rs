//! The deadlines of pending calls.
//!
//! A call has an idle deadline, which progress restarts, and a total deadline, which is fixed. Idle deadlines are
//! paused while the peer waits for us. Both deadlines of a call are paused while it is delayed on our side.
//!
//! Calls are queued by a time that is never later than their first deadline. Pausing and resuming idle deadlines does
//! not touch the queue, because a peer controls how often that happens. A call whose queue time comes before its
//! deadline is queued again.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::{CallId, CallTimeout};

/// The deadlines of one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallDeadlines {
    idle: Option<(Instant, Duration)>,
    total: Option<(Instant, Duration)>,
    paused_since: Option<Instant>,
    /// Its time in the queue.
    queued: Option<Instant>,
}

impl CallDeadlines {
    pub(super) fn new(now: Instant, idle: Option<Duration>, total: Option<Duration>) -> Self {
        // A deadline beyond the range of `Instant` never passes.
        let at = |after: Duration| now.checked_add(after).map(|at| (at, after));
        Self {
            idle: idle.and_then(at),
            total: total.and_then(at),
            paused_since: None,
            queued: None,
        }
    }

    /// Restarts the idle deadline.
    fn restart_idle(&mut self, now: Instant) {
        self.idle = self
            .idle
            .and_then(|(_, after)| Some((now.checked_add(after)?, after)));
    }

    /// Resumes both deadlines. The time since `paused_since` does not count.
    fn resume(&mut self, now: Instant) {
        let Some(since) = self.paused_since.take() else {
            return;
        };
        self.restart_idle(now);
        let paused = now.saturating_duration_since(since);
        self.total = self
            .total
            .and_then(|(at, after)| Some((at.checked_add(paused)?, after)));
    }

    /// Returns the earlier of the active deadlines.
    fn first(&self, idle: IdleState) -> Option<(Instant, CallTimeout)> {
        if self.paused_since.is_some() {
            return None;
        }
        let idle = self.idle.and_then(|(at, after)| {
            let at = match idle {
                IdleState::Active => at,
                IdleState::ActiveSince(resumed) => at.max(resumed.checked_add(after)?),
                IdleState::Paused => return None,
            };
            Some((at, CallTimeout::Idle(after)))
        });
        let total = self
            .total
            .map(|(at, after)| (at, CallTimeout::Total(after)));
        match (idle, total) {
            (Some(idle), Some(total)) => Some(if total.0 <= idle.0 { total } else { idle }),
            (one, other) => one.or(other),
        }
    }
}

/// The calls that have a deadline, soonest first.
#[derive(Debug, Default)]
pub(super) struct DeadlineQueue {
    queue: BTreeSet<(Instant, CallId)>,
    idle: IdleState,
    /// Calls whose queue time came while idle deadlines were paused. They are queued by their total deadline, if any.
    paused: BTreeSet<CallId>,
    /// How often a call was queued.
    #[cfg(test)]
    moves: usize,
}

/// Whether idle deadlines are active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum IdleState {
    #[default]
    Active,
    /// Active since then, as if every call had made progress at that time.
    ActiveSince(Instant),
    Paused,
}

impl DeadlineQueue {
    pub(super) fn insert(&mut self, call: CallId, deadlines: &mut CallDeadlines) {
        // Queued even while paused: once resumed, the idle deadline is not earlier than this.
        let first = deadlines.first(match self.idle {
            IdleState::Paused => IdleState::Active,
            active => active,
        });
        self.queue_at(first.map(|(at, _)| at), call, deadlines);
    }

    /// Returns the earlier of a call's active deadlines.
    pub(super) fn first(&self, deadlines: &CallDeadlines) -> Option<(Instant, CallTimeout)> {
        deadlines.first(self.idle)
    }

    fn queue_at(&mut self, at: Option<Instant>, call: CallId, deadlines: &mut CallDeadlines) {
        deadlines.queued = at;
        if let Some(at) = at {
            self.queue.insert((at, call));
        }
        #[cfg(test)]
        {
            self.moves += 1;
        }
    }

    pub(super) fn remove(&mut self, call: CallId, deadlines: &CallDeadlines) {
        if let Some(at) = deadlines.queued {
            self.queue.remove(&(at, call));
        }
        self.paused.remove(&call);
    }

    pub(super) fn restart_idle(
        &mut self,
        now: Instant,
        call: CallId,
        deadlines: &mut CallDeadlines,
    ) {
        self.remove(call, deadlines);
        deadlines.restart_idle(now);
        self.insert(call, deadlines);
    }

    /// Pauses both deadlines of a call.
    pub(super) fn pause(&mut self, now: Instant, call: CallId, deadlines: &mut CallDeadlines) {
        self.remove(call, deadlines);
        deadlines.queued = None;
        deadlines.paused_since.get_or_insert(now);
    }

    /// Resumes both deadlines of a call.
    pub(super) fn resume(&mut self, now: Instant, call: CallId, deadlines: &mut CallDeadlines) {
        self.remove(call, deadlines);
        deadlines.resume(now);
        self.insert(call, deadlines);
    }

    /// Pauses idle deadlines.
    pub(super) fn pause_idle(&mut self) {
        self.idle = IdleState::Paused;
    }

    /// Resumes idle deadlines; each restarts at `now`. Returns the calls to [insert](Self::insert) again.
    pub(super) fn resume_idle(&mut self, now: Instant) -> BTreeSet<CallId> {
        self.idle = IdleState::ActiveSince(now);
        std::mem::take(&mut self.paused)
    }

    /// Returns the first call in the queue and its time, which is not later than any deadline.
    pub(super) fn next(&self) -> Option<(Instant, CallId)> {
        self.queue.first().copied()
    }

    /// Returns the deadline of a call that has passed at `now`, if any. Otherwise queues the call again.
    pub(super) fn overdue(
        &mut self,
        now: Instant,
        call: CallId,
        deadlines: &mut CallDeadlines,
    ) -> Option<CallTimeout> {
        let first = deadlines.first(self.idle);
        if let Some((_, timeout)) = first.filter(|(at, _)| *at <= now) {
            return Some(timeout);
        }
        self.remove(call, deadlines);
        self.queue_at(first.map(|(at, _)| at), call, deadlines);
        if self.idle == IdleState::Paused {
            self.paused.insert(call);
        }
        None
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.paused.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_of_pausing_and_resuming_does_not_depend_on_the_number_of_calls() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let mut queue = DeadlineQueue::default();
        let mut calls: Vec<_> = (0..1000)
            .map(|at| (CallId(at), CallDeadlines::new(now, Some(second), None)))
            .collect();
        for (call, deadlines) in &mut calls {
            queue.insert(*call, deadlines);
        }

        for _ in 0..1000 {
            queue.pause_idle();
            assert!(queue.resume_idle(now + second / 2).is_empty());
        }

        assert_eq!(queue.moves, calls.len());
        let (call, deadlines) = &mut calls[0];
        assert_eq!(queue.overdue(now + second, *call, deadlines), None);
        let at = now + second + second / 2;
        let idle = Some(CallTimeout::Idle(second));
        assert_eq!(queue.overdue(at, *call, deadlines), idle);
    }
}
