//! [`Bridge`]: answers the requests of clients by asking servers.

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bowline::client::ReadBudget;
use bowline::cluster::Cluster;
use bowline::exchange::{
    BoxFuture, ConnectionState, Dialects, Notification, NotifiedContext, Outcome, Params, Request,
    Responder,
};
use bowline::http::server::HttpService;
use bowline::layer::ProgressHeartbeat;
use bowline::seal::Sealer;
use bowline::server::WireService;
use bowline::telemetry::Telemetry;
use bowline::types::Implementation;
use bowline::{Context, Json, Result};
use bowline_core::json::Object;

use crate::catalog::ToolCatalog;
use crate::config::{
    ConfigChanges, DEFAULT_INCOMING_BYTES, DEFAULT_LEGACY_TIMEOUT, ParkedCallForm, UpstreamConfig,
};
use crate::credentials::Credentials;
use crate::forward::{self, open_connection};
use crate::front::FrontConnection;
use crate::modern::ModernCalls;
use crate::parked::ParkSettings;
use crate::replicas::{AnswerHere, Replicas};
use crate::servers::{Servers, misuse};
use crate::tasks;
use crate::upstream::{Upstream, UpstreamSettings};
use crate::{BridgeConfig, Target, legacy};

/// Answers the requests of clients in every protocol version by asking a server in the version that it speaks. Clones
/// are the same bridge.
///
/// It connects to the server when the first request arrives, and keeps connections by what the server is told about its
/// client: a legacy client has connections of its own, and modern clients share those of their principal and
/// capabilities. Dropping a call cancels it at the server, in the form of the server's transport and version.
///
/// # Examples
///
/// ```no_run
/// use bowline::wire::Command;
/// use bowline_bridge::{Bridge, Target};
///
/// # async fn example() -> bowline::Result<()> {
/// // A server that speaks stdio, for clients of every version over HTTP.
/// let bridge = Bridge::new(Target::command("time", || Command::new("mcp-server-time")));
/// bridge.http().bind("127.0.0.1:8000").await?.serve_until_signal().await
/// # }
/// ```
#[derive(Clone)]
pub struct Bridge {
    inner: Arc<BridgeInner>,
}

/// The builder of a [`Bridge`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use bowline_bridge::{Bridge, Target};
///
/// let bridge = Bridge::builder(Target::http("https://search.example/mcp"))
///     .max_connections_each(8)
///     .park_timeout(Duration::from_secs(60))
///     .build();
/// ```
#[derive(Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct BridgeBuilder {
    target: Target,
    upstream: UpstreamSettings,
    park: ParkSettings,
    heartbeat: Option<Duration>,
    heartbeat_limit: Option<Duration>,
    sealer: Option<Sealer>,
    max_incoming_bytes: usize,
    legacy_timeout: Duration,
}

/// What a bridge holds; see [`Bridge::usage`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BridgeUsage {
    /// Connections to the server that are open, or being opened.
    pub connections: usize,
    /// Requests and subscriptions that use a connection, or wait for one to open.
    pub requests: usize,
    /// Calls of modern clients to a legacy server that are in progress, or wait until the client answers a question.
    pub waiting_calls: usize,
    /// Bytes of messages of servers that have begun and not ended, and of notifications that clients have not read.
    pub incoming_bytes: usize,
    /// Messages of servers that were not read because of [`BridgeBuilder::max_incoming_bytes`], since the bridge was
    /// created.
    pub refused_messages: u64,
}

struct BridgeInner {
    behind: Behind,
    identity: Implementation,
    versions: Dialects,
    modern: ModernCalls,
    heartbeat: Option<ProgressHeartbeat>,
    /// The unfinished messages of all servers.
    incoming: ReadBudget,
    legacy_timeout: Duration,
    catalog: ToolCatalog,
    /// Shared with the targets.
    telemetry: Arc<OnceLock<Telemetry>>,
}

/// What is behind a bridge.
enum Behind {
    /// One server, whose messages pass as they are.
    One(Arc<Upstream>),
    /// The servers of a configuration, with names and rules.
    Many(Servers),
}

impl Bridge {
    /// Creates a bridge to one server, with default settings.
    #[must_use]
    pub fn new(target: Target) -> Self {
        Self::builder(target).build()
    }

