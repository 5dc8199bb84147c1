//! Deadlines of pending calls.
//!
//! A call has an idle deadline, which progress moves, and a total deadline, which nothing moves. While the
//! peer waits for us, idle deadlines are paused. While a call is held up on our side, both of its deadlines
//! stand still.
//!
//! Calls are queued by a time that is never later than their first deadline. Pausing and resuming idle deadlines leaves
//! the queue as it is, for a peer decides how often that happens. A call whose time has come before its deadline
//! is queued again then.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::{CallId, Overdue};

/// The deadlines of one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    idle: Option<(Instant, Duration)>,
    total: Option<(Instant, Duration)>,
    held_since: Option<Instant>,
    /// Where it is in the queue.
    queued: Option<Instant>,
}

impl Deadline {
    pub(super) fn new(now: Instant, idle: Option<Duration>, total: Option<Duration>) -> Self {
        // A time too far away to be written down never comes.
        let at = |after: Duration| now.checked_add(after).map(|at| (at, after));
        Self {
            idle: idle.and_then(at),
            total: total.and_then(at),
            held_since: None,
            queued: None,
        }
    }

    /// Something was heard of the call.
    fn heard(&mut self, now: Instant) {
        self.idle = self
            .idle
            .and_then(|(_, after)| Some((now.checked_add(after)?, after)));
    }

    /// The time since it was held does not count.
    fn release(&mut self, now: Instant) {
        let Some(since) = self.held_since.take() else {
            return;
        };
        self.heard(now);
        let held = now.saturating_duration_since(since);
        self.total = self
            .total
            .and_then(|(at, after)| Some((at.checked_add(held)?, after)));
    }

    /// Which of the two comes first, of those that count.
    fn first(&self, idle: Idle) -> Option<(Instant, Overdue)> {
        if self.held_since.is_some() {
            return None;
        }
        let idle = self.idle.and_then(|(at, after)| {
            let at = match idle {
                Idle::Counts => at,
                Idle::CountsSince(resumed) => at.max(resumed.checked_add(after)?),
                Idle::Paused => return None,
            };
            Some((at, Overdue::Idle(after)))
        });
        let total = self.total.map(|(at, after)| (at, Overdue::Total(after)));
        match (idle, total) {
            (Some(idle), Some(total)) => Some(if total.0 <= idle.0 { total } else { idle }),
            (one, other) => one.or(other),
        }
    }
}

/// All calls that have a deadline, soonest first.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    queue: BTreeSet<(Instant, CallId)>,
    idle: Idle,
    /// Calls whose time came while idle deadlines were paused. They are queued by their total deadline, if at all.
    paused: BTreeSet<CallId>,
    /// How often a call was queued.
    #[cfg(test)]
    moves: usize,
}

/// Whether idle deadlines count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Idle {
    #[default]
    Counts,
    /// From then on, as if something had been heard of every call.
    CountsSince(Instant),
    Paused,
}

impl Deadlines {
    pub(super) fn insert(&mut self, call: CallId, deadline: &mut Deadline) {
        // Also while they are paused: they will count again, and not earlier than this.
        let first = deadline.first(match self.idle {
            Idle::Paused => Idle::Counts,
            counts => counts,
        });
        self.queue_at(first.map(|(at, _)| at), call, deadline);
    }

    /// The deadline of a call that passes first, of those that count now.
    pub(super) fn first(&self, deadline: &Deadline) -> Option<(Instant, Overdue)> {
        deadline.first(self.idle)
    }

    fn queue_at(&mut self, at: Option<Instant>, call: CallId, deadline: &mut Deadline) {
        deadline.queued = at;
        if let Some(at) = at {
            self.queue.insert((at, call));
        }
        #[cfg(test)]
        {
            self.moves += 1;
        }
    }

    pub(super) fn remove(&mut self, call: CallId, deadline: &Deadline) {
        if let Some(at) = deadline.queued {
            self.queue.remove(&(at, call));
        }
        self.paused.remove(&call);
    }

    pub(super) fn heard(&mut self, now: Instant, call: CallId, deadline: &mut Deadline) {
        self.remove(call, deadline);
        deadline.heard(now);
        self.insert(call, deadline);
    }

    /// The deadlines of this call stand still.
    pub(super) fn hold(&mut self, now: Instant, call: CallId, deadline: &mut Deadline) {
        self.remove(call, deadline);
        deadline.queued = None;
        deadline.held_since.get_or_insert(now);
    }

    /// The deadlines of this call count again.
    pub(super) fn release(&mut self, now: Instant, call: CallId, deadline: &mut Deadline) {
        self.remove(call, deadline);
        deadline.release(now);
        self.insert(call, deadline);
    }

    /// Idle deadlines do not count any more.
    pub(super) fn pause_idle(&mut self) {
        self.idle = Idle::Paused;
    }

    /// Idle deadlines count again, as if something had just been heard of every call. Returns the calls that have to be
    /// [inserted](Self::insert) again.
    pub(super) fn resume_idle(&mut self, now: Instant) -> BTreeSet<CallId> {
        self.idle = Idle::CountsSince(now);
        std::mem::take(&mut self.paused)
    }

    /// When to look for calls that are overdue: not later than the first of them is.
    pub(super) fn next(&self) -> Option<(Instant, CallId)> {
        self.queue.first().copied()
    }

    /// Which deadline of a call, whose time has come, has passed at `now`. If none has, the call is queued again.
    pub(super) fn overdue(
        &mut self,
        now: Instant,
        call: CallId,
        deadline: &mut Deadline,
    ) -> Option<Overdue> {
        let first = deadline.first(self.idle);
        if let Some((_, which)) = first.filter(|(at, _)| *at <= now) {
            return Some(which);
        }
        self.remove(call, deadline);
        self.queue_at(first.map(|(at, _)| at), call, deadline);
        if self.idle == Idle::Paused {
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
        let mut deadlines = Deadlines::default();
        let mut calls: Vec<_> = (0..1000)
            .map(|at| (CallId(at), Deadline::new(now, Some(second), None)))
            .collect();
        for (call, deadline) in &mut calls {
            deadlines.insert(*call, deadline);
        }

        for _ in 0..1000 {
            deadlines.pause_idle();
            assert!(deadlines.resume_idle(now + second / 2).is_empty());
        }

        assert_eq!(deadlines.moves, calls.len());
        let (call, deadline) = &mut calls[0];
        assert_eq!(deadlines.overdue(now + second, *call, deadline), None);
        let at = now + second + second / 2;
        let idle = Some(Overdue::Idle(second));
        assert_eq!(deadlines.overdue(at, *call, deadline), idle);
    }
}
