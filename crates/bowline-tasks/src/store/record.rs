//! [`TaskRecord`], the stored state of a task, and [`NewTask`], which it starts as.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bowline_types::{Json, RpcError};

use super::{HeldTask, JournalEntry, ListPosition, TaskSummary, Timestamp};
use crate::{ReplicaId, TaskId};

/// The stored state of a task.
///
/// Stores construct a record with [`NewTask::into_record`] and assign what they have saved.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskRecord {
    /// The id.
    pub id: TaskId,
    /// The name of the principal that created the task, and that alone may access it; `None` if anonymous.
    pub principal: Option<Arc<str>>,
    /// The request that became the task.
    pub request: Arc<TaskRequest>,
    /// Whether the handler may run again after its process ended.
    pub run_mode: RunMode,
    /// The time to live from the creation; `None` if it is unlimited.
    pub ttl: Option<Duration>,
    /// How often clients should poll.
    pub poll_interval: Option<Duration>,

    /// The status, for people.
    pub status_message: Option<String>,
    /// Open input requests by their key. Empty if the task is finished.
    pub questions: BTreeMap<String, Json>,
    /// Answers by the key of their input request. Empty if the task is finished.
    pub answers: BTreeMap<String, Json>,
    /// Whether the handler should be told that its caller no longer needs the result.
    pub is_cancel_requested: bool,
    /// How the task ended; `None` if it has not finished.
    pub outcome: Option<TaskOutcome>,

    /// When the task was created.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// When the time to live ends, and the owner fails the task.
    pub expires_at: Option<Timestamp>,
    /// When the record is removed, whatever its status; later than `expires_at`, so that clients see the failure.
    pub remove_at: Option<Timestamp>,

    /// The process that runs the handler, or ran it last.
    pub owner: ReplicaId,
    /// How many times the task was started.
    pub attempt: Attempt,
    /// When another process may claim the task; `None` if it is finished.
    pub leased_until: Option<Timestamp>,
    /// Increases with each change and claim.
    pub version: Version,
}

impl TaskRecord {
    /// Returns the status.
    #[must_use]
    pub fn status(&self) -> TaskStatus {
        match &self.outcome {
            Some(TaskOutcome::Completed(_)) => TaskStatus::Completed,
            Some(TaskOutcome::Failed(_)) => TaskStatus::Failed,
            Some(TaskOutcome::Cancelled) => TaskStatus::Cancelled,
            None if self.questions.is_empty() => TaskStatus::Working,
            None => TaskStatus::InputRequired,
        }
    }

    /// Returns whether the task has finished; it then never changes again.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.outcome.is_some()
    }

    /// Returns the owner and attempt, which the owner's writes are checked against.
    #[must_use]
    pub fn fence(&self) -> Fence {
        Fence {
            owner: self.owner,
            attempt: self.attempt,
        }
    }

    /// Returns whether `fence` is that of the process that holds the lease.
    #[must_use]
    pub fn is_held_by(&self, fence: Fence) -> bool {
        !self.is_finished() && self.fence() == fence
    }

    /// Returns what the owner passes to [`TaskStore::renew`](super::TaskStore::renew).
    #[must_use]
    pub fn held(&self) -> HeldTask {
        HeldTask {
            id: self.id,
            attempt: self.attempt,
            version: self.version,
        }
    }

    /// Returns whether the record counts as removed at `now`.
    #[must_use]
    pub fn is_removed(&self, now: Timestamp) -> bool {
        self.remove_at.is_some_and(|at| at <= now)
    }

    /// Returns whether another process may claim the task at `now`.
    #[must_use]
    pub fn is_claimable(&self, now: Timestamp) -> bool {
        self.leased_until.is_some_and(|until| until <= now) && !self.is_removed(now)
    }

    /// Gives the task to a new owner; for implementations of [`TaskStore::claim`](super::TaskStore::claim).
    pub fn claim(&mut self, owner: ReplicaId, leased_until: Timestamp) {
        self.owner = owner;
        self.attempt = self.attempt.next();
        self.leased_until = Some(leased_until);
        self.version = self.version.next();
    }

    /// Returns the position in the list of the principal's tasks.
    #[must_use]
    pub fn position(&self) -> ListPosition {
        ListPosition {
            created_at: self.created_at,
            id: self.id,
        }
    }

    /// Returns what a list contains of the task.
    #[must_use]
    pub fn summary(&self) -> TaskSummary {
        TaskSummary {
            id: self.id,
            status: self.status(),
            status_message: self.status_message.clone(),
            ttl: self.ttl,
            poll_interval: self.poll_interval,
            created_at: self.created_at,
            updated_at: self.updated_at,
        }
    }

    /// Returns the number of bytes that a store charges for the record without its journal.
    #[must_use]
    pub fn size(&self) -> usize {
        let maps = self.questions.iter().chain(&self.answers);
        let inputs = maps.map(|(key, value)| INPUT_OVERHEAD + key.len() + json_len(value));
        let outcome = match &self.outcome {
            Some(TaskOutcome::Completed(result)) => json_len(result),
            Some(TaskOutcome::Failed(error)) => {
                error.message.len() + error.data.as_ref().map_or(0, json_len)
            }
            Some(TaskOutcome::Cancelled) | None => 0,
        };
        let principal = self.principal.as_ref().map_or(0, |name| name.len());
        let message = self.status_message.as_ref().map_or(0, String::len);
        let request = self.request.size();
        // Charged from the beginning, so that a task can fail with a reason however little room is left.
        let ending = (message + outcome).max(ENDING_RESERVE);
        RECORD_OVERHEAD + principal + request + inputs.sum::<usize>() + ending
    }
}

