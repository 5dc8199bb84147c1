//! [`OpenTasks`]: the connection on which each task was created, and what its server asks.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline::exchange::{Caller, Channel, Dialect, Request};
use bowline::{Context, Error, Json, RpcError};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::task_questions::TaskQuestions;
use super::{RESULT, connection, forms};
use crate::front::FrontConnection;
use crate::questions::RegisteredTask;
use crate::upstream::{ConnectionLease, Upstream, UpstreamId};

/// The tasks that clients of the other era have created or asked for.
///
/// A task may exist in the process behind one connection only, so that connection is kept for it. What is forgotten, for
/// lack of room or after a restart, is asked for on another connection of the same client.
#[derive(Default)]
pub(crate) struct OpenTasks(Mutex<BTreeMap<TaskKey, Entry>>);

/// The id of a task is that of its server, which may use the same one for two clients.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct TaskKey {
    upstream: UpstreamId,
    principal: Option<Arc<str>>,
    id: Arc<str>,
}

struct Entry {
    task: Arc<OpenTask>,
    last_used: Instant,
    keep: Duration,
}

/// What the bridge keeps for a task.
pub(super) enum OpenTask {
    /// A task of the server.
    OfServer(ServerTask),
    /// A call that a modern server has answered at once, although the legacy client wants a task.
    Answered { task: Json, result: Json },
}

/// A task of a server, on the connection that created it.
pub(super) struct ServerTask {
    lease: Arc<ConnectionLease>,
    pub(super) questions: Arc<TaskQuestions>,
    /// Asks the client for whom the task runs.
    _registered: Option<RegisteredTask>,
    waiter: Mutex<Option<Waiter>>,
}

/// The tasks that a client can reach: those of its principal, and of its connection if it has one.
#[derive(Clone)]
pub(crate) struct TaskScope {
    tasks: Arc<OpenTasks>,
    upstream: UpstreamId,
    principal: Option<Arc<str>>,
}

impl OpenTasks {
    /// Forgets the tasks that were not used for as long as they are kept.
    pub(crate) fn remove_expired(&self) {
        let mut tasks = self.lock();
        let expired: Vec<_> = tasks
            .extract_if(.., |_, entry| entry.last_used.elapsed() >= entry.keep)
            .collect();
        drop(tasks);
        drop(expired); // not under the lock: it gives connections back
    }

    /// Forgets all tasks, so that their connections are not kept for them any more.
    pub(crate) fn clear(&self) {
        let removed = std::mem::take(&mut *self.lock());
        drop(removed); // not under the lock
    }

