//! [`ParkedCalls`]: opens calls, and passes parked ones to the retries of their clients.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline::cluster::ReplicaId;
use bowline::exchange::{Notification, Outcome, Principal, Request};
use bowline::{Json, RpcError};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::budget::Usage;
use super::call::{Call, input_required};
use super::entry::{QuestionKey, Round, Serial};
use super::keeper::HandOver;
use super::kept_notifications::KeptNotifications;
use super::refusal::Refusal;
use super::retry::Retry;
use super::sealed_state::StateSealer;
use super::settings::ParkSettings;
use super::shared::{KeeperHandle, LiveCall, Shared, SharedState};
use super::table::{Answers, CallTable, RetryAction, RetryEvent};
use super::tombstones::Ended;
use super::upstream::Upstream;
use crate::state_keys::StateKeys;

/// The calls of one process that may be parked. Clones are the same calls.
///
/// When the last clone and the last [`Call`] are dropped, all parked calls are cancelled.
pub(crate) struct ParkedCalls<U: Upstream>(Arc<Inner<U>>);

struct Inner<U> {
    shared: Arc<Shared<U>>,
    /// Keepers own `shared` but not this, so that it is dropped, and they are aborted, with the last clone.
    keepers: Mutex<JoinSet<()>>,
}

/// What a retry gets. The notifications are those that arrived while no client waited; they are sent first.
#[derive(Debug)]
pub(crate) enum Resumed<U: Upstream> {
    /// The upstream has the answers, and the call runs on, attached to this request.
    Running {
        call: Call<U>,
        upstream: U,
        notifications: Vec<Notification>,
    },
    /// The outcome of the call, which has ended: that of the upstream, or an `input_required` result with the questions
    /// that are left.
    Answered {
        outcome: Outcome,
        notifications: Vec<Notification>,
    },
}

impl<U: Upstream> ParkedCalls<U> {
    /// Creates an empty table.
    ///
    /// A state that another process has sealed with a key of `keys` is answered with "lost, may have run". With a
    /// random key that cannot be known after a restart: the state is refused as foreign.
    pub(crate) fn new(keys: StateKeys, settings: ParkSettings) -> Self {
        let states = StateSealer::new(keys);
        let shared = Arc::new(Shared::new(states, CallTable::new(settings)));
        let keepers = Mutex::default();
        Self(Arc::new(Inner { shared, keepers }))
    }

    /// Adds a call for `request`, before it is sent to the upstream.
    pub(crate) fn open_call(&self, request: &Request, principal: &Principal) -> Call<U> {
        let live = LiveCall::new();
        let asked = live.asked.clone();
        let mut state = self.0.shared.lock();
        let caller = request.caller.clone();
        let bytes = request.params.as_bytes().len();
        let serial = state.table.open(principal.clone(), caller, bytes);
        state.live.insert(serial, live);
        drop(state);
        self.call(serial, request, principal, asked)
    }

    /// Accepts a retry, once for each state. Waits for the keeper to pass the running call on.
    ///
    /// # Errors
    ///
    /// -32602 if the state is foreign, was already used, has expired, or its call was cancelled, or if an answer has the
    /// wrong shape; -32603 with `"reason": "callLost"` if the process that owned the call has ended. Nothing changes.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future after its first poll cancels the call.
    pub(crate) async fn resume(&self, retry: &Retry<'_>) -> Result<Resumed<U>, RpcError> {
        match self.accept(retry)? {
            Accepted::Attach(attach) => self.attach(retry, attach).await,
            Accepted::AskAgain {
                answers,
                round,
                kept,
            } => {
                deliver(answers);
                let outcome = input_required(&self.0.shared, &round, retry.principal, retry.digest);
                if outcome.is_err() {
                    // The client has no state for another retry.
                    self.0.shared.end(round.serial, Ended::Cancelled);
                }
                let notifications = kept.map_or_else(Vec::new, |kept| kept.take(retry.request));
                Ok(Resumed::Answered {
                    outcome,
                    notifications,
                })
            }
            Accepted::Answer { outcome, live } => {
                let kept = live.and_then(|live| live.keeper).map(|keeper| keeper.kept);
                Ok(Resumed::Answered {
                    outcome,
                    notifications: kept.map_or_else(Vec::new, |kept| kept.take(retry.request)),
                })
            }
        }
    }

    /// Makes this process one of several that share the keys, under its name there.
    pub(crate) fn set_owner(&self, replica: ReplicaId) {
        self.0.shared.states.set_owner(replica);
    }

    /// Returns the other process that has the call of a retry.
    pub(crate) fn other_owner(&self, retry: &Retry<'_>) -> Option<ReplicaId> {
        let states = &self.0.shared.states;
        states.other_owner(&retry.state, retry.principal, retry.digest)
    }

    /// Returns what parked calls use: their number and their bytes.
    pub(crate) fn used(&self) -> Usage {
        self.0.shared.lock().table.used()
    }

    /// Returns how many calls have not ended, parked or not.
    pub(crate) fn open_calls(&self) -> usize {
        let state = self.0.shared.lock();
        let live = state.live.keys();
        live.filter(|call| !state.tasks.is_settled(**call)).count()
    }

    /// Cancels all parked calls. Their retries are answered with "lost".
    #[cfg(test)]
    pub(crate) fn shut_down(&self) {
        // Aborted tasks are dropped by the runtime, after the lock is free.
        self.keepers().abort_all();
    }

