//! Deadlines of pending calls.
//!
//! A call has an idle deadline, which progress moves, and a total deadline, which nothing moves.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::{CallId, Overdue};

/// The deadlines of one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    idle: Option<(Instant, Duration)>,
    total: Option<(Instant, Duration)>,
}

impl Deadline {
    pub(super) fn new(now: Instant, idle: Option<Duration>, total: Option<Duration>) -> Self {
        // A time too far away to be written down never comes.
        let at = |after: Duration| now.checked_add(after).map(|at| (at, after));
        Self {
            idle: idle.and_then(at),
            total: total.and_then(at),
        }
    }

    /// Something was heard of the call.
    fn heard(&mut self, now: Instant) {
        self.idle = self
            .idle
            .and_then(|(_, after)| Some((now.checked_add(after)?, after)));
    }

    /// Which of the two comes first.
    fn first(&self) -> Option<(Instant, Overdue)> {
        let idle = self.idle.map(|(at, after)| (at, Overdue::Idle(after)));
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
}

impl Deadlines {
    pub(super) fn insert(&mut self, call: CallId, deadline: &Deadline) {
        if let Some((at, _)) = deadline.first() {
            self.queue.insert((at, call));
        }
    }

    pub(super) fn remove(&mut self, call: CallId, deadline: &Deadline) {
        if let Some((at, _)) = deadline.first() {
            self.queue.remove(&(at, call));
        }
    }

    pub(super) fn heard(&mut self, now: Instant, call: CallId, deadline: &mut Deadline) {
        self.remove(call, deadline);
        deadline.heard(now);
        self.insert(call, deadline);
    }

    pub(super) fn next(&self) -> Option<(Instant, CallId)> {
        self.queue.first().copied()
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
    }
}

/// Which deadline of a call has passed at `now`.
pub(super) fn overdue(deadline: &Deadline, now: Instant) -> Option<Overdue> {
    deadline
        .first()
        .and_then(|(at, which)| (at <= now).then_some(which))
}
