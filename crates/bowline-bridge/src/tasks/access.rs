//! [`TaskAccess`]: which tasks of a server a principal may know.
//!
//! If connections do not carry the credentials of a principal, the server takes all principals for one, and would tell
//! each of them about the tasks of the others. So the bridge remembers who has created a task:
//!
//! ```text
//! a result that creates a task     its id is recorded for the principal, also in the cluster if there is one
//! tasks/get, result, cancel, …     "task not found", unless it is recorded for this principal
//! tasks/list                       only those that are
//! subscriptions/listen             the ids of other tasks are removed from the filter
//! ```
//!
//! Clients without a principal are one to the bridge as well. They reach all tasks that the server tells it about.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline::cluster::Cluster;
use bowline::exchange::{Digest, Outcome, Request, request_digest};
use bowline::{Context, Json, RpcError};
use bowline_core::json::Object;
use serde_json::Value;
use tokio::time::Instant;

use super::{forms, parked_tasks};
use crate::front::FrontConnection;
use crate::many::RawObject;
use crate::upstream::Upstream;

/// The tasks that principals have created, by their digests: an id may have any length.
#[derive(Default)]
pub(crate) struct TaskOwners(Mutex<BTreeMap<Arc<str>, OwnTasks>>);

/// When each was last used.
type OwnTasks = BTreeMap<Digest, Instant>;

/// What the principal of a request may know of the tasks of a server.
pub(crate) struct TaskAccess<'a> {
    upstream: &'a Upstream,
    principal: Arc<str>,
    /// The other replicas, where the task may have been created.
    cluster: Option<&'a Cluster>,
}

impl<'a> TaskAccess<'a> {
    /// Returns `None` if the server can tell principals apart, or if there is none.
    pub(crate) fn of(
        upstream: &'a Upstream,
        cx: &Context,
        cluster: Option<&'a Cluster>,
    ) -> Option<Self> {
        if upstream.is_per_principal() {
            return None;
        }
        let front = FrontConnection::of(cx);
        let principal = front.as_ref().map(|front| front.principal(cx));
        let principal = principal.unwrap_or_else(|| cx.principal()).name()?;
        Some(Self {
            upstream,
            principal: principal.into(),
            cluster,
        })
    }

    /// Refuses a request about a task of another principal.
    pub(crate) async fn check(&self, request: &Request) -> Result<(), RpcError> {
        if !request.method.starts_with(TASKS) || request.method == LIST {
            return Ok(());
        }
        // Of two members with this name, the server might read the other one.
        let params = RawObject::parse(request.params.as_str()).map_err(RpcError::invalid_params)?;
        let id = params.text("taskId");
        let id =
            id.ok_or_else(|| RpcError::invalid_params("expected one member `taskId` with a text"))?;
        match self.is_own(&id).await {
            true => Ok(()),
            false => Err(RpcError::invalid_params("task not found")),
        }
    }

    /// Records the task that a request has created, and removes those of others from a list.
    pub(crate) async fn apply(&self, method: &str, outcome: Outcome) -> Outcome {
        let result = outcome?;
        if method == LIST {
            return self.own_page(&result).await;
        }
        let created = match method.starts_with(TASKS) {
            true => None,
            false => forms::created_id(&result).filter(|id| !parked_tasks::is_parked(id)),
        };
        if let Some(id) = created {
            self.record(&id).await;
        }
        Ok(result)
    }

    /// Refuses a subscription to more tasks than are looked for.
    pub(crate) fn check_filter(&self, request: &Request) -> Result<(), RpcError> {
        let params = request.params.decode::<Value>().unwrap_or_default();
        let ids = params.pointer(FILTER_IDS).and_then(Value::as_array);
        match ids.map_or(0, Vec::len) {
            count if count > MAX_FILTER_IDS => Err(RpcError::invalid_params(format!(
                "`taskIds` has {count} ids, which exceeds the limit of {MAX_FILTER_IDS}"
            ))),
            _ => Ok(()),
        }
    }

    /// Removes the tasks of others from the filter of a subscription.
    pub(crate) async fn restrict(&self, request: &mut Request) {
        let Ok(mut params) = request.params.decode::<Value>() else {
            return;
        };
        let ids = params.pointer_mut(FILTER_IDS);
        if let Some(ids) = ids.and_then(Value::as_array_mut) {
            let mut own = Vec::new();
            for id in std::mem::take(ids) {
                if let Some(text) = id.as_str()
                    && self.is_own(text).await
                {
                    own.push(id);
                }
            }
            *ids = own;
        }
        // Also if nothing was removed: of two members with one name, the server might read the other one.
        request.params = Json::from(params).into();
    }