    /// Returns the builder of a bridge to one server.
    pub fn builder(target: Target) -> BridgeBuilder {
        BridgeBuilder {
            target,
            upstream: UpstreamSettings::default(),
            park: ParkSettings::default(),
            heartbeat: Some(DEFAULT_HEARTBEAT),
            heartbeat_limit: Some(DEFAULT_HEARTBEAT_LIMIT),
            sealer: None,
            max_incoming_bytes: DEFAULT_INCOMING_BYTES.get(),
            legacy_timeout: DEFAULT_LEGACY_TIMEOUT,
        }
    }

    /// Creates a bridge to the servers of a configuration. `${NAME}` is replaced by environment variables.
    ///
    /// Settings of the front, such as `http` and `auth`, are for the caller to apply.
    ///
    /// # Errors
    ///
    /// [`bowline::Error::Misuse`] that names the server and the member, if a variable is not set, a header is invalid, or a file
    /// of pins cannot be read.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use bowline_bridge::{Bridge, BridgeConfig};
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let config = BridgeConfig::from_file("bridge.json")?;
    /// let bridge = Bridge::from_config(&config)?;
    /// bridge.http().bind("127.0.0.1:8000").await?.serve_until_signal().await?;
    /// # Ok(()) }
    /// ```
    pub fn from_config(config: &BridgeConfig) -> Result<Self> {
        let credentials = Credentials::new();
        Self::from_config_with(config, move |server| credentials.target(server))
    }