    pub(super) fn shared(&self) -> &Arc<Shared<U>> {
        &self.0.shared
    }

    pub(super) fn spawn(&self, keeper: impl Future<Output = ()> + Send + 'static) {
        let mut keepers = self.keepers();
        // Otherwise the set would grow by each keeper that has ended.
        while keepers.try_join_next().is_some() {}
        keepers.spawn(keeper);
    }

    async fn attach(&self, retry: &Retry<'_>, attach: Attach<U>) -> Result<Resumed<U>, RpcError> {
        let Attach {
            serial,
            asked,
            answers,
            keeper,
        } = attach;
        // From here on a drop of this future ends the call.
        let mut call = self.call(serial, retry.request, retry.principal, asked);
        let (sender, received) = oneshot::channel();
        let Some(KeeperHandle { take_over, kept }) = keeper else {
            call.ended = Some(Ended::Lost);
            return Err(Refusal::Lost.into());
        };
        // Fails if the keeper is gone; then the channel is closed and the call lost.
        let _ = take_over.send(sender);
        match received.await {
            Ok(HandOver::Running(upstream)) => {
                // Not before: a retry that is dropped while it waits must not have answered.
                deliver(answers);
                Ok(Resumed::Running {
                    call,
                    upstream,
                    notifications: kept.take(retry.request),
                })
            }
            Ok(HandOver::Answered(outcome)) => {
                call.finish();
                Ok(Resumed::Answered {
                    outcome,
                    notifications: kept.take(retry.request),
                })
            }
            Err(_) => {
                call.ended = Some(Ended::Lost);
                Err(Refusal::Lost.into())
            }
        }
    }

    fn accept(&self, retry: &Retry<'_>) -> Result<Accepted<U>, Refusal> {
        let shared = &self.0.shared;
        let (serial, round) = (shared.states).open(&retry.state, retry.principal, retry.digest)?;
        let event = RetryEvent {
            serial,
            round,
            principal: retry.principal,
            digest: retry.digest,
            caller: &retry.request.caller,
            responses: &retry.responses,
        };
        let now = Instant::now();
        let mut state = shared.lock();
        let action = state.table.retry(&event, now)?;
        Ok(state.accept(serial, action))
    }

    fn call(
        &self,
        serial: Serial,
        request: &Request,
        principal: &Principal,
        asked: Arc<Notify>,
    ) -> Call<U> {
        Call {
            calls: self.clone(),
            serial,
            principal: principal.clone(),
            request: request.clone(),
            asked,
            ended: Some(Ended::Cancelled),
        }
    }

    fn keepers(&self) -> MutexGuard<'_, JoinSet<()>> {
        let keepers = self.0.keepers.lock();
        keepers.unwrap_or_else(PoisonError::into_inner)
    }
}

impl<U: Upstream> Clone for ParkedCalls<U> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<U: Upstream> fmt::Debug for ParkedCalls<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParkedCalls")
            .field("used", &self.used())
            .finish_non_exhaustive()
    }
}

/// An accepted retry, with the channels that it concerns. They are used after the lock is free.
enum Accepted<U> {
    Attach(Attach<U>),
    AskAgain {
        answers: Vec<Delivery>,
        round: Round,
        kept: Option<Arc<KeptNotifications>>,
    },
    Answer {
        outcome: Outcome,
        /// Dropping it ends the keeper.
        live: Option<LiveCall<U>>,
    },
}

struct Attach<U> {
    serial: Serial,
    asked: Arc<Notify>,
    answers: Vec<Delivery>,
    keeper: Option<KeeperHandle<U>>,
}

/// An answer, and the question that waits for it.
pub(super) struct Delivery {
    question: oneshot::Sender<Json>,
    answer: Json,
}

pub(super) fn deliver(answers: Vec<Delivery>) {
    for Delivery { question, answer } in answers {
        // Fails if the upstream has withdrawn the question.
        let _ = question.send(answer);
    }
}

impl<U> SharedState<U> {
    fn accept(&mut self, serial: Serial, action: RetryAction) -> Accepted<U> {
        match action {
            RetryAction::Attach { answers } => {
                let answers = self.deliveries(serial, answers);
                let live = self.live.get_mut(&serial);
                Accepted::Attach(Attach {
                    serial,
                    asked: live
                        .as_ref()
                        .map(|live| live.asked.clone())
                        .unwrap_or_default(),
                    answers,
                    keeper: live.and_then(|live| live.keeper.take()),
                })
            }
            RetryAction::AskAgain { answers, round } => {
                let keeper = self.live.get(&serial).and_then(|live| live.keeper.as_ref());
                Accepted::AskAgain {
                    kept: keeper.map(|keeper| keeper.kept.clone()),
                    answers: self.deliveries(serial, answers),
                    round,
                }
            }
            RetryAction::Answer { outcome } => {
                let live = self.live.remove(&serial);
                Accepted::Answer { outcome, live }
            }
        }
    }

    pub(super) fn deliveries(&mut self, serial: Serial, answers: Answers) -> Vec<Delivery> {
        let Some(live) = self.live.get_mut(&serial) else {
            return Vec::new();
        };
        let delivery = |(key, answer): (QuestionKey, Json)| {
            let question = live.waiting.remove(&key)?;
            Some(Delivery { question, answer })
        };
        answers.into_iter().filter_map(delivery).collect()
    }
}
