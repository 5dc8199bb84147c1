//! A parked call as a task of the extension, for a client that declared it.
//!
//! ```text
//!  client ── tools/call ────▶ front ── tools/call ───────────▶ upstream
//!         ◀─ task ──────────    │   ◀─ elicitation/create ────
//!                               ▼
//!         ── tasks/get ──────▶ runner      (the running call)
//!         ── tasks/update ───▶   │ ── the answer ────────────▶
//!         ── tasks/get ──────▶   │ ◀─ result ─────────────────
//! ```
//!
//! The runner owns the call until the task ends; there is no retry. The id is sealed like the state of a retry, so that a
//! process with the same key knows that the task of another one was lost with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bowline::exchange::{Digest, Outcome, Principal, request_digest};
use bowline::{Json, RpcError};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};

use super::ParkedCalls;
use super::call::Call;
use super::calls::deliver;
use super::entry::{Round, Serial};
use super::refusal::{Refusal, unanswered};
use super::settings::{SEAL_GRACE, instant_after};
use super::shared::Shared;
use super::task_records::TaskTimes;
use super::tombstones::Ended;
use super::upstream::Upstream;

/// A task that was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CreatedTask {
    pub(crate) id: String,
    pub(crate) times: TaskTimes,
}

/// What a client is told about a task.
#[derive(Debug)]
pub(crate) struct TaskView {
    pub(crate) times: TaskTimes,
    pub(crate) state: TaskState,
}

/// Where a task is.
#[derive(Debug)]
pub(crate) enum TaskState {
    Working,
    /// The open questions by their keys.
    InputRequired(Vec<(String, Json)>),
    Ended(Outcome),
    Cancelled,
}

/// A task of this process. It does not keep the call alive.
pub(crate) struct ParkedTask<U> {
    shared: Arc<Shared<U>>,
    serial: Serial,
}

impl<U: Upstream> Call<U> {
    /// Makes a task of the call: a runner owns `upstream` until the task ends.
    ///
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// -32603 `too many parked calls`, if there is no budget, or if the id cannot be sealed. `upstream` is cancelled
    /// then.
    pub(crate) fn into_task(mut self, upstream: U) -> Result<CreatedTask, RpcError> {
        match self.start_task(upstream.server()) {
            Ok((runner, created)) => {
                self.ended = None;
                self.calls.spawn(runner.run(upstream));
                Ok(created)
            }
            Err(refusal) => {
                let error = RpcError::from(refusal);
                upstream.cancel(&error.message);
                Err(error)
            }
        }
    }

    fn start_task(&self, server: &str) -> Result<(TaskRunner<U>, CreatedTask), Refusal> {
        let shared = self.calls.shared();
        let now = Instant::now();
        let mut state = shared.lock();
        let ttl = state.table.start_task(self.serial, now)?;
        let ends_at = instant_after(now, ttl);
        let (stopped, removed) = state.tasks.insert(self.serial, ttl, ends_at);
        let record = state.tasks.get(self.serial);
        let times = record.map(|record| record.times);
        drop(state);
        drop(removed); // not under the lock
        // From here on a drop of the runner ends the call.
        let runner = TaskRunner {
            shared: shared.clone(),
            serial: self.serial,
            asked: self.asked.clone(),
            stopped,
            ends_at,
        };
        let round = Round {
            serial: self.serial,
            number: 0,
            questions: Vec::new(),
            deadline: ends_at,
            seal_lifetime: ttl + SEAL_GRACE,
        };
        let id = (shared.states).seal(&round, &self.principal, task_digest(server))?;
        let times = times.ok_or(Refusal::Lost)?;
        Ok((runner, CreatedTask { id, times }))
    }
}

impl<U: Upstream> ParkedCalls<U> {
    /// Finds a task of this process; `None` if the id was not issued for this principal and server by any process with
    /// the same key.
    ///
    /// # Errors
    ///
    /// -32602 if the task has expired; -32603 with `"reason": "callLost"` if it was lost with its process.
    pub(crate) fn find_task(
        &self,
        id: &str,
        principal: &Principal,
        server: &str,
    ) -> Result<Option<ParkedTask<U>>, RpcError> {
        let shared = self.shared();
        let opened = shared.states.open(id, principal, task_digest(server));
        let serial = match opened {
            Ok((serial, _)) => serial,
            Err(Refusal::Foreign) => return Ok(None),
            Err(Refusal::Expired) => return Err(expired()),
            Err(refusal) => return Err(refusal.into()),
        };
        if shared.lock().tasks.get(serial).is_none() {
            return Err(expired());
        }
        Ok(Some(ParkedTask {
            shared: shared.clone(),
            serial,
        }))
    }
}

