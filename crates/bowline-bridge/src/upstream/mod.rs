//! [`Upstream`]: a server behind the bridge, and the connections to it.

mod breaker;
mod capability_keys;
use capability_keys::CapabilityKeys;
mod closing;
mod connection;
use connection::ConnectionPermit;
pub(crate) use connection::{UpstreamConnection, check_introduction};
mod era_check;
use era_check::ModernByEra;
mod error_text;
use error_text::describe;
mod known_callers;
mod log_levels;
pub(crate) use log_levels::LogLevelUse;
pub(crate) mod pool;
mod principals;
use principals::{PrincipalConnection, PrincipalConnections};

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use bowline::exchange::{Caller, Request};
use bowline::types::{Method as _, SubscriptionsListenRequest};
use bowline::{Context, Error, Json, RpcError};
use bowline_core::era::RequestConverter;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::Target;
use crate::client_token::{ClientToken, TokenTable};
use crate::front::FrontConnection;
use crate::owned_task::OwnedTask;
use crate::questions::{AskClient, ConnectionClients, Questions, UpstreamHost};
use crate::rare_log::RareLog;
use crate::target::FrontClient;
use crate::tasks::{self, OpenTasks, TaskOwners};
pub(crate) use breaker::Attempt;
use breaker::{Breaker, TooEarly};
use closing::ClosingConnections;
use pool::{Lease, Pool, PoolKey, Sharing, WeakPool};

/// The use of a connection by one call.
pub(crate) struct ConnectionLease {
    lease: Lease<UpstreamConnection>,
    attempt: Attempt,
    _counted: CountedRequest,
}

impl ConnectionLease {
    /// Returns the connection, once it is open.
    pub(crate) fn get(&self) -> Option<&UpstreamConnection> {
        self.lease.get()
    }

    pub(crate) fn attempt(&self) -> Attempt {
        self.attempt
    }
}

/// A request that uses a connection, or waits for one to open.
struct CountedRequest(Arc<AtomicUsize>);

impl CountedRequest {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count.clone())
    }
}

impl Drop for CountedRequest {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Identifies an upstream within the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UpstreamId(u64);

/// The limits and timeouts of an upstream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UpstreamSettings {
    /// Connections with the same principal and capabilities.
    pub(crate) max_connections_each: usize,
    /// Connections in all.
    pub(crate) max_connections: usize,
    /// Connections of one principal, with any capabilities.
    pub(crate) max_principal_connections: usize,
    /// How long an unused connection is kept.
    pub(crate) idle_timeout: Duration,
    /// How long a call may be silent.
    pub(crate) call_idle_timeout: Duration,
    /// How long connecting may take. `None`: as long as the target allows.
    pub(crate) connect_timeout: Option<Duration>,
}

impl Default for UpstreamSettings {
    fn default() -> Self {
        Self {
            max_connections_each: 1,
            max_connections: 100,
            max_principal_connections: 50,
            idle_timeout: Duration::from_secs(5 * 60),
            call_idle_timeout: Duration::from_secs(60 * 60),
            connect_timeout: None,
        }
    }
}

impl UpstreamSettings {
    /// A semaphore, which counts the connections, panics for a limit that is larger than any machine needs.
    fn clamped(mut self) -> Self {
        self.max_connections = self.max_connections.min(MOST_CONNECTIONS);
        self
    }
}

/// More connections than a machine has ports, processes or file descriptors for.
const MOST_CONNECTIONS: usize = 1 << 24;

/// A server behind the bridge.
pub(crate) struct Upstream {
    id: UpstreamId,
    target: Target,
    settings: Mutex<UpstreamSettings>,
    /// The connections that belong to no connection of a client.
    pool: Pool<UpstreamConnection>,
    /// The connections that belong to connections of clients. They end with the upstream, as after a reload.
    front_pools: Mutex<FrontPools>,
    permits: Arc<Semaphore>,
    principals: Arc<PrincipalConnections>,
    closing: Arc<ClosingConnections>,
    /// The tasks of clients that have no connection.
    tasks: Arc<OpenTasks>,
    task_owners: TaskOwners,
    /// The requests that use a connection.
    requests: Arc<AtomicUsize>,
    /// Closes idle connections.
    reaper: OnceLock<Reaper>,
    this: Weak<Self>,
    breaker: Mutex<Breaker>,
    /// Whether the last connection was a modern one, for clients of each era: a server that has both is spoken to in the
    /// legacy one for legacy clients.
    is_modern: ModernByEra,
    /// Whether the server has asked a question about a call.
    has_asked: AtomicBool,
    /// Counts the connections that were opened.
    opened: AtomicU64,
    /// The tokens of clients that connections are authorized with, if the target needs them.
    tokens: TokenTable,
    capability_keys: CapabilityKeys,
    /// For connections that cannot be opened.
    open_log: RareLog,
}

