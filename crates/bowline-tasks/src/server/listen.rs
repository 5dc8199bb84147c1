//! `notifications/tasks`: the changes of tasks, for subscribers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bowline::Context;
use bowline::exchange::Principal;
use bowline::server::{ExtensionSubscription, SubscriptionNotifier};
use bowline_types::{ErrorCode, Json, RpcError};

use super::access;
use super::methods::encode;
use super::retry::Backoff;
use super::store_errors::chain;
use crate::TaskId;
use crate::protocol::{FILTER_MEMBER, NOTIFICATION_METHOD};
use crate::store::{ChangeHint, StoreError, TaskChanges, TaskStore, Version};

/// Subscribes to those of the requested tasks that the principal may access.
pub(super) async fn subscribe(
    store: Arc<dyn TaskStore>,
    filter: BTreeMap<String, Json>,
    cx: Context,
) -> Result<ExtensionSubscription, RpcError> {
    let requested = filter.get(FILTER_MEMBER).map(requested_ids).transpose()?;
    let requested = requested.unwrap_or_default();
    // Before the records are read, so that no change between them is missed.
    let changes = store.changes();
    let mut accepted = Vec::new();
    let mut listener = Listener {
        changes,
        principal: cx.principal().clone(),
        seen: BTreeMap::new(),
        store,
    };
    for task_id in requested {
        match access::find(&*listener.store, &task_id, cx.principal()).await {
            Ok(record) => {
                if listener.seen.insert(record.id, None).is_none() {
                    accepted.push(task_id);
                }
            }
            Err(error) if error.code == ErrorCode::INVALID_PARAMS => {}
            Err(error) => return Err(error),
        }
    }
    let accepted = BTreeMap::from([(FILTER_MEMBER.to_owned(), serde_json::json!(accepted).into())]);
    Ok(ExtensionSubscription::new(accepted, |notifier| {
        listener.run(notifier)
    }))
}

fn requested_ids(member: &Json) -> Result<Vec<String>, RpcError> {
    let invalid = |why: String| RpcError::new(ErrorCode::INVALID_PARAMS, why);
    let ids: Vec<String> = member
        .decode()
        .map_err(|_| invalid(format!("`{FILTER_MEMBER}` must be an array of strings")))?;
    if ids.len() > MAX_TASKS {
        let why = format!("`{FILTER_MEMBER}` exceeds the limit of {MAX_TASKS} tasks");
        return Err(invalid(why));
    }
    Ok(ids)
}

/// The tasks of one subscription.
struct Listener {
    store: Arc<dyn TaskStore>,
    changes: TaskChanges,
    principal: Principal,
    /// Unfinished tasks, with the version that was last sent.
    seen: BTreeMap<TaskId, Option<Version>>,
}

impl Listener {
    /// Sends the current state of each task, which may have changed before the acknowledgement, and then each change,
    /// until all tasks are finished.
    async fn run(mut self, notifier: SubscriptionNotifier) {
        let mut changed: BTreeSet<TaskId> = self.seen.keys().copied().collect();
        loop {
            let mut backoff = Backoff::new(MAX_DELAY);
            while let Some(id) = changed.pop_first() {
                if let Err(error) = self.send_current(id, &notifier).await {
                    tracing::warn!(error = %chain(&error), "failed to read a task for a subscriber; trying again");
                    changed.insert(id);
                    backoff.wait().await;
                }
                // A store in memory never waits. The subscriber reads while this does, so its queue does not overflow.
                tokio::task::yield_now().await;
            }
            if self.seen.is_empty() {
                return;
            }
            match self.changes.next().await {
                Some(ChangeHint::Changed { id, version }) => {
                    let seen = self.seen.get(&id);
                    let is_new = seen.is_some_and(|seen| seen.is_none_or(|seen| seen < version));
                    changed.extend(is_new.then_some(id));
                }
                Some(ChangeHint::TooMany) => changed.extend(self.seen.keys()),
                None => return,
            }
        }
    }

    /// Sends a task if it has changed.
    async fn send_current(
        &mut self,
        id: TaskId,
        notifier: &SubscriptionNotifier,
    ) -> Result<(), StoreError> {
        let record = self.store.read(id).await?;
        let record = record.filter(|record| access::may_access(record, &self.principal));
        let (Some(record), Some(seen)) = (record, self.seen.get_mut(&id)) else {
            self.seen.remove(&id);
            return Ok(());
        };
        if seen.is_some_and(|seen| seen >= record.version) {
            return Ok(());
        }
        *seen = Some(record.version);
        if record.is_finished() {
            self.seen.remove(&id);
        }
        if let Ok(params) = encode(&record) {
            notifier.notify(NOTIFICATION_METHOD, params);
        }
        Ok(())
    }
}

/// The maximum number of tasks of one subscription.
const MAX_TASKS: usize = 1024;
const MAX_DELAY: Duration = Duration::from_secs(5);
