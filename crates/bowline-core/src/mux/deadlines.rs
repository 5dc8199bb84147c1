//! The deadlines of pending calls.
//!
//! A call has an idle deadline, which progress restarts, and a total deadline, which is fixed. All deadlines are paused
//! while the peer waits for us, and those of one call while it is delayed on our side.
//!
//! Calls are queued by a time that is never later than their first deadline. Pausing and resuming all deadlines does
//! not touch the queue, because a peer controls how often that happens. A call whose queue time comes before its
//! deadline is queued again.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::{CallId, CallTimeout};

/// The deadlines of one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallDeadlines {
    idle: Option<(Instant, Duration)>,
    /// As a time of the [`PausableClock`].
    total: Option<(Instant, Duration)>,
    /// The start of its own pause, as a time of the [`PausableClock`].
    paused_since: Option<Instant>,
    /// Its time in the queue.
    queued: Option<Instant>,
}

impl CallDeadlines {
    /// Restarts the idle deadline.
    fn restart_idle(&mut self, now: Instant) {
        self.idle = self
            .idle
            .and_then(|(_, after)| Some((now.checked_add(after)?, after)));
    }

    /// Resumes both deadlines. The time since `paused_since` does not count.
    fn resume(&mut self, now: Instant, clock: &PausableClock) {
        let Some(since) = self.paused_since.take() else {
            return;
        };
        self.restart_idle(now);
        let paused = clock.at(now).saturating_duration_since(since);
        self.total = self
            .total
            .and_then(|(at, after)| Some((at.checked_add(paused)?, after)));
    }

    /// Returns the earlier of the deadlines, as if all deadlines were resumed now if they are paused: they cannot pass
    /// earlier.
    fn earliest(&self, clock: &PausableClock) -> Option<(Instant, CallTimeout)> {
        if self.paused_since.is_some() {
            return None;
        }
        let idle = self.idle.and_then(|(at, after)| {
            let at = match clock.resumed_at {
                Some(resumed) => at.max(resumed.checked_add(after)?),
                None => at,
            };
            Some((at, CallTimeout::Idle(after)))
        });
        let total = self.total.and_then(|(at, after)| {
            Some((at.checked_add(clock.paused)?, CallTimeout::Total(after)))
        });
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
    clock: PausableClock,
    /// Calls whose queue time came while all deadlines were paused. They are not queued.
    paused: BTreeSet<CallId>,
    /// How often a call was queued.
    #[cfg(test)]
    moves: usize,
}

/// A clock that stands still while all deadlines are paused.
#[derive(Debug, Default)]
struct PausableClock {
    /// The start of the current pause.
    paused_since: Option<Instant>,
    /// The end of the last pause. Idle deadlines restart then, as if every call had made progress.
    resumed_at: Option<Instant>,
    /// The total time of the pauses that have ended.
    paused: Duration,
}

impl PausableClock {
    /// Returns the total time of the pauses.
    fn paused_for(&self, now: Instant) -> Duration {
        let current = self.paused_since;
        self.paused + current.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Returns the time of this clock.
    fn at(&self, now: Instant) -> Instant {
        now.checked_sub(self.paused_for(now)).unwrap_or(now)
    }
}

impl DeadlineQueue {
    /// Starts the deadlines of a call.
    pub(super) fn start(
        &mut self,
        now: Instant,
        call: CallId,
        idle: Option<Duration>,
        total: Option<Duration>,
    ) -> CallDeadlines {
        // A deadline beyond the range of `Instant` never passes.
        let after = |now: Instant| move |after| now.checked_add(after).map(|at| (at, after));
        let mut deadlines = CallDeadlines {
            idle: idle.and_then(after(now)),
            total: total.and_then(after(self.clock.at(now))),
            paused_since: None,
            queued: None,
        };
        self.insert(call, &mut deadlines);
        deadlines
    }

    pub(super) fn insert(&mut self, call: CallId, deadlines: &mut CallDeadlines) {
        let at = deadlines.earliest(&self.clock).map(|(at, _)| at);
        self.queue_at(at, call, deadlines);
    }

    /// Returns the earlier of a call's deadlines, unless they are paused.
    pub(super) fn first(&self, deadlines: &CallDeadlines) -> Option<(Instant, CallTimeout)> {
        match self.clock.paused_since {
            Some(_) => None,
            None => deadlines.earliest(&self.clock),
        }
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
        let at = self.clock.at(now);
        deadlines.paused_since.get_or_insert(at);
    }

    /// Resumes both deadlines of a call.
    pub(super) fn resume(&mut self, now: Instant, call: CallId, deadlines: &mut CallDeadlines) {
        self.remove(call, deadlines);
        deadlines.resume(now, &self.clock);
        self.insert(call, deadlines);
    }

    /// Pauses all deadlines.
    pub(super) fn pause_all(&mut self, now: Instant) {
        self.clock.paused_since.get_or_insert(now);
    }

    /// Resumes all deadlines; idle ones restart at `now`. Returns the calls to [insert](Self::insert) again.
    pub(super) fn resume_all(&mut self, now: Instant) -> BTreeSet<CallId> {
        self.clock.paused = self.clock.paused_for(now);
        self.clock.paused_since = None;
        self.clock.resumed_at = Some(now);
        std::mem::take(&mut self.paused)
    }

    /// Returns how long all deadlines were paused.
    pub(super) fn paused_for(&self, now: Instant) -> Duration {
        self.clock.paused_for(now)
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
        let first = self.first(deadlines);
        if let Some((_, timeout)) = first.filter(|(at, _)| *at <= now) {
            return Some(timeout);
        }
        self.remove(call, deadlines);
        self.queue_at(first.map(|(at, _)| at), call, deadlines);
        if self.clock.paused_since.is_some() {
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
        let mut start = |call| queue.start(now, CallId(call), Some(second), Some(2 * second));
        let mut calls: Vec<_> = (0..1000).map(|call| (CallId(call), start(call))).collect();

        for _ in 0..1000 {
            queue.pause_all(now + second / 2);
            assert!(queue.resume_all(now + second / 2).is_empty());
        }

        assert_eq!(queue.moves, calls.len());
        let (call, deadlines) = &mut calls[0];
        assert_eq!(queue.overdue(now + second, *call, deadlines), None);
        let at = now + second + second / 2;
        let idle = Some(CallTimeout::Idle(second));
        assert_eq!(queue.overdue(at, *call, deadlines), idle);
    }
}