impl Upstream {
    pub(crate) fn new(target: Target, settings: UpstreamSettings) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let settings = settings.clamped();
        Arc::new_cyclic(|this| Self {
            id: UpstreamId(NEXT.fetch_add(1, Ordering::Relaxed)),
            target,
            settings: Mutex::new(settings),
            pool: Pool::new(settings.max_connections_each),
            front_pools: Mutex::default(),
            permits: Arc::new(Semaphore::new(settings.max_connections)),
            principals: Arc::default(),
            closing: Arc::default(),
            tasks: Arc::default(),
            task_owners: TaskOwners::default(),
            requests: Arc::default(),
            breaker: Mutex::default(),
            is_modern: ModernByEra::default(),
            has_asked: AtomicBool::new(false),
            opened: AtomicU64::new(0),
            tokens: TokenTable::default(),
            capability_keys: CapabilityKeys::default(),
            open_log: RareLog::default(),
            reaper: OnceLock::new(),
            this: this.clone(),
        })
    }

    pub(crate) fn name(&self) -> &str {
        self.target.name()
    }

    /// Returns the tasks of clients that have no connection.
    pub(crate) fn tasks(&self) -> &Arc<OpenTasks> {
        &self.tasks
    }

    /// Returns which principals have created tasks.
    pub(crate) fn task_owners(&self) -> &TaskOwners {
        &self.task_owners
    }

    pub(crate) fn settings(&self) -> UpstreamSettings {
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the settings. The limit of all connections, `max_connections`, must be the same.
    pub(crate) fn set_settings(&self, settings: UpstreamSettings) {
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner) = settings.clamped();
        self.pool.set_max_each(settings.max_connections_each);
    }

    /// Returns how many connections were opened so far.
    pub(crate) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// Returns whether connections carry the credentials of a principal.
    pub(crate) fn is_per_principal(&self) -> bool {
        self.target.is_per_principal()
    }

    pub(crate) fn id(&self) -> UpstreamId {
        self.id
    }

    /// Returns whether the request of a client must be answered by the one replica that has the client's connections:
    /// the server keeps state, and the client has no connection to this replica.
    pub(crate) fn has_owner(&self, cx: &Context) -> bool {
        self.target.is_stateful() && cx.connection_state().is_none()
    }

    /// Returns the limit of connections, if each legacy client has one.
    pub(crate) fn max_client_connections(&self) -> Option<usize> {
        let max = self.settings().max_connections;
        self.target.is_stateful().then_some(max)
    }

    /// Returns how many connections are open, or being opened.
    pub(crate) fn connections(&self) -> usize {
        let free = self.permits.available_permits();
        self.settings().max_connections.saturating_sub(free)
    }

    /// Returns how many requests use a connection, or wait for one to open.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    /// Returns a connection for a request of the front, and opens one if that is needed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the connection back. One that was being opened is closed, unless another request
    /// waits for it.
    pub(crate) async fn lease(
        &self,
        request: &Request,
        cx: &Context,
    ) -> Result<ConnectionLease, RpcError> {
        self.reaper.get_or_init(|| Reaper::start(self.this.clone()));
        let counted = CountedRequest::new(&self.requests);
        let attempt = self.breaker().begin();
        for _ in 0..MAX_OPENINGS {
            let client = self.client_of(request, cx)?;
            let lease = self.choose(request, cx, &client);
            // Checked first, because most calls find it open, and waiting for a cell costs more than looking into it.
            match lease.get() {
                Some(connection) => self.check_open(connection)?,
                None => {
                    let opening = self.open_leased(&lease, attempt, request, cx, &client);
                    opening.await?;
                }
            }
            if client.is_shared && lease.get().is_some_and(|it| !it.dialect().is_modern()) {
                // The server is a legacy one since it was last connected to. It was told the capabilities of the client
                // that opened this connection, which others do not have.
                lease.discard();
                continue;
            }
            return Ok(ConnectionLease {
                lease,
                attempt,
                _counted: counted,
            });
        }
        Err(self.unstable_version())
    }

    /// Checks that requests on an open connection may reach the server.
    fn check_open(&self, connection: &UpstreamConnection) -> Result<(), RpcError> {
        // Other connections end with their server: those that are open are available, whatever became of others.
        if self.target.is_stateful() || !connection.dialect().is_modern() {
            return Ok(());
        }
        let checked = self.breaker().check_open(Instant::now());
        checked.map_err(|early| self.too_early(&early))
    }

    /// Opens a connection, or waits until another request has opened it.
    async fn open_leased(
        &self,
        lease: &Lease<UpstreamConnection>,
        attempt: Attempt,
        request: &Request,
        cx: &Context,
        client: &FrontClient,
    ) -> Result<(), RpcError> {
        let (cell, cx_owned, client_owned) = (lease.cell().clone(), cx.clone(), client.clone());
        let (upstream, caller) = (self.this.upgrade(), request.caller.clone());
        let upstream = upstream.ok_or_else(|| RpcError::internal("the bridge is closed"))?;
        // In a task, because other requests wait for the connection too. Each of them has one, so that the next one goes on
        // if the one that connects is aborted.
        let opening = OwnedTask::spawn(async move {
            let open = || upstream.open(attempt, &caller, &cx_owned, &client_owned);
            cell.get_or_try_init(open).await.map(drop)
        });
        opening.join().await?;
        let Some(opened) = lease.get() else {
            return Err(RpcError::internal("the connection is not open"));
        };
        // Before the first one is open, no call knows that the server is modern and its connections are shared.
        let may_share = !self.target.is_stateful() && cx.connection_state().is_none();
        if may_share && opened.dialect().is_modern() {
            let key = self.shared_key(client);
            if key.principal.is_none() {
                opened.share();
            }
            lease.set_key(&key);
        }
        Ok(())
    }

    /// Returns whether the server has asked a question about a call, so that it may ask about the next one too.
    pub(crate) fn has_asked(&self) -> bool {
        self.has_asked.load(Ordering::Relaxed)
    }

    pub(crate) fn set_has_asked(&self) {
        self.has_asked.store(true, Ordering::Relaxed);
    }

    /// Closes connections that have not been used for a while.
    fn close_idle(&self) {
        self.tasks.remove_expired();
        if let Some(limit) = Instant::now().checked_sub(self.settings().idle_timeout) {
            drop(self.pool.take_idle(limit));
        }
    }

    /// Closes the connections that no call uses, waits for those that are used by the clients which are leaving, and
    /// then until every child process has been reaped. New connections are refused from then on.
    ///
    /// # Cancel safety
    ///
    /// The connections that were idle close even if the future is dropped.
    pub(crate) async fn close(&self) {
        self.tasks.clear();
        while self.pool.take_idlest(|_| true).is_some() {}
        let all = u32::try_from(self.settings().max_connections).unwrap_or(u32::MAX);
        let unused = self.permits.acquire_many(all);
        if tokio::time::timeout(CLOSE_TIME, unused).await.is_err() {
            tracing::debug!(upstream = self.name(), "a connection is still in use");
        }
        self.permits.close();
        self.closing.wait().await;
    }

    /// Records an answer of the server.
    pub(crate) fn succeeded(&self) {
        self.breaker().succeeded();
    }

    /// Converts the error of a call for the client, and records it if the transport failed. A status of HTTP is an answer,
    /// which may depend on what this client has sent.
    pub(crate) fn call_failed(&self, attempt: Attempt, error: &Error) -> RpcError {
        if let Error::Rpc(error) = error {
            self.succeeded();
            return error.clone();
        }
        self.failed(attempt, error, error.is_disconnected())
    }

    /// Converts the error of a connection that could not be opened. A timeout is a failure of the transport here: a
    /// server that does not answer `initialize` answers nothing. So is an error of the server: each attempt may start a
    /// process.
    fn open_failed(&self, attempt: Attempt, error: &Error) -> RpcError {
        let is_failure = !matches!(error, Error::Unauthorized { .. } | Error::Misuse { .. });
        if self.open_log.is_due() {
            let cause = std::error::Error::source(error).map(ToString::to_string);
            let cause = cause.unwrap_or_default();
            tracing::warn!(upstream = self.name(), %error, cause, "failed to connect");
        }
        self.failed(attempt, error, is_failure)
    }

    fn failed(&self, attempt: Attempt, error: &Error, is_failure: bool) -> RpcError {
        let what = describe(error);
        if is_failure {
            let mut breaker = self.breaker();
            breaker.failed(attempt, Instant::now(), what.clone());
        }
        if let Error::Rpc(error) = error {
            return error.clone();
        }
        let name = self.name();
        let data = serde_json::json!({"upstream": name, "reason": "upstreamFailed"});
        RpcError::internal(format!("upstream `{name}`: {what}")).with_data(Json::from(data))
    }

    /// Remembers connections that belong to a connection of a client.
    pub(crate) fn add_front_pool(&self, pool: &Pool<UpstreamConnection>) {
        let mut pools = self
            .front_pools
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        pools.add(pool.downgrade());
    }

    /// Makes the token of a request the one that is used for its principal from now on.
    pub(crate) fn refresh_token(&self, cx: &Context) {
        if let Some(token) = ClientToken::of(cx).filter(|_| self.target.needs_token()) {
            self.tokens.refresh(token);
        }
    }

    /// Returns the client on whose behalf a request is sent.
    fn client_of(&self, request: &Request, cx: &Context) -> Result<FrontClient, RpcError> {
        let front = FrontConnection::of(cx);
        let principal = front.as_ref().map(|front| front.principal(cx));
        let principal = principal.unwrap_or_else(|| cx.principal()).clone();
        let name = principal.name().map(Arc::from);
        let is_shared = self.is_modern.get(&request.caller) && !self.target.is_stateful();
        if !self.target.needs_token() {
            return Ok(FrontClient {
                principal,
                tokens: None,
                key: name,
                is_shared,
            });
        }
        let of_front = front.as_ref().and_then(|front| front.tokens());
        let latest = ClientToken::of(cx).or_else(|| of_front.map(|tokens| tokens.latest()));
        let latest = latest.ok_or_else(|| self.no_token())?;
        let (tokens, key) = match of_front {
            // The connections of one client, which may present tokens with other scopes later.
            Some(tokens) if !is_shared => (tokens.clone(), name),
            _ => {
                let key = latest.key();
                (self.tokens.cell(latest), Some(key))
            }
        };
        Ok(FrontClient {
            principal,
            tokens: Some(tokens),
            key,
            is_shared,
        })
    }

    fn no_token(&self) -> RpcError {
        let name = self.name();
        let what = format!(
            "upstream `{name}` is called with the access token of the client, and this request has none that the \
             bridge has verified"
        );
        let data = serde_json::json!({"upstream": name, "reason": "noClientToken"});
        RpcError::internal(what).with_data(Json::from(data))
    }

    fn choose(
        &self,
        request: &Request,
        cx: &Context,
        client: &FrontClient,
    ) -> Lease<UpstreamConnection> {
        let is_usable = UpstreamConnection::is_usable;
        if client.is_shared {
            let key = self.shared_key(client);
            return self.pool.lease(key, self.sharing(request), is_usable);
        }
        let key = PoolKey {
            principal: client.key.clone(),
            capabilities: Some(self.capability_keys.get(&request.caller)),
        };
        let pool = match &FrontConnection::of(cx) {
            Some(front) => front.pool(self),
            None => self.pool.clone(),
        };
        pool.lease(key, self.sharing(request), is_usable)
    }

    /// Returns the key of connections to a modern server without state, which clients with other capabilities share.
    fn shared_key(&self, client: &FrontClient) -> PoolKey {
        let principal = client.key.clone();
        PoolKey {
            principal: principal.filter(|_| self.target.is_per_principal()),
            ..PoolKey::default()
        }
    }

    /// A call about which a legacy server may ask has a connection to itself if the limit allows it, because the server
    /// does not say which call it asks about. A legacy client has one connection anyway, so that it is certain whom to ask.
    fn sharing(&self, request: &Request) -> Sharing {
        let declared = &request.caller.capabilities;
        let may_ask = declared.elicitation.is_some() || declared.sampling.is_some();
        let is_modern = request.caller.dialect.is_modern();
        let needs_input = request.caller.dialect.may_need_input(&request.method);
        if request.method == SubscriptionsListenRequest::NAME {
            Sharing::Subscription
        } else if is_modern && may_ask && needs_input && !self.is_modern.get(&request.caller) {
            Sharing::Alone
        } else {
            Sharing::Shared
        }
    }

    async fn open(
        &self,
        attempt: Attempt,
        caller: &Arc<Caller>,
        cx: &Context,
        client: &FrontClient,
    ) -> Result<UpstreamConnection, RpcError> {
        let checked = self.breaker().check(attempt, Instant::now());
        checked.map_err(|early| self.too_early(&early))?;
        caller.check_size()?;
        let permit = self.permit(client).await?;
        let questions = Questions::new(
            self.name().into(),
            self.settings().max_connections_each,
            ConnectionClients {
                owner: self.owner(caller, cx),
                is_one_client: FrontConnection::of(cx).is_some() || client.key.is_some(),
                tells_call: !self.target.is_stateful(),
            },
        );
        let front = caller;
        let caller = RequestConverter::default().convert_caller(caller.clone());
        let connection = self.connect_in_time(client, &caller, &questions).await;
        let connection = connection.map_err(|error| self.open_failed(attempt, &error))?;
        if let Err(error) = check_introduction(connection.introduction()) {
            self.closing.close(connection, Some(permit));
            return Err(self.open_failed(attempt, &error));
        }
        self.is_modern.set(front, connection.dialect().is_modern());
        self.opened.fetch_add(1, Ordering::Relaxed);
        if !questions.has_owner() {
            // No client is sent what belongs to no call, so it must not be queued.
            drop(connection.unsolicited());
        }
        let closing = self.closing.clone();
        Ok(UpstreamConnection::new(
            connection, questions, closing, permit,
        ))
    }

    async fn connect_in_time(
        &self,
        client: &FrontClient,
        caller: &Caller,
        questions: &Arc<Questions>,
    ) -> bowline::Result<bowline::client::Connection> {
        let connecting = self.connect(client, caller, questions);
        let Some(limit) = self.settings().connect_timeout else {
            return connecting.await;
        };
        // The client has the same limit, so that its log names it. Its error comes first: for a child process it has the
        // lines that were printed.
        match tokio::time::timeout(limit.saturating_add(CLIENT_FIRST), connecting).await {
            Err(_) | Ok(Err(Error::Timeout { .. })) => Err(Error::Transport {
                what: format!("failed to connect within {limit:?}"),
                source: None,
            }),
            Ok(connected) => connected,
        }
    }

    async fn connect(
        &self,
        client: &FrontClient,
        caller: &Caller,
        questions: &Arc<Questions>,
    ) -> bowline::Result<bowline::client::Connection> {
        let host = UpstreamHost(questions.clone());
        let mut capabilities = caller.capabilities.clone();
        // The requests of modern connections declare it, and legacy ones have another form of tasks.
        tasks::remove_extension(&mut capabilities);
        let mut builder = self
            .target
            .connect(client)?
            .host_responder(host, capabilities.clone())
            .capabilities(capabilities);
        if !caller.dialect.is_modern() {
            // The servers of both official SDKs can ask their clients in the legacy era only, and this one can be asked.
            builder = builder.prefer_legacy();
        }
        if let Some(client) = &caller.implementation {
            builder = builder.client_info(&client.name, &client.version);
        }
        if let Some(limit) = self.settings().connect_timeout {
            builder = builder.connect_timeout(limit);
        }
        builder.connection().await
    }

    /// Returns the client to which a whole connection belongs.
    fn owner(&self, caller: &Caller, cx: &Context) -> Option<Arc<dyn AskClient>> {
        let front = FrontConnection::of(cx).filter(|_| !caller.dialect.is_modern())?;
        Some(front.outlet(self.id))
    }

    /// Counts a connection that is about to be opened, and closes an idle one if there are too many.
    ///
    /// # Cancel safety
    ///
    /// Safe: what was counted is not any more if the future is dropped. An idle connection may have been closed.
    async fn permit(&self, client: &FrontClient) -> Result<ConnectionPermit, RpcError> {
        let of_principal = match client.principal.name().filter(|_| !client.is_shared) {
            Some(principal) => Some(self.principal_permit(principal).await?),
            None => None,
        };
        let acquire = || self.permits.clone().try_acquire_owned().ok();
        let of_all = self.make_room(acquire, |_| true).await.ok_or_else(|| {
            let max = self.settings().max_connections;
            self.too_many_connections(&format!("the limit of {max} connections is reached"))
        })?;
        Ok(ConnectionPermit::new(of_all, of_principal))
    }

    async fn principal_permit(&self, principal: &str) -> Result<PrincipalConnection, RpcError> {
        let max = self.settings().max_principal_connections;
        let add = || self.principals.add(principal, max);
        let is_own = |connection: &UpstreamConnection| connection.is_of(principal);
        self.make_room(add, is_own).await.ok_or_else(|| {
            self.too_many_connections(&format!(
                "the limit of {max} connections of one principal is reached by `{principal}`"
            ))
        })
    }

    /// Returns what `acquire` returns, after an idle connection that `may_close` is closed if that is needed. A connection
    /// counts until its process has exited, so that this waits for those that are being closed.
    async fn make_room<T>(
        &self,
        acquire: impl Fn() -> Option<T>,
        may_close: impl Fn(&UpstreamConnection) -> bool,
    ) -> Option<T> {
        let mut closing = self.closing.count();
        let deadline = Instant::now() + CLOSING_TIME;
        let mut has_closed_idle = false;
        loop {
            closing.mark_unchanged();
            if let Some(acquired) = acquire() {
                return Some(acquired);
            }
            if !has_closed_idle {
                let idle = self.pool.take_idlest(&may_close);
                has_closed_idle = idle.is_some();
                drop(idle);
            }
            // One that was idle starts to close a moment later if the last call is just letting go of it.
            if !has_closed_idle && *closing.borrow() == 0 {
                return None;
            }
            let changed = tokio::time::timeout_at(deadline, closing.changed()).await;
            if changed.is_err() {
                return acquire();
            }
        }
    }

    fn too_many_connections(&self, what: &str) -> RpcError {
        let name = self.name();
        tracing::warn!(upstream = name, what, "refused a request");
        let data = serde_json::json!({
            "upstream": name,
            "reason": "tooManyConnections",
            "retryable": true,
            "mayHaveRun": false,
        });
        RpcError::internal(format!("upstream `{name}`: {what}; try again later"))
            .with_data(Json::from(data))
    }

    fn unstable_version(&self) -> RpcError {
        let name = self.name();
        let what = format!(
            "upstream `{name}` has another protocol version at each connection; are its replicas of different releases?"
        );
        let data =
            serde_json::json!({"upstream": name, "reason": "upstreamFailed", "mayHaveRun": false});
        RpcError::internal(what).with_data(Json::from(data))
    }

    fn too_early(&self, early: &TooEarly) -> RpcError {
        let (name, retry_in) = (self.name(), early.retry_in);
        let what = format!(
            "upstream `{name}` is not available: {}; it is tried again in {:.1} s",
            early.last_error,
            retry_in.as_secs_f64()
        );
        let data = serde_json::json!({
            "upstream": name,
            "reason": "upstreamUnavailable",
            "retryAfterMs": u64::try_from(retry_in.as_millis()).unwrap_or(u64::MAX),
        });
        RpcError::internal(what).with_data(Json::from(data))
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pools of connections of clients. Those that are gone are removed from time to time.
#[derive(Default)]
struct FrontPools {
    pools: Vec<WeakPool<UpstreamConnection>>,
    /// The number of pools at which those that are gone are removed.
    cleanup_at: usize,
}

impl FrontPools {
    fn add(&mut self, pool: WeakPool<UpstreamConnection>) {
        if self.pools.len() >= self.cleanup_at {
            self.pools.retain(|pool| !pool.is_gone());
            self.cleanup_at = 2 * self.pools.len() + 16;
        }
        self.pools.push(pool);
    }
}

impl Drop for FrontPools {
    fn drop(&mut self) {
        self.pools.iter().for_each(WeakPool::clear);
    }
}

/// The task that closes idle connections. It ends with the upstream.
struct Reaper(JoinHandle<()>);

impl Reaper {
    fn start(upstream: Weak<Upstream>) -> Self {
        Self(tokio::spawn(async move {
            // Not kept over the pause, so that the upstream can be dropped.
            while let Some(current) = upstream.upgrade() {
                current.close_idle();
                let pause = current.settings().idle_timeout / 4;
                drop(current);
                tokio::time::sleep(pause.clamp(MIN_REAP_PAUSE, MAX_REAP_PAUSE)).await;
            }
        }))
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// How long [`Upstream::close`] waits for clients that are leaving.
const CLOSE_TIME: Duration = Duration::from_secs(1);

/// How long a request waits for connections that are being closed. A process that does not exit is killed before.
const CLOSING_TIME: Duration = Duration::from_secs(5);

/// How many connections a request opens if the version of the server changes meanwhile.
const MAX_OPENINGS: usize = 3;

/// How much later than the client the bridge gives up connecting.
const CLIENT_FIRST: Duration = Duration::from_secs(1);

const MIN_REAP_PAUSE: Duration = Duration::from_millis(100);
/// The idle timeout may become shorter by a reload.
const MAX_REAP_PAUSE: Duration = Duration::from_secs(60);
