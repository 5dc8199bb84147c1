//! [`TaskRun`]: one run of a task's handler in this process, as its lease holder sees the record.
//!
//! ```text
//!   hints, renewals ──deliver──▶ ┌─────────┐ ──▶ questions that wait for an answer
//!                                │ TaskRun │ ──▶ the run's future: stop, cancel
//!   questions, status, outcome ─▶└─────────┘ ──write──▶ store, with the fence of this run
//! ```

use std::sync::Arc;

use bowline::exchange::InputError;
use bowline_types::RpcError;
use tokio::sync::{Notify, watch};

use super::retry::Backoff;
use super::store_errors::chain;
use crate::TaskId;
use crate::store::{
    Fence, HeldTask, RunMode, StoreError, TaskChange, TaskRecord, TaskStore, Updated, Version,
};
use crate::sync::Mutex;

/// One run of a task's handler in this process.
pub(super) struct TaskRun {
    pub(super) id: TaskId,
    pub(super) fence: Fence,
    pub(super) run_mode: RunMode,
    pub(super) store: Arc<dyn TaskStore>,
    view: watch::Sender<RunView>,
    outbox: Mutex<Outbox>,
    outbox_filled: Notify,
    drain: Mutex<DrainState>,
    /// The text and the JSON-RPC error of the last question that failed a check.
    rejected: Mutex<Option<(String, RpcError)>>,
}

/// The record as this process last saw it, and why the run must stop.
pub(super) struct RunView {
    pub(super) record: TaskRecord,
    pub(super) stop: Option<Stop>,
    /// Whether the handler has ended or is stopped. What is left of it may run on: parts that it has spawned, or all of
    /// it, if it wants to end by itself.
    pub(super) is_unheard: bool,
}

/// Why a run must stop before its handler has an outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The task is finished, removed, or held by another process. There is nothing to write.
    Lost,
    /// The task fails with this error, whatever the handler would return.
    Fail(RpcError),
    /// Another process is to take over.
    Release,
    /// The caller never got the id. The runner deletes the record.
    Discard,
}

/// What is to be written, without that the handler waits for it.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// The last status message.
    pub(super) status_message: Option<String>,
    /// Keys of questions that the handler no longer waits for.
    pub(super) withdrawn: Vec<String>,
}

#[derive(Debug, Default)]
struct DrainState {
    is_draining: bool,
    /// The number of effects that have begun and not finished.
    open_effects: usize,
}

/// The outcome of a write of the lease holder.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Written {
    Done,
    /// The run has lost the task, and stops.
    Lost,
}

impl TaskRun {
    pub(super) fn new(store: Arc<dyn TaskStore>, record: TaskRecord) -> Self {
        Self {
            id: record.id,
            fence: record.fence(),
            run_mode: record.run_mode,
            store,
            view: watch::Sender::new(RunView {
                record,
                stop: None,
                is_unheard: false,
            }),
            outbox: Mutex::default(),
            outbox_filled: Notify::new(),
            drain: Mutex::default(),
            rejected: Mutex::default(),
        }
    }

    /// Returns the record as last seen.
    pub(super) fn with_record<T>(&self, read: impl FnOnce(&TaskRecord) -> T) -> T {
        read(&self.view.borrow().record)
    }

    /// Returns what is passed to `TaskStore::renew`.
    pub(super) fn held(&self) -> HeldTask {
        self.with_record(TaskRecord::held)
    }

    /// Takes in a record that was read from the store.
    pub(super) fn deliver(&self, record: TaskRecord) {
        self.change_view(|view| {
            if record.version <= view.record.version {
                return false;
            }
            if !record.is_held_by(self.fence) {
                view.stop.get_or_insert(Stop::Lost);
            }
            view.record = record;
            true
        });
    }

    /// Stops the run. The first reason wins.
    pub(super) fn stop(&self, stop: Stop) {
        self.change_view(|view| {
            let is_first = view.stop.is_none();
            view.stop.get_or_insert(stop);
            is_first
        });
    }

    /// Marks that the handler has ended, or is stopped and not dropped.
    pub(super) fn set_unheard(&self) {
        self.change_view(|view| {
            view.is_unheard = true;
            true
        });
    }

    /// Changes the view, and wakes those that wait for it if `change` returns true.
    fn change_view(&self, change: impl FnOnce(&mut RunView) -> bool) {
        self.view.send_if_modified(|view| {
            // Waking none costs as much as ten of these changes. One that begins to wait later sees the change.
            change(view) && self.view.receiver_count() > 0
        });
    }

    /// Waits, after a stop, until the handler is dropped. Returns for what is left of it and runs on.
    pub(super) async fn unheard(&self) {
        self.wait_for(|view| view.is_unheard.then_some(())).await;
    }

    /// Returns whether the run must stop.
    pub(super) fn has_stopped(&self) -> bool {
        self.view.borrow().stop.is_some()
    }

    /// Returns whether the run has stopped and writes no outcome.
    pub(super) fn has_given_up(&self) -> bool {
        match &self.view.borrow().stop {
            Some(Stop::Lost | Stop::Release | Stop::Discard) => true,
            Some(Stop::Fail(_)) | None => false,
        }
    }

    /// Keeps the error of a question that was not asked because a check failed.
    pub(super) fn reject(&self, error: &InputError) {
        let rejected = (error.to_string(), error.to_rpc_error());
        *self.rejected.lock() = Some(rejected);
    }

    /// Returns the JSON-RPC error of a handler that failed with the text of a rejected question. A client may be able
    /// to provide what it lacks, and a model is not.
    pub(super) fn take_rejected(&self, failure: &str) -> Option<RpcError> {
        let rejected = self.rejected.lock().take();
        let rejected = rejected.filter(|(text, _)| text == failure);
        rejected.map(|(_, error)| error)
    }