    /// Creates a bridge to the servers of a configuration, as [`from_config`](Self::from_config) does, with a function
    /// that returns how each of them is reached.
    ///
    /// The function is called for a server when the bridge is created, and when a [reload](Self::reload) adds it or
    /// changes how it is reached. The target should have the name of the server.
    ///
    /// # Errors
    ///
    /// The errors of `target`, and those of `from_config`.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::{Client, Server, Tool};
    /// use bowline_bridge::{Bridge, BridgeConfig, Target};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let config = BridgeConfig::from_json(r#"{"mcpServers": {"a": {"command": "a"}, "b": {"command": "b"}}}"#)?;
    /// let server = Server::new("clock", "1.0.0").tool(Tool::new("now", async || "noon"));
    /// let bridge = Bridge::from_config_with(&config, move |upstream| {
    ///     let server = server.clone();
    ///     Ok(Target::new(upstream.name(), move |_| Ok(Client::in_process(&server))))
    /// })?;
    /// let client = Client::in_process(&bridge).await?;
    /// assert_eq!(client.call_tool("b__now", ()).await?.text(), "noon");
    /// # Ok(()) }
    /// ```
    pub fn from_config_with(
        config: &BridgeConfig,
        target: impl Fn(&UpstreamConfig) -> Result<Target> + Send + Sync + 'static,
    ) -> Result<Self> {
        let settings = config.settings();
        let park = ParkSettings {
            park_timeout: settings.park_timeout,
            max_parked_time: settings.park_limit,
            max_calls: settings.max_parked.get(),
            form: settings.parked_calls,
            ..ParkSettings::default()
        };
        let sealer = match &settings.state_key {
            Some(key) => Sealer::new(
                key.expand(|name| std::env::var(name).ok())
                    .map_err(misuse)?,
            ),
            None => Sealer::random(),
        };
        let telemetry = Arc::<OnceLock<Telemetry>>::default();
        let of_targets = telemetry.clone();
        let max_incoming = settings.max_incoming_bytes.get();
        let incoming = ReadBudget::new(max_incoming);
        let of_servers = incoming.clone();
        let target = move |server: &UpstreamConfig| {
            // One server leaves room for the others.
            let part = of_servers.part(max_incoming - max_incoming / 4);
            let mut target = target(server)?.with_read_budget(part);
            if let Some(version) = &server.settings().protocol_version {
                target = target.protocol_version(version.as_str());
            }
            Ok(target.with_telemetry(of_targets.clone()))
        };
        let inner = BridgeInner {
            behind: Behind::Many(Servers::new(config, Box::new(target))?),
            identity: identity(settings.name.as_deref()),
            versions: Dialects::all(),
            modern: ModernCalls::new(sealer, park),
            heartbeat: settings.heartbeat.map(|after| {
                let limit = settings.heartbeat_limit.unwrap_or(Duration::MAX);
                ProgressHeartbeat::new().after(after).limit(limit)
            }),
            incoming,
            legacy_timeout: settings.legacy_timeout.unwrap_or(Duration::MAX),
            catalog: ToolCatalog::default(),
            telemetry,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Replaces the configuration of a bridge that was created from one, and returns what has changed.
    ///
    /// Calls in flight end where they started, and servers that are reached as before keep their connections. Clients
    /// that listen are told that the lists have changed. A cursor from before is refused if servers or prefixes are
    /// others. Settings of the front and of parked calls stay as they were.
    ///
    /// Files of pins are read on the calling thread.
    ///
    /// # Errors
    ///
    /// As for [`from_config`](Self::from_config), or [`bowline::Error::Misuse`] if the bridge was not created from a
    /// configuration. The bridge then goes on with the old one.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use bowline_bridge::{Bridge, BridgeConfig};
    /// # fn example(bridge: &Bridge) -> Result<(), Box<dyn std::error::Error>> {
    /// let changes = bridge.reload(&BridgeConfig::from_file("bridge.json")?)?;
    /// println!("new servers: {:?}", changes.added);
    /// # Ok(()) }
    /// ```
    pub fn reload(&self, config: &BridgeConfig) -> Result<ConfigChanges> {
        match &self.inner.behind {
            Behind::Many(servers) => servers.reload(config),
            Behind::One(_) => Err(misuse(
                "the bridge was not created from a configuration; use `Bridge::from_config`",
            )),
        }
    }

    /// Records spans and metrics of the requests of clients, and of those to the servers, and passes the trace context
    /// on: the span of the bridge is between that of the client and that of the server. A bridge has one telemetry, the
    /// first that is set; connections that are open already are not observed.
    ///
    /// A [`Telemetry`] is created with the feature `otel` of the crate `bowline`.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::telemetry::Telemetry;
    /// use bowline_bridge::{Bridge, Target};
    ///
    /// fn observed(telemetry: Telemetry) -> Bridge {
    ///     Bridge::new(Target::http("https://search.example/mcp")).telemetry(telemetry)
    /// }
    /// ```
    #[must_use]
    pub fn telemetry(self, telemetry: Telemetry) -> Self {
        // Fails if there is one already.
        let _ = self.inner.telemetry.set(telemetry);
        self
    }

    /// Makes this bridge one of several replicas, so that each serves the clients of the others. A load balancer may send
    /// each request to any of them. Replicas have the same name, upstreams and keys.
    ///
    /// - The `requestState`s of all rounds are sealed with the keys of the cluster; those of
    ///   [`sealer`](BridgeBuilder::sealer) and of the configuration are not used.
    /// - A parked call is continued at whichever replica its retry arrives.
    /// - Modern clients of a server that keeps state reach the connections of one replica, whichever they send a request
    ///   to. If it ends, another replica connects anew, and what the server kept is lost.
    /// - [`http`](Self::http) serves legacy clients at all replicas; see [`HttpService::cluster`]. Each replica has its own
    ///   connections for them, so that for legacy clients a server that keeps state needs sticky routing.
    ///
    /// Call it before the bridge is served. A bridge has one cluster, the first that is set. Bridges to other servers on
    /// the same engine need other keys and another name; see [`cluster_named`](Self::cluster_named).
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::cluster::MemoryCluster;
    /// use bowline_bridge::{Bridge, Target};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), bowline::cluster::Unavailable> {
    /// let cluster = MemoryCluster::new();
    /// let [first, second] = [cluster.replica()?, cluster.replica()?];
    /// let bridge = |replica| Bridge::new(Target::http("https://search.example/mcp")).cluster(replica);
    /// let replicas = [bridge(first), bridge(second)];
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn cluster(self, cluster: impl Into<Cluster>) -> Self {
        let name = self.inner.identity.name.clone();
        self.cluster_named(&name, cluster)
    }

    /// As [`cluster`](Self::cluster), with another name than that of the configuration, or `bowline-bridge`. Bridges with
    /// different names do not forward requests to each other.
    #[must_use]
    pub fn cluster_named(self, name: &str, cluster: impl Into<Cluster>) -> Self {
        let replicas = Replicas::new(cluster.into(), name, Arc::downgrade(&self.inner));
        self.inner.modern.join(replicas);
        self
    }

    /// Returns what the bridge holds now.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline_bridge::{Bridge, Target};
    ///
    /// let bridge = Bridge::new(Target::http("https://search.example/mcp"));
    /// assert_eq!(bridge.usage().connections, 0);
    /// ```
    #[must_use]
    pub fn usage(&self) -> BridgeUsage {
        let upstreams = self.inner.upstreams();
        BridgeUsage {
            connections: upstreams.iter().map(|it| it.connections()).sum(),
            requests: upstreams.iter().map(|it| it.requests()).sum(),
            waiting_calls: self.inner.modern.open_calls(),
            incoming_bytes: self.inner.incoming.used(),
            refused_messages: self.inner.incoming.refused(),
        }
    }

    /// Returns a service that answers clients of every version over HTTP, and over HTTP+SSE.
    ///
    /// If each legacy client has a connection to the server, at most half of
    /// [`max_connections`](BridgeBuilder::max_connections) of them are remembered, and a new one takes the place of the
    /// one that was idle for longest: most clients go without a word, and would leave no connection for others.
    pub fn http(&self) -> HttpService {
        let identity = &self.inner.identity;
        let mut service = HttpService::new(self.clone(), self.inner.catalog.clone(), identity);
        if let Some(replicas) = self.inner.modern.replicas() {
            service = service.cluster(replicas.cluster().clone());
        }
        let upstreams = self.inner.upstreams();
        let limits = upstreams
            .iter()
            .filter_map(|it| it.max_client_connections());
        legacy::serve(service, limits.min(), self.inner.legacy_timeout)
    }

    /// Returns a service that answers a client over stdio or another wire.
    pub fn wire(&self) -> WireService {
        WireService::new(self.clone(), &self.inner.identity)
    }

    /// Closes the connections to the server. A child process is terminated, and has been reaped when this returns.
    ///
    /// Call it at the end of a program, after the services have returned: otherwise child processes are killed when the
    /// runtime shuts down, without time to exit.
    ///
    /// # Cancel safety
    ///
    /// Connections that no call uses close even if the future is dropped.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(bridge: bowline_bridge::Bridge) -> bowline::Result<()> {
    /// bridge.wire().serve_stdio().await?;
    /// bridge.close().await;
    /// # Ok(()) }
    /// ```
    pub async fn close(&self) {
        if let Some(replicas) = self.inner.modern.replicas() {
            replicas.release().await;
        }
        match &self.inner.behind {
            Behind::One(upstream) => upstream.close().await,
            Behind::Many(servers) => servers.close().await,
        }
    }
}

impl BridgeBuilder {
    /// Sets how many connections to the server have the same principal and capabilities. 1 by default, so that all calls
    /// of a client reach the same process, and the state that it keeps.
    ///
    /// A legacy server over stdio does not say which call its questions are about. If calls of several clients without a
    /// principal share a connection, a question waits until only one of these calls is left, for 30 seconds, and is then
    /// refused. For a server that asks, and keeps no state between calls, a higher limit gives each call of a modern client
    /// that can be asked a connection to itself, up to this number; further calls share one.
    pub fn max_connections_each(mut self, max: usize) -> Self {
        self.upstream.max_connections_each = max;
        self
    }

    /// Sets how many connections to the server there are in all; each may be a process. 100 by default, 16,777,216 at
    /// most. A request that needs one more closes an idle one, or is refused.
    pub fn max_connections(mut self, max: usize) -> Self {
        self.upstream.max_connections = max;
        self
    }

    /// Sets how many connections to the server one authenticated principal has, with any capabilities. 50 by default. A
    /// request that needs one more closes an idle one of the principal, or is refused. Connections that principals share,
    /// as to a modern server without state, do not count.
    pub fn max_principal_connections(mut self, max: usize) -> Self {
        self.upstream.max_principal_connections = max;
        self
    }

    /// Sets how long connecting to the server may take in all: the start of a process, or the handshake and a sign-in.
    /// As long as the client of the [`Target`] allows by default, which is 30 s for a process.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use bowline::wire::Command;
    /// use bowline_bridge::{Bridge, Target};
    ///
    /// // Downloads the server at its first start.
    /// let target = Target::command("files", || Command::new("npx").args(["-y", "files-server"]));
    /// let bridge = Bridge::builder(target).connect_timeout(Duration::from_secs(120)).build();
    /// ```
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.upstream.connect_timeout = Some(timeout);
        self
    }

    /// Sets how long a connection that no client uses is kept. 5 minutes by default.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.upstream.idle_timeout = timeout;
        self
    }

