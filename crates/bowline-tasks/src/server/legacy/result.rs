//! `tasks/result`: waits until a task is finished, and puts its questions to the client meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use bowline::Context;
use bowline::exchange::{Notification, Outcome};
use bowline_types::legacy_tasks::{Task, TaskStatusNotificationParams};
use bowline_types::{ErrorCode, Json, RpcError};
use tokio::time::sleep;

use super::questions::Questions;
use super::task::{of_record, to_object, with_related_task};
use crate::TaskId;
use crate::server::Env;
use crate::server::access;
use crate::server::retry::Backoff;
use crate::server::run::{is_passing, shown};
use crate::server::store_errors::{chain, to_rpc_error};
use crate::store::{
    ChangeHint, RunMode, StoreError, TaskChange, TaskChanges, TaskOutcome, TaskRecord, Updated,
};

/// Answers `tasks/result`.
///
/// # Cancel safety
///
/// Dropping it withdraws the requests to the client. The task goes on, and its questions stay open.
pub(super) async fn wait(env: &Env, task_id: &str, cx: &Context) -> Outcome {
    // Before the record is read, so that no change between them is missed.
    let changes = env.store.changes();
    let record = access::find(&*env.store, task_id, cx.principal()).await?;
    let waiter = Waiter {
        env,
        cx,
        changes: Some(changes),
        questions: Questions::new(record.id, cx),
        sent: of_record(&record),
        record,
    };
    waiter.run().await
}

/// A client that waits for a task.
struct Waiter<'a> {
    env: &'a Env,
    cx: &'a Context,
    /// `None` if the store has no more hints.
    changes: Option<TaskChanges>,
    record: TaskRecord,
    questions: Questions,
    /// The task as the client may know it.
    sent: Task,
}

impl Waiter<'_> {
    async fn run(mut self) -> Outcome {
        loop {
            if let Some(outcome) = &self.record.outcome {
                return underlying_outcome(self.record.id, outcome);
            }
            self.questions.follow(&self.record);
            let ends_elsewhere = !self.ends_here();
            let answered = tokio::select! {
                answered = self.questions.next_answer() => Some(answered),
                () = changed(&mut self.changes, &self.record) => None,
                () = self.cx.shutting_down(), if ends_elsewhere => {
                    let why = "the server is shutting down";
                    return Err(RpcError::new(ErrorCode::INTERNAL_ERROR, why));
                }
            };
            if let Some((key, answer)) = answered {
                self.store_answer(&key, &answer).await?;
            }
            self.read().await?;
            self.send_status();
        }
    }

    /// Returns whether the task will end in this process, if it shuts down now.
    fn ends_here(&self) -> bool {
        self.record.run_mode == RunMode::NotResumable && self.record.owner == self.env.owner
    }

    /// Stores an answer of the client, unless the question was answered or withdrawn meanwhile.
    async fn store_answer(&mut self, key: &str, answer: &Json) -> Result<(), RpcError> {
        let mut backoff = Backoff::new(MAX_DELAY);
        let mut current = self.record.clone();
        while current.questions.contains_key(key) {
            let change = TaskChange::new().answer(key, answer.to_unshared());
            let updated = self.env.store.update(current.id, current.version, change);
            match updated.await {
                Ok(Updated::Conflict(record)) => current = *record,
                Ok(Updated::Done(_) | Updated::NotFound | Updated::LeaseLost) => break,
                // The user has answered, and should not be asked again.
                Err(error) => retry(current.id, &error, &mut backoff).await?,
            }
        }
        Ok(())
    }

    async fn read(&mut self) -> Result<(), RpcError> {
        let mut backoff = Backoff::new(MAX_DELAY);
        loop {
            match self.env.store.read(self.record.id).await {
                Ok(Some(record)) => {
                    self.record = record;
                    return Ok(());
                }
                Ok(None) => return Err(access::unknown_task()),
                Err(error) => retry(self.record.id, &error, &mut backoff).await?,
            }
        }
    }

    /// Sends `notifications/tasks/status` if the status or its message has changed.
    fn send_status(&mut self) {
        let task = of_record(&self.record);
        let is_same =
            task.status == self.sent.status && task.status_message == self.sent.status_message;
        // The answer follows.
        if is_same || self.record.is_finished() {
            return;
        }
        if let Ok(params) = Json::encode(&TaskStatusNotificationParams::new(task.clone())) {
            let notification = Notification::new(STATUS_NOTIFICATION, Some(params));
            self.cx.send(notification);
        }
        self.sent = task;
    }
}

/// Waits before another attempt, if the failure of the store may pass.
async fn retry(id: TaskId, error: &StoreError, backoff: &mut Backoff) -> Result<(), RpcError> {
    if !is_passing(error) {
        return Err(to_rpc_error(error));
    }
    let error = chain(error);
    tracing::warn!(task = %shown(id), %error, "failed to access a task for a client; trying again");
    backoff.wait().await;
    Ok(())
}

/// Waits until the record may have changed.
async fn changed(changes: &mut Option<TaskChanges>, record: &TaskRecord) {
    tokio::select! {
        () = hinted(changes, record) => {}
        // Hints may be lost.
        () = sleep(RECHECK_INTERVAL) => {}
    }
}

async fn hinted(changes: &mut Option<TaskChanges>, record: &TaskRecord) {
    while let Some(open) = changes {
        match open.next().await {
            Some(ChangeHint::Changed { id, version }) => {
                if id == record.id && version > record.version {
                    return;
                }
            }
            Some(ChangeHint::TooMany) => return,
            None => *changes = None,
        }
    }
    std::future::pending().await
}

/// Returns what the call would have been answered with, and the id of the task in `_meta`, where a result has one.
fn underlying_outcome(id: TaskId, outcome: &TaskOutcome) -> Outcome {
    match outcome {
        TaskOutcome::Completed(result) => {
            let result = with_structured_object(result).and_then(|it| with_related_task(&it, id));
            result.map_err(|error| {
                tracing::error!(task = %shown(id), %error, "failed to read the result of a task");
                RpcError::new(
                    ErrorCode::INTERNAL_ERROR,
                    "failed to read the result of the task",
                )
            })
        }
        TaskOutcome::Failed(error) => Err(error.clone()),
        TaskOutcome::Cancelled => {
            let why = "the task was cancelled";
            Err(RpcError::new(ErrorCode::REQUEST_CANCELLED, why))
        }
    }
}

/// Wraps structured content that is not an object, as that of an ordinary call: the call may have been made by a client
/// of a version that allows any.
fn with_structured_object(result: &Json) -> Result<Json, serde_json::Error> {
    let mut members: BTreeMap<String, Json> = result.decode()?;
    if let Some(content) = members.get_mut(STRUCTURED_CONTENT)
        && !content.is_object()
    {
        *content = Json::object([("result", &*content)]);
    }
    Ok(to_object(&members))
}

const STATUS_NOTIFICATION: &str = "notifications/tasks/status";
const STRUCTURED_CONTENT: &str = "structuredContent";
const RECHECK_INTERVAL: Duration = Duration::from_secs(5);
const MAX_DELAY: Duration = Duration::from_secs(2);