impl<U> ParkedTask<U> {
    /// Returns what the client is told about the task.
    ///
    /// # Errors
    ///
    /// -32602 if the task has expired.
    pub(crate) fn view(&self) -> Result<TaskView, RpcError> {
        let mut state = self.shared.lock();
        let record = state.tasks.get(self.serial).ok_or_else(expired)?;
        let times = record.times;
        let task = match state.table.task_state(self.serial) {
            _ if record.is_cancelled() => TaskState::Cancelled,
            Some(task) => task,
            None => TaskState::Ended(Err(Refusal::Lost.into())),
        };
        if matches!(task, TaskState::Ended(_)) {
            state.tasks.settle(self.serial);
        }
        Ok(TaskView { times, state: task })
    }

    /// Passes answers to the upstream. Those to unknown questions are ignored, since they may have been withdrawn.
    ///
    /// # Errors
    ///
    /// -32602 if an answer has the wrong shape. Then no answer is passed.
    pub(crate) fn answer(&self, responses: &BTreeMap<String, Json>) -> Result<(), RpcError> {
        let mut state = self.shared.lock();
        let answers = state.table.answer(self.serial, responses)?;
        let deliveries = state.deliveries(self.serial, answers);
        state.tasks.touch(self.serial);
        let live = state.live.get(&self.serial);
        let asked = live.map(|live| live.asked.clone());
        drop(state);
        deliver(deliveries);
        if let Some(asked) = asked {
            // The runner waits for the deadline of the question.
            asked.notify_one();
        }
        Ok(())
    }

    /// Cancels the task, unless it has ended.
    pub(crate) fn cancel(&self) {
        let mut state = self.shared.lock();
        let has_ended = matches!(
            state.table.task_state(self.serial),
            None | Some(TaskState::Ended(_))
        );
        let runner = match has_ended {
            true => None,
            false => state.tasks.cancel(self.serial),
        };
        drop(state);
        drop(runner); // not under the lock
    }
}

/// Owns a call that is a task.
struct TaskRunner<U> {
    shared: Arc<Shared<U>>,
    serial: Serial,
    /// Wakes it when there is a new question, or an answer.
    asked: Arc<Notify>,
    /// Closed when the task is cancelled.
    stopped: oneshot::Receiver<()>,
    ends_at: Instant,
}

enum RunnerEvent {
    Stopped,
    Outcome(Outcome),
    /// There is another question, or none.
    Changed,
    Deadline,
}

impl<U: Upstream> TaskRunner<U> {
    /// Runs the call to its end, and keeps the outcome until the task's time to live ends.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the call, and the task has failed.
    async fn run(mut self, mut upstream: U) {
        let kept = Arc::default();
        let outcome = loop {
            let deadline = self.deadline();
            let event = tokio::select! {
                biased;
                // First: once it is cancelled the client sees no outcome.
                _ = &mut self.stopped => RunnerEvent::Stopped,
                // Before the deadline, so that an outcome at the last moment needs no cancel.
                outcome = upstream.outcome(&kept) => RunnerEvent::Outcome(outcome),
                () = self.asked.notified() => RunnerEvent::Changed,
                () = sleep_until(deadline) => RunnerEvent::Deadline,
            };
            match event {
                RunnerEvent::Stopped => return upstream.cancel("the client cancelled the task"),
                RunnerEvent::Outcome(outcome) => {
                    // Releases the connection, which other calls may need while the outcome is kept.
                    drop(upstream);
                    break outcome;
                }
                RunnerEvent::Deadline if self.deadline() <= Instant::now() => {
                    let error = unanswered();
                    upstream.cancel(&error.message);
                    self.shared.lock().tasks.settle(self.serial);
                    break Err(error);
                }
                RunnerEvent::Changed | RunnerEvent::Deadline => {}
            }
        };
        self.shared.finish_task(self.serial, outcome);
        tokio::select! {
            biased; // the order does not matter
            _ = &mut self.stopped => {}
            () = sleep_until(self.ends_at) => {}
        }
    }

    /// Returns until when the client must answer, or the task ends.
    fn deadline(&self) -> Instant {
        let state = self.shared.lock();
        let deadline = state.table.input_deadline(self.serial);
        deadline.map_or(self.ends_at, |deadline| deadline.min(self.ends_at))
    }
}

/// Ends the call. Only a task that was cancelled is still known then.
impl<U> Drop for TaskRunner<U> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let record = state.tasks.get(self.serial);
        let removed = match record.is_some_and(|record| !record.is_cancelled()) {
            true => state.tasks.remove(self.serial),
            false => None,
        };
        drop(state);
        drop(removed); // not under the lock
        self.shared.end(self.serial, Ended::Lost);
    }
}

/// Returns the digest that the id of a task is bound to. A task of one server is unknown to others.
fn task_digest(server: &str) -> Digest {
    request_digest(&format!("task of {server}"), None)
}

fn expired() -> RpcError {
    RpcError::invalid_params("the task has expired")
}