    /// Sets how long a call may run without progress. 1 hour by default: the timeouts of clients are shorter.
    pub fn call_idle_timeout(mut self, timeout: Duration) -> Self {
        self.upstream.call_idle_timeout = timeout;
        self
    }

    /// Sets how long a call waits for the answer to a question of a legacy server, if its client is a modern one that
    /// must make the call again with the answer. 5 minutes by default. Then the call is cancelled.
    pub fn park_timeout(mut self, timeout: Duration) -> Self {
        self.park.park_timeout = timeout;
        self
    }

    /// Sets how a modern client gets a call back that a legacy server asks about. [`ParkedCallForm::Retry`] by default.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline_bridge::config::ParkedCallForm;
    /// use bowline_bridge::{Bridge, Target};
    ///
    /// let bridge = Bridge::builder(Target::http("https://search.example/mcp"))
    ///     .parked_calls(ParkedCallForm::Task)
    ///     .build();
    /// ```
    pub fn parked_calls(mut self, form: ParkedCallForm) -> Self {
        self.park.form = form;
        self
    }

    /// Sets after how much silence of a call a legacy client is sent a progress notification, if it sent a progress
    /// token; `None` for never. 20 seconds by default.
    ///
    /// Many legacy clients end a call after 60 seconds, and only progress restarts their timer. See
    /// [`ProgressHeartbeat`]. A call that connects to the server first gets them too; a parked one does not.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use bowline_bridge::{Bridge, Target};
    ///
    /// let bridge = Bridge::builder(Target::http("https://search.example/mcp"))
    ///     .heartbeat(Some(Duration::from_secs(10)))
    ///     .heartbeat_limit(Some(Duration::from_secs(600)))
    ///     .build();
    /// ```
    pub fn heartbeat(mut self, silence: Option<Duration>) -> Self {
        self.heartbeat = silence;
        self
    }

