//! The server side of the extension `io.modelcontextprotocol/tasks`: [`Tasks`], and the [`TaskSettings`] of a tool.
//!
//! ```text
//! tools/call ─▶ intercept ─┬─ runs as usual
//!                          └─ becomes a task: record in the store ─▶ runner: leases, handlers ─▶ outcome in the record
//! tasks/get, update, cancel ─▶ methods ─▶ record        subscriptions/listen ─▶ listen ─▶ notifications/tasks
//! ```

mod access;
mod convert;
mod intercept;
mod lease;
mod legacy;
mod listen;
mod methods;
mod resume;
mod retry;
mod run;
mod run_task;
mod runner;
mod runs;
mod saved_call;
mod store_errors;
mod switch_input;
mod task_input;
mod task_sink;

mod settings;
pub use settings::TaskSettings;

#[cfg(feature = "sqlite")]
mod sqlite;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bowline::exchange::{BoxFuture, Context, Dialect, Outcome, Request};
use bowline::server::{
    ExtensionMethod, ExtensionSubscription, ServerExtension, ToolCall, WeakServer,
};
use bowline_types::{Json, RpcError, ServerCapabilities};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use crate::ReplicaId;
use crate::protocol::{CANCEL_METHOD, EXTENSION_ID, FILTER_MEMBER, GET_METHOD, UPDATE_METHOD};
use crate::store::{MemoryStore, StoreError, TaskStore};
use crate::sync::Mutex;
use runner::Job;
use runs::RunTable;
use store_errors::to_rpc_error;

/// The tasks extension of a server, added with [`Server::extension`](bowline::Server::extension).
///
/// Calls of tools with [`TaskSettings`] become tasks for callers that declare the extension. A task goes on when its
/// connection ends. Its client reads it with `tasks/get` or a subscription, answers its questions with `tasks/update`,
/// and stops it with `tasks/cancel`.
///
/// # Durability
///
/// The process that runs a task has a lease of 6 seconds, which it renews every 2 seconds. If it dies, another process
/// with the same store claims the task within 8 seconds: it looks for expired leases every 2 seconds. If the tool is
/// [resumable](TaskSettings::resumable), its handler runs again from its beginning there:
///
/// - [`Context::step`], `once` and `recall` return what was stored and do not run again. A step that was interrupted runs
///   again (at least once), or fails the task if the tool says [at most once](TaskSettings::at_most_once).
/// - Questions that were answered are not asked again, and open ones stay open. So the handler must use the same names
///   and keys in the same order, as it must for input in several rounds.
/// - The context has the protocol version, capabilities and implementation of the caller, and its principal with the
///   scopes of the call. Claims, the HTTP request, connection state and what layers added are not saved.
///
/// The task of any other tool fails with a reason. Nothing that is stored is lost: a process that has lost its lease
/// can write nothing.
///
/// # Principals
///
/// A task is accessible to the principal that created it, by its name: issuer and subject, whatever the scopes. Tasks
/// of anonymous callers are accessible to all anonymous callers that know their id, which cannot be guessed.
///
/// # Clients of 2025-11-25
///
/// That version defines tasks in another way, which the extension serves with the same store. The client decides: a
/// call with the member `task` becomes a task, whatever the settings of its tool decide for others, and lives as long
/// as the client requests, up to [`max_ttl`](Self::max_ttl). A tool without [`TaskSettings`] cannot be called so. While
/// a client waits in `tasks/result`, the questions of the task are requests to it. `tasks/list` exists for identified
/// principals only. Older versions have no tasks.
///
/// # Examples
///
/// ```
/// use bowline::{Context, Server, ToolError, tool};
/// use bowline_tasks::Tasks;
///
/// # async fn fetch() -> String { String::new() }
/// #[tool(task(resumable))]
/// async fn convert(cx: Context) -> Result<String, ToolError> {
///     let page = cx.step("fetch", fetch()).await?;
///     Ok(page.to_uppercase())
/// }
///
/// let server = Server::new("documents", "1.0.0").tool(convert).extension(Tasks::in_memory());
/// ```
pub struct Tasks {
    store: Arc<dyn TaskStore>,
    options: Options,
    owner: Result<ReplicaId, StoreError>,
    runs: Arc<RunTable>,
    jobs: UnboundedSender<Job>,
    /// Made when the settings are complete.
    env: OnceLock<Arc<Env>>,
    /// Taken by the background work.
    inbox: Mutex<Option<UnboundedReceiver<Job>>>,
}

/// The settings of [`Tasks`].
#[derive(Clone, Copy, Debug)]
struct Options {
    ttl: Option<Duration>,
    max_ttl: Duration,
    poll_interval: Duration,
    removal_delay: Duration,
    lease: Duration,
    renew_every: Duration,
    task_after: Option<Duration>,
}

/// What every part of the extension uses.
struct Env {
    store: Arc<dyn TaskStore>,
    options: Options,
    /// This process.
    owner: ReplicaId,
    runs: Arc<RunTable>,
    jobs: UnboundedSender<Job>,
}

impl Env {
    /// Sends a job to the runner. Returns the job if the runner has ended, because the server shuts down.
    fn send(&self, job: Job) -> Result<(), Job> {
        self.jobs.send(job).map_err(|error| error.0)
    }
}