/// The request that became a task. It never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskRequest {
    /// The name of the tool.
    pub tool: String,
    /// The arguments of the call, a JSON object.
    pub arguments: Json,
    /// The `_meta` of the request.
    pub meta: Option<Json>,
    /// What a server needs besides to run the handler in another process, such as the version and capabilities of the
    /// caller. Its content is that server's concern.
    pub context: Option<Json>,
}

impl TaskRequest {
    /// Copies slices of the message that contained the request, which the record would keep alive.
    fn into_unshared(self) -> Self {
        Self {
            tool: self.tool,
            arguments: self.arguments.to_unshared(),
            meta: self.meta.map(|meta| meta.to_unshared()),
            context: self.context.map(|context| context.to_unshared()),
        }
    }

    fn size(&self) -> usize {
        let optional = [&self.meta, &self.context];
        let optional = optional.into_iter().flatten().map(json_len);
        self.tool.len() + json_len(&self.arguments) + optional.sum::<usize>()
    }
}

/// A task that is to be stored.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use bowline_tasks::store::{NewTask, RunMode};
/// use bowline_tasks::{ReplicaId, TaskId};
/// use bowline_types::Json;
///
/// let owner = ReplicaId::random()?;
/// let task = NewTask::new(TaskId::random()?, "convert", owner, Duration::from_secs(6))
///     .arguments(Json::from_static(r#"{"file":"a.png"}"#))
///     .principal("https://id.example/ada")
///     .ttl(Duration::from_secs(3600))
///     .run_mode(RunMode::AtLeastOnce);
/// # let _ = task;
/// # Ok::<(), bowline_tasks::store::StoreError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "it does nothing unless it is passed to `TaskStore::create`"]
pub struct NewTask {
    id: TaskId,
    principal: Option<Arc<str>>,
    request: TaskRequest,
    run_mode: RunMode,
    ttl: Option<Duration>,
    removal_delay: Duration,
    poll_interval: Option<Duration>,
    status_message: Option<String>,
    owner: ReplicaId,
    lease: Duration,
    journal: Vec<JournalEntry>,
}

impl NewTask {
    /// Creates a task for a call of `tool`, owned and leased by `owner`: anonymous, without arguments, not resumable,
    /// with an unlimited time to live.
    pub fn new(id: TaskId, tool: impl Into<String>, owner: ReplicaId, lease: Duration) -> Self {
        Self {
            id,
            principal: None,
            request: TaskRequest {
                tool: tool.into(),
                arguments: Json::empty_object(),
                meta: None,
                context: None,
            },
            run_mode: RunMode::NotResumable,
            ttl: None,
            removal_delay: DEFAULT_REMOVAL_DELAY,
            poll_interval: None,
            status_message: None,
            owner,
            lease,
            journal: Vec::new(),
        }
    }

    /// Sets the arguments of the call.
    pub fn arguments(mut self, arguments: Json) -> Self {
        self.request.arguments = arguments;
        self
    }

    /// Sets the `_meta` of the request.
    pub fn meta(mut self, meta: Json) -> Self {
        self.request.meta = Some(meta);
        self
    }

    /// Sets the [context](TaskRequest::context) of the request.
    pub fn context(mut self, context: Json) -> Self {
        self.request.context = Some(context);
        self
    }

    /// Sets the name of the principal that alone may access the task.
    pub fn principal(mut self, name: impl Into<Arc<str>>) -> Self {
        self.principal = Some(name.into());
        self
    }

    /// Sets whether the handler may run again. Default: [`RunMode::NotResumable`].
    pub fn run_mode(mut self, run_mode: RunMode) -> Self {
        self.run_mode = run_mode;
        self
    }

    /// Sets the time to live from the creation. Default: unlimited.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Sets how long the record is kept after its time to live. Default: one minute.
    pub fn removal_delay(mut self, delay: Duration) -> Self {
        self.removal_delay = delay;
        self
    }

