//! [`TaskChange`]: what an update changes in a record, and the rules by which it is applied.

use bowline_types::{Json, RpcError};

use super::{Fence, TaskOutcome, TaskRecord, Timestamp, Version};

/// A change of a [`TaskRecord`].
///
/// The status is not set: it follows from the open questions and the outcome.
///
/// # Examples
///
/// ```
/// use bowline_tasks::store::TaskChange;
/// use bowline_types::Json;
///
/// let answer = Json::from_static(r#"{"action":"accept","content":{"name":"Ada"}}"#);
/// let change = TaskChange::new().answer("name", answer);
/// # let _ = change;
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "it does nothing unless it is passed to `TaskStore::update`"]
pub struct TaskChange {
    fence: Option<Fence>,
    inputs: Vec<InputChange>,
    status_message: Option<String>,
    requests_cancel: bool,
    releases: bool,
    outcome: Option<TaskOutcome>,
}

#[derive(Clone, Debug)]
enum InputChange {
    Ask(String, Json),
    Withdraw(String),
    Answer(String, Json),
}

impl TaskChange {
    /// Creates a change without effect.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes this a change by the owner of the task: it is stored only while that process holds the lease in that
    /// attempt. Everything that a handler causes has a fence; an answer or a cancellation by a client has none.
    pub fn fence(mut self, fence: Fence) -> Self {
        self.fence = Some(fence);
        self
    }

    /// Adds an open input request. Without effect if its key is that of a question that is open or was answered: keys
    /// are unique within a task.
    pub fn ask(mut self, key: impl Into<String>, question: Json) -> Self {
        self.inputs.push(InputChange::Ask(key.into(), question));
        self
    }

    /// Removes an open input request. A later answer to it is ignored.
    pub fn withdraw(mut self, key: impl Into<String>) -> Self {
        self.inputs.push(InputChange::Withdraw(key.into()));
        self
    }

    /// Answers an open input request. Without effect if no open request has this key.
    pub fn answer(mut self, key: impl Into<String>, answer: Json) -> Self {
        self.inputs.push(InputChange::Answer(key.into(), answer));
        self
    }

    /// Sets the status for people.
    pub fn status_message(mut self, message: impl Into<String>) -> Self {
        self.status_message = Some(message.into());
        self
    }

    /// Sets the flag that asks the handler to stop. The task goes on until it finishes.
    pub fn request_cancel(mut self) -> Self {
        self.requests_cancel = true;
        self
    }

    /// Ends the lease, so that another process can claim the task at once, such as when this one shuts down.
    pub fn release(mut self) -> Self {
        self.releases = true;
        self
    }

    /// Finishes the task with the result of the call.
    pub fn complete(self, result: Json) -> Self {
        self.finish(TaskOutcome::Completed(result))
    }

    /// Finishes the task with a JSON-RPC error.
    pub fn fail(self, error: RpcError) -> Self {
        self.finish(TaskOutcome::Failed(error))
    }

    /// Finishes the task as cancelled.
    pub fn cancel(self) -> Self {
        self.finish(TaskOutcome::Cancelled)
    }

    /// Finishes the task. Questions, answers and the journal are removed.
    pub fn finish(mut self, outcome: TaskOutcome) -> Self {
        self.outcome = Some(outcome);
        self
    }
}

impl TaskRecord {
    /// Applies a change, as every store does, at the time `now` of the store's clock.
    ///
    /// The record is changed only if [`Applied::Changed`] is returned. The store then saves it, atomically with having
    /// read it; if it [is finished](Self::is_finished), the store also removes its journal.
    pub fn apply(&mut self, expected: Version, change: TaskChange, now: Timestamp) -> Applied {
        if self.is_finished() {
            return Applied::Conflict;
        }
        if change.fence.is_some_and(|fence| !self.is_held_by(fence)) {
            return Applied::LeaseLost;
        }
        if self.version != expected {
            return Applied::Conflict;
        }
        if !self.assign(change, now) {
            return Applied::Unchanged;
        }
        self.version = self.version.next();
        self.updated_at = now;
        Applied::Changed
    }

    /// Assigns what the change contains; returns whether that differs from before.
    fn assign(&mut self, change: TaskChange, now: Timestamp) -> bool {
        let mut is_changed = false;
        for input in change.inputs {
            is_changed |= self.assign_input(input);
        }
        if change.status_message.is_some() && self.status_message != change.status_message {
            self.status_message = change.status_message;
            is_changed = true;
        }
        if change.requests_cancel && !self.is_cancel_requested {
            self.is_cancel_requested = true;
            is_changed = true;
        }
        if change.releases {
            self.leased_until = Some(now);
            is_changed = true;
        }
        if let Some(outcome) = change.outcome {
            self.outcome = Some(outcome);
            self.leased_until = None;
            // Answers may be personal data, and only a running handler needs them.
            self.questions.clear();
            self.answers.clear();
            is_changed = true;
        }
        is_changed
    }

    fn assign_input(&mut self, change: InputChange) -> bool {
        match change {
            InputChange::Ask(key, question) => {
                let is_new = !self.questions.contains_key(&key) && !self.answers.contains_key(&key);
                if is_new {
                    self.questions.insert(key, question);
                }
                is_new
            }
            InputChange::Withdraw(key) => self.questions.remove(&key).is_some(),
            InputChange::Answer(key, answer) => {
                let is_open = self.questions.remove(&key).is_some();
                if is_open {
                    // An answer is a slice of the message that contained it, which the record would keep alive.
                    self.answers.insert(key, answer.to_unshared());
                }
                is_open
            }
        }
    }
}

/// The outcome of [`TaskRecord::apply`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "stores must handle every case")]
pub enum Applied {
    /// The record has changed and must be saved.
    Changed,
    /// The change has no effect.
    Unchanged,
    /// The record is finished or has another version.
    Conflict,
    /// The owner of the change does not hold the lease in its attempt.
    LeaseLost,
}

/// The outcome of [`TaskStore::update`](super::TaskStore::update).
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "callers must handle every case")]
pub enum Updated {
    /// The record has this version now: the next one, or the expected one if the change has no effect.
    Done(Version),
    /// The record has another version or is finished; nothing is stored. Contains the record.
    Conflict(Box<TaskRecord>),
    /// The change has a fence, and another process holds the lease; nothing is stored.
    LeaseLost,
    /// The task does not exist.
    NotFound,
}