    fn insert(&self, key: TaskKey, task: Arc<OpenTask>, keep: Duration) {
        self.remove_expired();
        let entry = Entry {
            task,
            last_used: Instant::now(),
            keep,
        };
        let mut tasks = self.lock();
        let mut removed = vec![tasks.insert(key, entry)];
        while let Some(oldest) = displaced(&tasks) {
            removed.push(tasks.remove(&oldest));
        }
        drop(tasks);
        drop(removed); // not under the lock
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<TaskKey, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the task that is forgotten next if there are too many: the oldest of the principal that has the most, so that
/// no principal loses a task because of the tasks of others.
fn displaced(tasks: &BTreeMap<TaskKey, Entry>) -> Option<TaskKey> {
    let mut by_principal = BTreeMap::<_, (usize, usize)>::new();
    let (mut all, mut all_bytes) = (0, 0);
    for (key, entry) in tasks {
        let bytes = entry.kept_bytes() + key.id.len();
        let (count, sum) = by_principal.entry(&key.principal).or_default();
        (*count, *sum) = (*count + 1, *sum + bytes);
        (all, all_bytes) = (all + 1, all_bytes + bytes);
    }
    let by_principal = by_principal.into_iter();
    let most = if all > MAX_TASKS {
        by_principal.max_by_key(|(_, (count, _))| *count)
    } else if all_bytes > MAX_KEPT_BYTES {
        by_principal.max_by_key(|(_, (_, bytes))| *bytes)
    } else {
        None
    };
    let (principal, _) = most?;
    let of_principal = tasks.iter().filter(|(key, _)| key.principal == *principal);
    let oldest = of_principal.min_by_key(|(_, entry)| entry.last_used);
    oldest.map(|(key, _)| key.clone())
}

impl Entry {
    fn kept_bytes(&self) -> usize {
        match &*self.task {
            OpenTask::Answered { result, .. } => result.as_bytes().len(),
            OpenTask::OfServer(_) => 0,
        }
    }
}

impl TaskScope {
    /// Returns the tasks that the client of a request can reach.
    pub(crate) fn of(upstream: &Upstream, cx: &Context) -> Self {
        let front = FrontConnection::of(cx);
        let tasks = front.as_ref().map(|front| front.tasks());
        let principal = front.as_ref().map(|front| front.principal(cx));
        let principal = principal.unwrap_or_else(|| cx.principal());
        Self {
            tasks: tasks.unwrap_or_else(|| upstream.tasks()).clone(),
            upstream: upstream.id(),
            principal: principal.name().map(Arc::from),
        }
    }

    /// Returns a task that the bridge knows.
    pub(super) fn find(&self, id: &Arc<str>) -> Option<Arc<OpenTask>> {
        let mut tasks = self.tasks.lock();
        let entry = tasks.get_mut(&self.key(id))?;
        entry.last_used = Instant::now();
        Some(entry.task.clone())
    }

    /// Returns the connection on which a task was created, if it is still open.
    pub(super) fn lease(&self, id: &Arc<str>) -> Option<Arc<ConnectionLease>> {
        let OpenTask::OfServer(task) = &*self.find(id)? else {
            return None;
        };
        let has_ended = task.lease.get().is_none_or(|it| it.channel().has_ended());
        if has_ended {
            self.remove(id);
            return None;
        }
        Some(task.lease.clone())
    }

    /// Adds a task of a server, in the form of either era, unless it is known. Its connection is kept for it as long as
    /// the server keeps the task.
    pub(super) fn add(
        &self,
        id: &Arc<str>,
        task: &Json,
        lease: &Arc<ConnectionLease>,
        client: &'static Dialect,
    ) -> Arc<OpenTask> {
        let keep = forms::time_to_live(task).map_or(KEEP, |ttl| ttl.clamp(MIN_KEEP, KEEP));
        if let Some(known) = self.find(id) {
            return known;
        }
        let questions = TaskQuestions::new(client);
        let registered = connection(lease).ok().filter(|_| client.is_modern());
        let registered = registered.map(|connection| {
            let all = connection.questions();
            all.register_task(id.clone(), questions.clone())
        });
        let task = Arc::new(OpenTask::OfServer(ServerTask {
            lease: lease.clone(),
            questions,
            _registered: registered,
            waiter: Mutex::default(),
        }));
        self.tasks.insert(self.key(id), task.clone(), keep);
        task
    }

    /// Adds a call that was answered at once. Its result is kept for a while.
    pub(super) fn add_answered(&self, id: &Arc<str>, task: Json, result: &Json, keep: Duration) {
        let result = result.to_unshared();
        let task = Arc::new(OpenTask::Answered { task, result });
        self.tasks.insert(self.key(id), task, keep.min(KEEP));
    }

    /// Keeps a task that has finished for a shorter time.
    pub(super) fn finished(&self, id: &Arc<str>) {
        if let Some(entry) = self.tasks.lock().get_mut(&self.key(id)) {
            entry.keep = entry.keep.min(KEEP_FINISHED);
        }
    }

    pub(super) fn remove(&self, id: &Arc<str>) {
        let removed = self.tasks.lock().remove(&self.key(id));
        drop(removed); // not under the lock
    }

    fn key(&self, id: &Arc<str>) -> TaskKey {
        TaskKey {
            upstream: self.upstream,
            principal: self.principal.clone(),
            id: id.clone(),
        }
    }
}

impl ServerTask {
    /// Waits for the result of the task in the background, unless that is done already: a legacy server asks only a
    /// client that waits.
    pub(super) fn wait_in_background(&self, id: &Arc<str>, caller: &Arc<Caller>) {
        let mut waiter = self.waiter.lock().unwrap_or_else(PoisonError::into_inner);
        if waiter
            .as_ref()
            .is_some_and(|waiter| !waiter.0.is_finished())
        {
            return;
        }
        let request = Request::new(RESULT, forms::id_params(id), caller.clone());
        let (lease, questions) = (self.lease.clone(), self.questions.clone());
        let old = waiter.replace(Waiter(tokio::spawn(async move {
            let Ok(connection) = connection(&lease) else {
                return;
            };
            let mut options = bowline::exchange::CallOptions::default();
            options.timeout = Some(KEEP);
            let open = || connection.channel().open(request, options);
            let id = |exchange: &bowline::exchange::Exchange| exchange.request_id().cloned();
            let (exchange, registered) = connection.questions().register(questions, open, id);
            let answering = pin!(exchange.answer());
            // After it, so that it is dropped before: the call must count as abandoned before the connection forgets it.
            let mut registered = registered;
            let answer = answering.await;
            if matches!(answer, Ok(_) | Err(Error::Rpc(_))) {
                registered.answered();
            }
            if let Err(error) = answer {
                tracing::debug!(%error, "a task of an upstream ended with an error");
            }
        })));
        drop(waiter);
        drop(old);
    }
}

/// A request for the result of a task that runs in the background. Dropping it cancels the request, not the task.
struct Waiter(JoinHandle<()>);

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Returns a text that is not used twice, and cannot be guessed.
pub(super) fn random_text() -> Result<String, RpcError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        tracing::error!(%error, "failed to get randomness");
        RpcError::internal("failed to get randomness")
    })?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

/// How many tasks are known for one connection of the front, or for all clients without one. Principals share them.
const MAX_TASKS: usize = 1000;
/// How many bytes their results have that the bridge keeps.
const MAX_KEPT_BYTES: usize = 64 * 1024 * 1024;
/// How long a task that no client asks for is known at most.
const KEEP: Duration = Duration::from_secs(24 * 60 * 60);
/// The same, if the server keeps it for a shorter time: it may not have ended then.
const MIN_KEEP: Duration = Duration::from_secs(60);
/// The same, after it has finished.
const KEEP_FINISHED: Duration = Duration::from_secs(10 * 60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Target;
    use crate::upstream::UpstreamSettings;

    #[test]
    fn a_principal_with_many_tasks_does_not_displace_those_of_others() {
        let tasks = Arc::<OpenTasks>::default();
        let upstream = Upstream::new(
            Target::http("http://localhost"),
            UpstreamSettings::default(),
        );
        let scope = |principal: &str| TaskScope {
            tasks: tasks.clone(),
            upstream: upstream.id(),
            principal: Some(principal.into()),
        };
        let (ada, bob) = (scope("ada"), scope("bob"));
        let add = |scope: &TaskScope, id: &str| {
            scope.add_answered(&id.into(), Json::null(), &Json::null(), KEEP);
        };
        add(&bob, "first");

        for number in 0..MAX_TASKS {
            add(&ada, &number.to_string());
        }

        assert!(bob.find(&"first".into()).is_some());
        assert!(ada.find(&"0".into()).is_none());
        assert!(ada.find(&"1".into()).is_some());
        assert_eq!(tasks.lock().len(), MAX_TASKS);
    }
}