    /// Sets for how long a call gets them since the last progress of the server, or since it started; `None` for no
    /// limit. 1 hour by default.
    pub fn heartbeat_limit(mut self, limit: Option<Duration>) -> Self {
        self.heartbeat_limit = limit;
        self
    }

    /// Sets the keys for the states that clients keep between two rounds. By default a random one. With a key that
    /// outlives the process, a client that continues a call after a restart is told that the call was lost.
    pub fn sealer(mut self, sealer: Sealer) -> Self {
        self.sealer = Some(sealer);
        self
    }

    /// Sets how many bytes of the server the bridge holds, over all connections: of messages that have not ended, and of
    /// notifications that clients have not read. 128 MiB by default. A call whose answer does not fit fails, and can be
    /// made again; notifications that do not fit are dropped. See [`ReadBudget`].
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline_bridge::{Bridge, Target};
    ///
    /// let bridge = Bridge::builder(Target::http("https://search.example/mcp"))
    ///     .max_incoming_bytes(32 * 1024 * 1024)
    ///     .build();
    /// ```
    pub fn max_incoming_bytes(mut self, max: usize) -> Self {
        self.max_incoming_bytes = max;
        self
    }

    /// Sets how long a legacy client over HTTP may be silent, without a stream or a running call, before its connection to
    /// the server is closed. 30 minutes by default. A client that comes back later must initialize again.
    pub fn legacy_timeout(mut self, timeout: Duration) -> Self {
        self.legacy_timeout = timeout;
        self
    }

    /// Creates the bridge. It connects when the first request arrives.
    #[must_use]
    pub fn build(self) -> Bridge {
        let sealer = self.sealer.unwrap_or_else(Sealer::random);
        let limit = self.heartbeat_limit.unwrap_or(Duration::MAX);
        let heartbeat = |after| ProgressHeartbeat::new().after(after).limit(limit);
        let telemetry = Arc::<OnceLock<Telemetry>>::default();
        let incoming = ReadBudget::new(self.max_incoming_bytes);
        let target = self.target.with_read_budget(incoming.clone());
        let target = target.with_telemetry(telemetry.clone());
        let inner = BridgeInner {
            behind: Behind::One(Upstream::new(target, self.upstream)),
            identity: identity(None),
            versions: Dialects::all(),
            modern: ModernCalls::new(sealer, self.park),
            heartbeat: self.heartbeat.map(heartbeat),
            incoming,
            legacy_timeout: self.legacy_timeout,
            catalog: ToolCatalog::default(),
            telemetry,
        };
        Bridge {
            inner: Arc::new(inner),
        }
    }
}

/// Returns the name of the bridge, for results of a server that does not name itself.
pub(crate) fn identity(name: Option<&str>) -> Implementation {
    Implementation::new(name.unwrap_or("bowline-bridge"), env!("CARGO_PKG_VERSION"))
}