    async fn own_page(&self, page: &Json) -> Outcome {
        let Ok(mut object) = Object::read(page) else {
            return Err(RpcError::internal(
                "the server sent a malformed list of tasks",
            ));
        };
        let tasks = object.member("tasks").map(Json::decode::<Vec<Value>>);
        let mut own = Vec::new();
        for task in tasks.and_then(Result::ok).unwrap_or_default() {
            if let Some(id) = task["taskId"].as_str()
                && self.is_own(id).await
            {
                own.push(task);
            }
        }
        object.set("tasks", Value::from(own).into());
        Ok(object.to_json())
    }

    async fn is_own(&self, id: &str) -> bool {
        let digest = self.digest(id);
        if self
            .upstream
            .task_owners()
            .use_task(&self.principal, digest)
        {
            return true;
        }
        let Some(cluster) = self.cluster else {
            return false;
        };
        match cluster.marks().read(digest.as_bytes()).await {
            Ok(mark) => mark.is_some(),
            Err(error) => {
                tracing::warn!(%error, "failed to find out whose task it is; it is not found");
                false
            }
        }
    }

    async fn record(&self, id: &str) {
        let digest = self.digest(id);
        self.upstream.task_owners().add(&self.principal, digest);
        if let Some(cluster) = self.cluster {
            let marked = cluster.marks().set(digest.as_bytes(), b"", KEEP).await;
            if let Err(error) = marked {
                tracing::warn!(%error, "failed to record whose task it is; other replicas will not find it");
            }
        }
    }

    /// Returns what identifies a task of this principal, at all replicas.
    fn digest(&self, id: &str) -> Digest {
        let of = serde_json::json!({
            "server": self.upstream.name(),
            "principal": &*self.principal,
            "task": id,
        });
        request_digest("the bridge's task of a principal", Some(&of.into()))
    }
}

impl TaskOwners {
    fn add(&self, principal: &Arc<str>, task: Digest) {
        let mut owners = self.lock();
        owners
            .entry(principal.clone())
            .or_default()
            .insert(task, Instant::now());
        let is_expired = |_: &Digest, used: &mut Instant| used.elapsed() >= KEEP;
        let mut count: usize = owners.values().map(BTreeMap::len).sum();
        if count <= MAX_TASKS {
            return;
        }
        owners.retain(|_, tasks| {
            drop(tasks.extract_if(.., is_expired).collect::<Vec<_>>());
            !tasks.is_empty()
        });
        count = owners.values().map(BTreeMap::len).sum();
        // The oldest of the principal that has the most, so that no principal loses a task because of those of others.
        if count > MAX_TASKS
            && let Some(most) = owners.values_mut().max_by_key(|tasks| tasks.len())
            && let Some((oldest, _)) = most.iter().min_by_key(|(_, used)| **used)
        {
            let oldest = *oldest;
            most.remove(&oldest);
        }
    }

    /// Returns whether the principal has created the task.
    fn use_task(&self, principal: &str, task: Digest) -> bool {
        let mut owners = self.lock();
        let used = owners
            .get_mut(principal)
            .and_then(|tasks| tasks.get_mut(&task));
        match used.filter(|used| used.elapsed() < KEEP) {
            Some(used) => {
                *used = Instant::now();
                true
            }
            None => false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, OwnTasks>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const TASKS: &str = "tasks/";
const LIST: &str = "tasks/list";
/// Where a subscription names tasks.
const FILTER_IDS: &str = "/notifications/taskIds";
/// How many it may name: each may be one read of the cluster.
const MAX_FILTER_IDS: usize = 1000;
/// How long a task is known that its principal does not ask for. In a cluster, how long it is known to other replicas.
const KEEP: Duration = Duration::from_secs(24 * 60 * 60);
/// How many tasks of all principals are known: less than 2 MB, besides the names of the principals.
const MAX_TASKS: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(text: &str) -> Digest {
        request_digest(text, None)
    }

    #[test]
    fn a_principal_with_many_tasks_does_not_displace_those_of_others() {
        let owners = TaskOwners::default();
        let [ada, bob] = ["ada", "bob"].map(Arc::<str>::from);
        owners.add(&bob, digest("first"));

        for number in 0..MAX_TASKS {
            owners.add(&ada, digest(&number.to_string()));
        }

        assert!(owners.use_task("bob", digest("first")));
        assert!(!owners.use_task("ada", digest("first")));
        let known = owners.lock().values().map(BTreeMap::len).sum::<usize>();
        assert_eq!(known, MAX_TASKS);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_is_forgotten_a_day_after_its_last_use() {
        let owners = TaskOwners::default();
        let ada = Arc::from("ada");
        owners.add(&ada, digest("7"));
        for _ in 0..2 {
            tokio::time::advance(KEEP / 2).await;
            assert!(owners.use_task("ada", digest("7")));
        }

        tokio::time::advance(KEEP).await;

        assert!(!owners.use_task("ada", digest("7")));
    }
}