    /// Waits until the run must stop.
    pub(super) async fn stopped(&self) -> Stop {
        self.wait_for(|view| view.stop.clone()).await
    }

    /// Waits until the handler must be told that its caller no longer needs the result.
    pub(super) async fn cancel_requested(&self) {
        self.wait_for(|view| view.record.is_cancel_requested.then_some(()))
            .await;
    }

    /// Waits until `find` returns a value.
    pub(super) async fn wait_for<T>(&self, find: impl Fn(&RunView) -> Option<T>) -> T {
        let mut views = self.view.subscribe();
        loop {
            if let Some(found) = find(&views.borrow_and_update()) {
                return found;
            }
            // Cannot fail: `self` owns the sender.
            if views.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Writes a change as the lease holder, whatever the current version is.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub(super) async fn write(&self, change: &TaskChange) -> Result<Written, StoreError> {
        loop {
            let (expected, is_finished) =
                self.with_record(|record| (record.version, record.is_finished()));
            if is_finished {
                self.stop(Stop::Lost);
                return Ok(Written::Lost);
            }
            let fenced = change.clone().fence(self.fence);
            match self.store.update(self.id, expected, fenced).await? {
                Updated::Done(version) => {
                    self.apply(expected, change, version);
                    return Ok(Written::Done);
                }
                Updated::Conflict(record) => self.deliver(*record),
                Updated::LeaseLost | Updated::NotFound => {
                    self.stop(Stop::Lost);
                    return Ok(Written::Lost);
                }
            }
        }
    }

    /// Applies a change that was stored to the record as last seen, unless a later version was read meanwhile.
    fn apply(&self, expected: Version, change: &TaskChange, stored: Version) {
        self.change_view(|view| {
            let record = &mut view.record;
            if stored <= record.version || record.version != expected {
                return false;
            }
            // The store does not return the record; the time of the change is not needed here.
            let now = record.updated_at;
            record.apply(expected, change.clone(), now);
            record.version = stored;
            true
        });
    }

    /// Like [`write`](Self::write), and tries again while the store fails in a way that may pass.
    ///
    /// # Errors
    ///
    /// If the store refuses the change.
    pub(super) async fn write_with_retries(
        &self,
        change: &TaskChange,
    ) -> Result<Written, StoreError> {
        let mut backoff = Backoff::new(MAX_WRITE_DELAY);
        loop {
            match self.write(change).await {
                Err(error) if is_passing(&error) => {
                    log_failed(self.id, &error);
                    // Boxed: every run would have room for the timer, which is hardly ever needed.
                    Box::pin(backoff.wait()).await;
                }
                written => return written,
            }
        }
    }

    /// Sets the status message that is written next.
    pub(super) fn set_status_message(&self, message: String) {
        self.outbox.lock().status_message = Some(message);
        self.outbox_filled.notify_one();
    }

    /// Withdraws a question that the handler no longer waits for.
    pub(super) fn withdraw(&self, key: String) {
        self.outbox.lock().withdrawn.push(key);
        self.outbox_filled.notify_one();
    }

    /// Takes what is to be written; `with_status` is false while the last status message is too recent.
    pub(super) fn take_outbox(&self, with_status: bool) -> Outbox {
        let mut outbox = self.outbox.lock();
        Outbox {
            status_message: outbox.status_message.take_if(|_| with_status),
            withdrawn: std::mem::take(&mut outbox.withdrawn),
        }
    }

    /// Waits until the outbox may contain something.
    pub(super) async fn outbox_filled(&self) {
        self.outbox_filled.notified().await;
    }

    /// Lets another process take over as soon as no effect is in progress, which would be interrupted.
    pub(super) fn drain(&self) {
        let mut drain = self.drain.lock();
        drain.is_draining = true;
        let is_between_effects = drain.open_effects == 0;
        drop(drain);
        if is_between_effects {
            self.stop(Stop::Release);
        }
    }

    /// Counts an effect that begins. Returns false if it must not begin, because the run stops.
    pub(super) fn begin_effect(&self) -> bool {
        let mut drain = self.drain.lock();
        if !drain.is_draining {
            drain.open_effects += 1;
            return true;
        }
        drop(drain);
        self.stop(Stop::Release);
        false
    }

    /// Counts effects that began before the call became this task.
    pub(super) fn adopt_effects(&self, count: usize) {
        self.drain.lock().open_effects += count;
    }

    /// Counts an effect that has finished.
    pub(super) fn finish_effect(&self) {
        let mut drain = self.drain.lock();
        drain.open_effects = drain.open_effects.saturating_sub(1);
        let is_between_effects = drain.is_draining && drain.open_effects == 0;
        drop(drain);
        if is_between_effects {
            self.stop(Stop::Release);
        }
    }
}

/// Returns whether a write may succeed if it is tried again soon. An exceeded quota passes only when other tasks end,
/// which may take as long as they live.
pub(super) fn is_passing(error: &StoreError) -> bool {
    error.is_transient() && !matches!(error, StoreError::QuotaExceeded { .. })
}

pub(super) fn log_failed(id: TaskId, error: &StoreError) {
    tracing::warn!(task = %shown(id), error = %chain(error), "failed to write a task; trying again");
}

/// Returns the part of an id that logs contain: the whole id is a credential.
pub(super) fn shown(id: TaskId) -> String {
    let mut text = id.to_string();
    text.truncate(6);
    text.push('…');
    text
}

const MAX_WRITE_DELAY: std::time::Duration = std::time::Duration::from_secs(2);
