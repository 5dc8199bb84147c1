//! Deadlines of pending calls.
//!
//! A call has an idle deadline, which progress moves, and a total deadline, which nothing moves. While the
//! peer waits for us, idle deadlines are paused. While a call is held up on our side, both of its deadlines
//! stand still.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::{CallId, Overdue};

/// The deadlines of one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    idle: Option<(Instant, Duration)>,
    total: Option<(Instant, Duration)>,
    held_since: Option<Instant>,
}

impl Deadline {
    pub(super) fn new(now: Instant, idle: Option<Duration>, total: Option<Duration>) -> Self {
        // A time too far away to be written down never comes.
        let at = |after: Duration| now.checked_add(after).map(|at| (at, after));
        Self {
            idle: idle.and_then(at),
            total: total.and_then(at),
            held_since: None,
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
        let idle = match idle {
            Idle::Counts => self.idle.map(|(at, after)| (at, Overdue::Idle(after))),
            Idle::Paused => None,
        };
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
}

/// Whether idle deadlines count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Idle {
    #[default]
    Counts,
    Paused,
}

impl Deadlines {
    pub(super) fn insert(&mut self, call: CallId, deadline: &Deadline) {
        if let Some((at, _)) = deadline.first(self.idle) {
            self.queue.insert((at, call));
        }
    }

    pub(super) fn remove(&mut self, call: CallId, deadline: &Deadline) {
        if let Some((at, _)) = deadline.first(self.idle) {
            self.queue.remove(&(at, call));
        }
    }

    pub(super) fn heard(&mut self, now: Instant, call: CallId, deadline: &mut Deadline) {
        self.remove(call, deadline);
        deadline.heard(now);
        self.insert(call, deadline);
    }

    /// The deadlines of this call stand still.
    pub(super) fn hold(&mut self, now: Instant, call: CallId, deadline: &mut Deadline) {
        self.remove(call, deadline);
        deadline.held_since.get_or_insert(now);
    }

    /// The deadlines of this call count again.
    pub(super) fn release(&mut self, now: Instant, call: CallId, deadline: &mut Deadline) {
        self.remove(call, deadline);
        deadline.release(now);
        self.insert(call, deadline);
    }

    /// Idle deadlines do not count any more.
    pub(super) fn pause_idle<'a>(
        &mut self,
        calls: impl Iterator<Item = (CallId, &'a mut Deadline)>,
    ) {
        self.idle = Idle::Paused;
        self.queue.clear();
        calls.for_each(|(call, deadline)| self.insert(call, deadline));
    }

    /// Idle deadlines count again, as if something had just been heard of every call.
    pub(super) fn resume_idle<'a>(
        &mut self,
        now: Instant,
        calls: impl Iterator<Item = (CallId, &'a mut Deadline)>,
    ) {
        self.idle = Idle::Counts;
        self.queue.clear();
        for (call, deadline) in calls {
            deadline.heard(now);
            self.insert(call, deadline);
        }
    }

    pub(super) fn next(&self) -> Option<(Instant, CallId)> {
        self.queue.first().copied()
    }

    /// Which deadline of a call has passed at `now`.
    pub(super) fn overdue(&self, deadline: &Deadline, now: Instant) -> Option<Overdue> {
        deadline
            .first(self.idle)
            .and_then(|(at, which)| (at <= now).then_some(which))
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
    }
}