    /// Sets how often clients should poll.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.poll_interval = Some(interval);
        self
    }

    /// Sets the status for people.
    pub fn status_message(mut self, message: impl Into<String>) -> Self {
        self.status_message = Some(message.into());
        self
    }

    /// Adds an entry to the initial journal. Of entries with the same kind and name the first is stored.
    pub fn journal_entry(mut self, entry: JournalEntry) -> Self {
        let is_known =
            |known: &JournalEntry| (known.kind, &known.name) == (entry.kind, &entry.name);
        if !self.journal.iter().any(is_known) {
            self.journal.push(entry);
        }
        self
    }

    /// Returns the first record of the task and its journal, for a store whose clock shows `now`.
    #[must_use]
    pub fn into_record(self, now: Timestamp) -> (TaskRecord, Vec<JournalEntry>) {
        let expires_at = self.ttl.map(|ttl| now.after(ttl));
        let record = TaskRecord {
            id: self.id,
            principal: self.principal,
            request: Arc::new(self.request.into_unshared()),
            run_mode: self.run_mode,
            // Stores keep milliseconds.
            ttl: self.ttl.map(whole_millis),
            poll_interval: self.poll_interval.map(whole_millis),
            status_message: self.status_message,
            questions: BTreeMap::new(),
            answers: BTreeMap::new(),
            is_cancel_requested: false,
            outcome: None,
            created_at: now,
            updated_at: now,
            expires_at,
            remove_at: expires_at.map(|at| at.after(self.removal_delay)),
            owner: self.owner,
            attempt: Attempt::FIRST,
            leased_until: Some(now.after(self.lease)),
            version: Version::FIRST,
        };
        (record, self.journal)
    }
}

/// The status of a task, in the words of the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(
    clippy::exhaustive_enums,
    reason = "the specification's list is closed"
)]
pub enum TaskStatus {
    /// The handler is running, or will run again.
    Working,
    /// The handler waits for an answer to at least one question.
    InputRequired,
    /// The task has a result.
    Completed,
    /// The task ended with a JSON-RPC error.
    Failed,
    /// The task was cancelled.
    Cancelled,
}

impl TaskStatus {
    /// Returns the name in the specification.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::InputRequired => "input_required",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Returns the status with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let unfinished = [Self::Working, Self::InputRequired];
        let finished = [Self::Completed, Self::Failed, Self::Cancelled];
        let mut all = unfinished.into_iter().chain(finished);
        all.find(|status| status.as_str() == name)
    }
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "the final states of the specification"
)]
pub enum TaskOutcome {
    /// The result of the call, which may be one with `isError`.
    Completed(Json),
    /// The JSON-RPC error of the call.
    Failed(RpcError),
    /// The task was cancelled.
    Cancelled,
}

/// Whether the handler of a task may run again after its process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RunMode {
    /// The task fails.
    NotResumable,
    /// The handler runs again. Steps without a journalled result run again too.
    AtLeastOnce,
    /// The handler runs again. A step that started and has no result fails the task.
    AtMostOnce,
}

impl RunMode {
    /// Returns the name that stores write.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotResumable => "not_resumable",
            Self::AtLeastOnce => "at_least_once",
            Self::AtMostOnce => "at_most_once",
        }
    }

    /// Returns the mode with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [Self::NotResumable, Self::AtLeastOnce, Self::AtMostOnce];
        all.into_iter().find(|mode| mode.as_str() == name)
    }
}

/// Who may write as the owner of a task: a process, in the attempt in which it got the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a pair")]
pub struct Fence {
    /// The process.
    pub owner: ReplicaId,
    /// The attempt.
    pub attempt: Attempt,
}

/// The version of a record. It increases with each change and claim, not with renewals and journal entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(u64);

impl Version {
    /// The version of a new record.
    pub const FIRST: Self = Self(1);

    /// Creates a version from a number that a store has saved.
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number, for a store.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Returns the version after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// How many times a task was started: 1 for its creator, one more for each process that claimed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(u32);

impl Attempt {
    /// The attempt of the process that created the task.
    pub const FIRST: Self = Self(1);

    /// Creates an attempt from a number that a store has saved.
    #[must_use]
    pub const fn from_number(number: u32) -> Self {
        Self(number)
    }

    /// Returns the number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Returns the attempt after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

fn json_len(json: &Json) -> usize {
    json.as_bytes().len()
}

/// Returns what remains of a duration that a store has saved, at most [`Timestamp`]'s range.
pub(super) fn whole_millis(duration: Duration) -> Duration {
    Duration::from_millis(Timestamp::default().after(duration).as_millis())
}

/// Approximates what a store needs for a record besides its texts.
const RECORD_OVERHEAD: usize = 512;
/// The room for the status message and the outcome of a task that fails.
const ENDING_RESERVE: usize = 1024;
/// Approximates what a store needs for a question or an answer besides its texts.
const INPUT_OVERHEAD: usize = 64;
const DEFAULT_REMOVAL_DELAY: Duration = Duration::from_secs(60);