impl BridgeInner {
    fn upstreams(&self) -> Vec<Arc<Upstream>> {
        match &self.behind {
            Behind::One(upstream) => vec![upstream.clone()],
            Behind::Many(servers) => servers.upstreams(),
        }
    }

    async fn respond(&self, request: Request, cx: Context) -> Outcome {
        // Pinned here, so that this future contains it once and not in each branch.
        let routed = pin!(self.route(request, &cx));
        match &self.heartbeat {
            Some(heartbeat) => heartbeat.run(&cx, routed).await,
            None => routed.await,
        }
    }

    async fn route(&self, request: Request, cx: &Context) -> Outcome {
        let upstream = match &self.behind {
            Behind::One(upstream) => upstream,
            Behind::Many(servers) => {
                let (modern, versions) = (&self.modern, &self.versions);
                let lists_tools = request.method == "tools/list";
                // Boxed, so that the future for one server stays small.
                let responding = Box::pin(servers.respond(modern, versions, request, cx.clone()));
                let result = responding.await?;
                if lists_tools {
                    self.catalog.learn(cx.principal().name(), &result);
                }
                return Ok(result);
            }
        };
        // All but the last are boxed, so that the future of a call does not contain them.
        match &*request.method {
            "server/discover" => Box::pin(self.discover(upstream, &request, cx)).await,
            "tools/list" => Box::pin(self.list_tools(upstream, request, cx)).await,
            _ => self.modern.respond(upstream, request, cx).await,
        }
    }

    async fn list_tools(
        &self,
        upstream: &Arc<Upstream>,
        request: Request,
        cx: &Context,
    ) -> Outcome {
        let page = self.modern.respond(upstream, request, cx).await?;
        self.catalog.learn(cx.principal().name(), &page);
        Ok(page)
    }

    /// Answers with what the server says about itself. The versions are those of the bridge.
    async fn discover(&self, upstream: &Upstream, request: &Request, cx: &Context) -> Outcome {
        let lease = upstream.lease(request, cx).await?;
        let connection = open_connection(&lease)?;
        let result = match connection.channel().introduction() {
            Some(introduction) => introduction.clone(),
            None => forward::forward(upstream, request.clone(), cx).await?,
        };
        let Ok(mut object) = Object::read(&result) else {
            return Ok(result);
        };
        let versions: Vec<_> = self
            .versions
            .iter()
            .map(|dialect| dialect.version)
            .collect();
        if let Ok(versions) = Json::encode(&versions) {
            object.set("supportedVersions", versions);
        }
        let (server, client) = (connection.dialect(), request.caller.dialect);
        tasks::convert_offer(&mut object, server, client, self.modern.parked_calls());
        Ok(object.to_json())
    }
}

impl AnswerHere for BridgeInner {
    fn upstream(&self, name: &str) -> Option<Arc<Upstream>> {
        let mut upstreams = self.upstreams().into_iter();
        upstreams.find(|upstream| upstream.name() == name)
    }

    fn modern_calls(&self) -> &ModernCalls {
        &self.modern
    }
}

impl Responder for Bridge {
    fn respond<'a>(&'a self, request: Request, cx: Context) -> BoxFuture<'a, Outcome> {
        Box::pin(self.inner.respond(request, cx))
    }

    fn required_scopes(&self, _: &str, _: Option<&Params>) -> Vec<String> {
        Vec::new()
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn notified(&self, notification: &Notification, cx: &NotifiedContext) {
        let state = cx.connection_state();
        if let Some(front) = state.and_then(ConnectionState::get::<FrontConnection>) {
            front.notify(notification);
        }
    }

    fn telemetry(&self) -> Option<&Telemetry> {
        self.inner.telemetry.get()
    }

    /// Calls of modern clients to legacy servers: they may be parked, and wait for a retry.
    fn open_calls(&self) -> usize {
        self.inner.modern.open_calls()
    }
}

impl std::fmt::Debug for Bridge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let servers = match &self.inner.behind {
            Behind::One(upstream) => vec![upstream.name().to_owned()],
            Behind::Many(servers) => servers.names(),
        };
        f.debug_struct("Bridge")
            .field("servers", &servers)
            .finish_non_exhaustive()
    }
}

/// Three of them fit into the 60 seconds after which many clients end a call.
const DEFAULT_HEARTBEAT: Duration = Duration::from_secs(20);
const DEFAULT_HEARTBEAT_LIMIT: Duration = Duration::from_secs(60 * 60);