impl Tasks {
    /// Creates the extension with tasks in `store`.
    #[must_use]
    pub fn new(store: impl TaskStore) -> Self {
        let (jobs, inbox) = mpsc::unbounded_channel();
        Self {
            store: Arc::new(store),
            options: Options {
                ttl: Some(Duration::from_secs(60 * 60)),
                max_ttl: Duration::MAX,
                poll_interval: Duration::from_secs(1),
                removal_delay: Duration::from_secs(60),
                lease: Duration::from_secs(6),
                renew_every: Duration::from_secs(2),
                task_after: None,
            },
            owner: ReplicaId::random(),
            runs: Arc::default(),
            jobs,
            env: OnceLock::new(),
            inbox: Mutex::new(Some(inbox)),
        }
    }

    /// Creates the extension with tasks in memory, which end with the process.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::new(MemoryStore::new())
    }

    /// Sets the time to live of tasks from their creation, after which they fail; `None` is unlimited. Default: 1 h.
    #[must_use]
    pub fn ttl(mut self, ttl: impl Into<Option<Duration>>) -> Self {
        self.options.ttl = ttl.into();
        self
    }

    /// Sets the longest time to live that a tool, or a client of 2025-11-25, can set. Default: unlimited.
    #[must_use]
    pub fn max_ttl(mut self, max_ttl: Duration) -> Self {
        self.options.max_ttl = max_ttl;
        self
    }

    /// Sets how long a record is kept after its time to live, so that clients see how it ended. Default: 1 min.
    #[must_use]
    pub fn removal_delay(mut self, delay: Duration) -> Self {
        self.options.removal_delay = delay;
        self
    }

    /// Sets how often clients should poll. Default: 1 s.
    #[must_use]
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.options.poll_interval = interval;
        self
    }

    /// Sets how long a task belongs to its process after the last renewal. Default: 6 s.
    ///
    /// It should be several times the [interval of renewals](Self::renew_every): another process takes the task over
    /// when the lease has expired.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.options.lease = lease;
        self
    }

    /// Sets how often leases are renewed and expired ones are looked for. Default: 2 s.
    #[must_use]
    pub fn renew_every(mut self, interval: Duration) -> Self {
        self.options.renew_every = interval;
        self
    }

    /// Makes the calls of all tools without [`TaskSettings`] tasks when they have run for this long. By default they
    /// do not become tasks.
    #[must_use]
    pub fn task_after(mut self, duration: Duration) -> Self {
        self.options.task_after = Some(duration);
        self
    }

    fn env(&self) -> Result<Arc<Env>, StoreError> {
        let owner = *self.owner.as_ref().map_err(StoreError::clone)?;
        let env = self.env.get_or_init(|| {
            Arc::new(Env {
                store: self.store.clone(),
                options: self.options,
                owner,
                runs: self.runs.clone(),
                jobs: self.jobs.clone(),
            })
        });
        Ok(env.clone())
    }
}

impl ServerExtension for Tasks {
    fn id(&self) -> &str {
        EXTENSION_ID
    }

    fn is_available_in(&self, dialect: &Dialect) -> bool {
        dialect.is_modern() || legacy::is_defined_in(dialect)
    }

    fn is_declared_by_legacy(&self, request: &Request) -> bool {
        legacy::is_used_by(request)
    }

    fn undeclared_error(&self, _: &Dialect) -> Option<RpcError> {
        Some(legacy::task_required())
    }

    fn adjust_capabilities(&self, cx: &Context, capabilities: &mut ServerCapabilities) {
        if legacy::is_defined_in(cx.caller().dialect) {
            legacy::adjust_capabilities(cx, capabilities);
        }
    }

    fn methods(&self) -> Vec<ExtensionMethod> {
        let method = |name| ExtensionMethod::new(name).name_member("taskId");
        let both = [GET_METHOD, CANCEL_METHOD].map(method);
        let update = method(UPDATE_METHOD).modern_only();
        let legacy = legacy::methods();
        both.into_iter().chain([update]).chain(legacy).collect()
    }

    fn respond<'a>(&'a self, request: Request, cx: Context) -> BoxFuture<'a, Outcome> {
        // Two futures: that of the legacy methods is much larger.
        if legacy::is_defined_in(request.caller.dialect) {
            return Box::pin(async move {
                let env = self.env().map_err(|error| to_rpc_error(&error))?;
                legacy::respond(&env, &request, &cx).await
            });
        }
        Box::pin(async move { methods::respond(&*self.store, &request, &cx).await })
    }

    fn call_tool<'a>(&'a self, call: ToolCall, cx: Context) -> BoxFuture<'a, Outcome> {
        match self.env() {
            Ok(env) if legacy::is_defined_in(call.request().caller.dialect) => {
                Box::pin(legacy::call_tool(env, call, cx))
            }
            Ok(env) => intercept::call_tool(env, call, cx),
            Err(error) => Box::pin(std::future::ready(Err(to_rpc_error(&error)))),
        }
    }

    fn filter_members(&self) -> &[&str] {
        &[FILTER_MEMBER]
    }

    fn subscribe<'a>(
        &'a self,
        filter: BTreeMap<String, Json>,
        cx: Context,
    ) -> BoxFuture<'a, Result<ExtensionSubscription, RpcError>> {
        Box::pin(listen::subscribe(self.store.clone(), filter, cx))
    }

    fn background(&self, server: WeakServer) -> Option<BoxFuture<'static, ()>> {
        let Some(inbox) = self.inbox.lock().take() else {
            tracing::error!("`Tasks` was added to two servers; only the first one runs tasks");
            return None;
        };
        if let Some(server) = server.upgrade() {
            self.runs.set_metrics(server.task_metrics());
        }
        match self.env() {
            Ok(env) => Some(Box::pin(runner::run(env, server, inbox))),
            Err(error) => {
                tracing::error!(%error, "failed to start the tasks of the server");
                None
            }
        }
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
