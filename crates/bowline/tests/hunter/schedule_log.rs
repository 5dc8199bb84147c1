//! The record of one schedule: its trace, its running handlers, the failures it allows and the invariants it violated.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The record of one schedule. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct ScheduleLog {
    state: Arc<Mutex<LogState>>,
    /// Whether a trace is recorded. Schedules first run without one, which is much faster; one that violates an
    /// invariant runs again.
    has_trace: bool,
}

/// A failure that violates no invariant, because a fault explains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AllowedFailure {
    /// Calls and subscriptions may fail in any way.
    Any,
    /// Calls and subscriptions without a deadline of their own may end at the client's default deadline.
    Timeout,
    /// Calls and subscriptions may fail with a transport error.
    ConnectionLost,
    /// Calls and subscriptions whose handler never started may fail with a transport error.
    LostBeforeHandler,
    /// Subscriptions may end before they are dropped; their listener subscribes again.
    SubscriptionLost,
    /// A subscription may end with `Error::Lagged`.
    Lag,
    /// A server may send a message to the same client again.
    Replay,
    /// A server may not ask, because the bridge refuses its questions for a while after a cancel.
    Question,
}

#[derive(Debug)]
struct LogState {
    started: Instant,
    trace: Vec<String>,
    /// The number of repetitions of the last line of the trace.
    repeats: usize,
    /// The number of running handlers by tag, 0 for those that have ended.
    handlers: BTreeMap<String, usize>,
    /// The number of times that a handler was started, by tag.
    starts: BTreeMap<String, usize>,
    violations: Vec<String>,
    allowed: BTreeSet<AllowedFailure>,
    /// The number of resource changes announced so far.
    changes: u64,
    last_number: u64,
    /// The number of hosts that are answering, since when there is one, and how long there was one before.
    hosts: usize,
    hosts_since: Instant,
    host_time: Duration,
}

/// A host that is answering.
pub(crate) struct HostGuard(ScheduleLog);

impl Drop for HostGuard {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.hosts -= 1;
        if state.hosts == 0 {
            let current = state.hosts_since.elapsed();
            state.host_time += current;
        }
    }
}

impl ScheduleLog {
    /// Creates the record of a schedule and starts its clock.
    pub(crate) fn new(title: impl Display, has_trace: bool) -> Self {
        let state = LogState {
            started: Instant::now(),
            trace: Vec::new(),
            repeats: 0,
            handlers: BTreeMap::new(),
            starts: BTreeMap::new(),
            violations: Vec::new(),
            allowed: BTreeSet::new(),
            changes: 0,
            last_number: 0,
            hosts: 0,
            hosts_since: Instant::now(),
            host_time: Duration::ZERO,
        };
        let log = Self {
            state: Arc::new(Mutex::new(state)),
            has_trace,
        };
        log.note(title);
        log
    }

    /// Adds an event to the trace, with its time.
    pub(crate) fn note(&self, event: impl Display) {
        if !self.has_trace {
            return;
        }
        let mut state = self.lock();
        let at = state.started.elapsed().as_millis();
        let line = format!("{at:>6} {event}");
        if state.trace.last() == Some(&line) {
            state.repeats += 1;
            return;
        }
        let repeats = std::mem::take(&mut state.repeats);
        if repeats > 0 {
            state.trace.push(format!("       and {repeats} times more"));
        }
        state.trace.push(line);
    }

    /// Records the violation of an invariant.
    pub(crate) fn violation(&self, invariant: &str, details: impl Display) {
        self.note(format_args!("VIOLATED {invariant}: {details}"));
        let violation = format!("{invariant}: {details}");
        self.lock().violations.push(violation);
    }

    /// Counts a handler of the call with this tag as running until the guard is dropped.
    pub(crate) fn handler_started(&self, tag: &str) -> HandlerGuard {
        self.note(format_args!("{tag} handler starts"));
        let mut state = self.lock();
        *state.handlers.entry(tag.to_owned()).or_default() += 1;
        *state.starts.entry(tag.to_owned()).or_default() += 1;
        drop(state);
        HandlerGuard {
            log: self.clone(),
            tag: tag.to_owned(),
            is_done: false,
        }
    }

    /// Counts a host as answering until the guard is dropped.
    pub(crate) fn host_started(&self) -> HostGuard {
        let mut state = self.lock();
        state.hosts += 1;
        if state.hosts == 1 {
            state.hosts_since = Instant::now();
        }
        HostGuard(self.clone())
    }

    /// Returns how long at least one host was answering.
    pub(crate) fn host_time(&self) -> Duration {
        let state = self.lock();
        let current = state.hosts_since.elapsed() * u32::from(state.hosts > 0);
        state.host_time + current
    }

    pub(crate) fn is_handler_running(&self, tag: &str) -> bool {
        let state = self.lock();
        state.handlers.get(tag).is_some_and(|count| *count > 0)
    }

    /// Returns the tags of all running handlers.
    pub(crate) fn running_handlers(&self) -> Vec<String> {
        let state = self.lock();
        let tags = state.handlers.iter().filter(|(_, count)| **count > 0);
        tags.map(|(tag, _)| tag.clone()).collect()
    }

    /// Returns whether a handler has ever started for the call with this tag.
    pub(crate) fn has_handler_started(&self, tag: &str) -> bool {
        self.handler_starts(tag) > 0
    }

    /// Returns how many times a handler was started for the call with this tag.
    pub(crate) fn handler_starts(&self, tag: &str) -> usize {
        self.lock().starts.get(tag).copied().unwrap_or_default()
    }

    pub(crate) fn allow(&self, failure: AllowedFailure) {
        self.lock().allowed.insert(failure);
    }

    pub(crate) fn allows(&self, failure: AllowedFailure) -> bool {
        let allowed = &self.lock().allowed;
        allowed.contains(&failure) || allowed.contains(&AllowedFailure::Any)
    }

    pub(crate) fn allows_any_failure(&self) -> bool {
        self.allows(AllowedFailure::Any)
    }

    /// Returns a number that is unique in this schedule.
    pub(crate) fn next_number(&self) -> u64 {
        let mut state = self.lock();
        state.last_number += 1;
        state.last_number
    }

    /// Counts a resource change and returns its number, starting at 1.
    pub(crate) fn record_change(&self) -> u64 {
        let mut state = self.lock();
        state.changes += 1;
        state.changes
    }

    pub(crate) fn change_count(&self) -> u64 {
        self.lock().changes
    }

    pub(crate) fn has_trace(&self) -> bool {
        self.has_trace
    }

    pub(crate) fn trace(&self) -> Vec<String> {
        self.lock().trace.clone()
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        self.lock().violations.clone()
    }

    fn lock(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Marks a handler as running. Dropping the guard before [`HandlerGuard::done`] means that the handler was dropped.
pub(crate) struct HandlerGuard {
    log: ScheduleLog,
    tag: String,
    is_done: bool,
}

impl HandlerGuard {
    pub(crate) fn done(mut self) {
        self.is_done = true;
    }
}

impl Drop for HandlerGuard {
    fn drop(&mut self) {
        let how = if self.is_done {
            "finishes"
        } else {
            "is dropped"
        };
        self.log.note(format_args!("{} handler {how}", self.tag));
        let mut state = self.log.lock();
        *state.handlers.entry(self.tag.clone()).or_default() -= 1;
    }
}
