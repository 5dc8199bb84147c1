//! The table of parked calls behind its lock, with the channels of its calls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline::Json;
use bowline::exchange::Outcome;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::entry::{QuestionKey, Serial};
use super::keeper::HandOver;
use super::kept_notifications::KeptNotifications;
use super::sealed_state::StateSealer;
use super::table::{AnsweredAction, CallTable, Expiry};
use super::task_records::TaskRecords;
use super::tombstones::Ended;

/// What fronts, keepers and questions share.
pub(super) struct Shared<U> {
    pub(super) states: StateSealer,
    state: Mutex<SharedState<U>>,
}

pub(super) struct SharedState<U> {
    pub(super) table: CallTable,
    /// The channels of each entry of the table.
    pub(super) live: BTreeMap<Serial, LiveCall<U>>,
    /// The calls that are tasks.
    pub(super) tasks: TaskRecords,
}

/// The channels of one call.
pub(super) struct LiveCall<U> {
    /// The questions that wait for an answer. Dropping a sender refuses its question.
    pub(super) waiting: BTreeMap<QuestionKey, oneshot::Sender<Json>>,
    /// Wakes the front when there is a new question.
    pub(super) asked: Arc<Notify>,
    /// While the call is parked or answered. Dropping it makes the keeper cancel the call.
    pub(super) keeper: Option<KeeperHandle<U>>,
}

/// What reaches the keeper of a parked call.
pub(super) struct KeeperHandle<U> {
    /// Receives the channel of the retry that takes the call over.
    pub(super) take_over: oneshot::Sender<oneshot::Sender<HandOver<U>>>,
    pub(super) kept: Arc<KeptNotifications>,
}

impl<U> Shared<U> {
    pub(super) fn new(states: StateSealer, table: CallTable) -> Self {
        let state = SharedState {
            table,
            live: BTreeMap::new(),
            tasks: TaskRecords::default(),
        };
        Self {
            states,
            state: Mutex::new(state),
        }
    }

    /// Blocks until the lock is free. It is never held across an `.await`, and nothing is woken or dropped under it.
    pub(super) fn lock(&self) -> MutexGuard<'_, SharedState<U>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a call. Its open questions are refused.
    pub(super) fn end(&self, serial: Serial, ended: Ended) {
        let now = Instant::now();
        let mut state = self.lock();
        let ended = (
            state.table.end(serial, ended, now),
            state.live.remove(&serial),
        );
        drop(state);
        drop(ended);
    }

    /// Keeps the outcome of a parked call, whose open questions are refused.
    pub(super) fn answered(&self, serial: Serial, outcome: Outcome) -> AnsweredAction {
        let mut state = self.lock();
        let action = state.table.answered(serial, outcome);
        let refused = match (&action, state.live.get_mut(&serial)) {
            (AnsweredAction::Kept, Some(live)) => std::mem::take(&mut live.waiting),
            _ => BTreeMap::new(),
        };
        drop(state);
        drop(refused);
        action
    }

    /// Keeps the outcome of a task, whose open questions are refused.
    pub(super) fn finish_task(&self, serial: Serial, outcome: Outcome) {
        let mut state = self.lock();
        state.table.finish_task(serial, outcome);
        state.tasks.touch(serial);
        let live = state.live.get_mut(&serial);
        let refused = live.map(|live| std::mem::take(&mut live.waiting));
        drop(state);
        drop(refused);
    }

    /// Ends a parked call if its deadline has passed.
    pub(super) fn expire(&self, serial: Serial) -> Expiry {
        let now = Instant::now();
        let mut state = self.lock();
        let expiry = state.table.expire(serial, now);
        let live = (expiry == Expiry::Ended).then(|| state.live.remove(&serial));
        drop(state);
        drop(live);
        expiry
    }

    /// Ends a call that its keeper has lost, unless a retry has taken it over.
    pub(super) fn end_lost(&self, serial: Serial) {
        let now = Instant::now();
        let mut state = self.lock();
        let lost = state.table.end_kept(serial, Ended::Lost, now);
        let live = lost.is_some().then(|| state.live.remove(&serial));
        drop(state);
        drop((lost, live));
    }
}

impl<U> LiveCall<U> {
    pub(super) fn new() -> Self {
        Self {
            waiting: BTreeMap::new(),
            asked: Arc::default(),
            keeper: None,
        }
    }
}
