//! Builds and opens a client's connection.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::task::{self, Poll};
use std::time::Duration;

use bowline_core::Outcome;
use bowline_core::era::{Caller, Dialect, Dialects, Request};
use bowline_types::{
    ClientCapabilities, CreateMessageRequest, ErrorCode, Implementation, ListRootsRequest,
    LoggingLevel, LoggingMessageNotification, Method, NotificationMethod, RpcError,
    check_extension_id,
};

use super::config::ClientConfig;
use super::detached::DetachedRequests;
use super::http::HttpConfig;
use super::notification_dispatch::NotificationDispatch;
use super::opener::Opener;
use super::remembered_version::RememberedVersion;
use super::restart::RestartSettings;
use super::transport::{ChildCommand, Transport};
use super::{Client, ClientInner, Connection, Host, ReadBudget};
use crate::exchange::{BoxFuture, Context, Responder};
use crate::telemetry::{Sender, TransportKind, host_with};
use crate::wire::{Command, EngineWire, OpenWireFn};
use crate::{Error, Result, deprecation};

/// A builder for a connection to a server, and the future of the connected [`Client`]. Await it to connect. Settings
/// have no effect once it was polled.
///
/// # Cancel safety
///
/// Dropping it closes the wire.
///
/// # Examples
///
/// ```
/// # async fn example(server: bowline::Server) -> bowline::Result<()> {
/// let client = bowline::Client::in_process(&server).client_info("editor", "2.1");
/// let client = client.protocol_version("2025-11-25").await?;
/// # Ok(()) }
/// ```
#[must_use = "a builder does nothing unless awaited"]
pub struct ClientBuilder {
    target: ConnectTarget,
    pub(super) config: ClientConfig,
    /// Used by [`ConnectTarget::Http`] only.
    pub(super) http: HttpConfig,
    /// The first invalid setting. Reported when the builder is awaited.
    invalid: Option<Error>,
    /// The future that the other fields were moved into, once the builder was polled.
    connecting: Option<BoxFuture<'static, Result<Client>>>,
}

/// The server to connect to.
pub(super) enum ConnectTarget {
    InProcess(Arc<dyn Responder>),
    Wire(Box<dyn EngineWire>),
    WireFn(OpenWireFn),
    Child(ChildCommand),
    #[allow(dead_code, reason = "constructed with the feature `http-client` only")]
    Http,
}

impl ClientBuilder {
    pub(super) fn in_process(responder: Arc<dyn Responder>) -> Self {
        Self::new(ConnectTarget::InProcess(responder))
    }

    pub(super) fn over_wire(wire: Box<dyn EngineWire>) -> Self {
        Self::new(ConnectTarget::Wire(wire))
    }

    pub(super) fn over_wire_fn(open: OpenWireFn) -> Self {
        Self::new(ConnectTarget::WireFn(open))
    }

    pub(super) fn child(command: Command) -> Self {
        Self::new(ConnectTarget::Child(ChildCommand::new(command)))
    }

    pub(super) fn new(target: ConnectTarget) -> Self {
        Self::with_config(target, ClientConfig::new(Arc::new(reject_request)))
    }

    pub(super) fn with_config(target: ConnectTarget, config: ClientConfig) -> Self {
        Self {
            target,
            config,
            http: HttpConfig::default(),
            invalid: None,
            connecting: None,
        }
    }

    /// Sets `clientInfo`: the name and version of this application.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(server: bowline::Server) -> bowline::Result<()> {
    /// let client = bowline::Client::in_process(&server).client_info("editor", "2.1").await?;
    /// # Ok(()) }
    /// ```
    pub fn client_info(mut self, name: impl Into<String>, version: impl Into<String>) -> Self {
        self.config.caller.implementation = Some(Implementation::new(name, version));
        self
    }

    /// Uses this protocol version and no other.
    ///
    /// For a version without a handshake no probe is sent, except to a child process: a legacy server might execute
    /// the first modern request before it turns out to be legacy.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(server: bowline::Server) -> bowline::Result<()> {
    /// let client = bowline::Client::in_process(&server).protocol_version("2025-11-25").await?;
    /// assert_eq!(client.dialect().version, "2025-11-25");
    /// # Ok(()) }
    /// ```
    pub fn protocol_version(mut self, version: &str) -> Self {
        match Dialect::of(version) {
            Some(chosen) => {
                self.config.versions = Dialects::only(|dialect| std::ptr::eq(dialect, chosen));
            }
            None => self.set_invalid(format!("unknown protocol version `{version}`")),
        }
        self
    }

    /// Prefers the versions before 2026-07-28 if the server has both: `initialize` is sent first, and the server is probed
    /// for other versions if it refuses that. Without a legacy version to [choose](Self::protocol_version) this has no
    /// effect, nor for a [known](Self::known_server) server.
    ///
    /// For what servers do in the legacy versions only: those of the official SDKs send no requests to the client at
    /// 2026-07-28.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(server: bowline::Server) -> bowline::Result<()> {
    /// let client = bowline::Client::in_process(&server).prefer_legacy().await?;
    /// assert!(!client.dialect().is_modern());
    /// # Ok(()) }
    /// ```
    pub fn prefer_legacy(mut self) -> Self {
        self.config.prefers_legacy = true;
        self
    }

    /// Limits the unfinished messages of the server and the notifications that are not read, together with those of other
    /// connections that share the budget. No limit by default, other than that of each message and call.
    ///
    /// Unfinished messages are counted over HTTP and of child processes; for those of another wire use
    /// [`Lines::read_budget`](crate::wire::Lines::read_budget).
    pub fn read_budget(mut self, budget: &ReadBudget) -> Self {
        self.config.read_budget = Some(budget.clone());
        self
    }

    /// Declares client capabilities, in addition to those of the [host](Self::host).
    pub fn capabilities(mut self, capabilities: ClientCapabilities) -> Self {
        self.config.caller.capabilities = capabilities;
        self
    }

    /// Requests log messages of at least this severity with every request.
    pub fn log_level(mut self, level: LoggingLevel) -> Self {
        self.config.caller.log_level = Some(level);
        self
    }

    /// Sets the host that answers the server's requests (sampling, elicitation, roots), and declares its capabilities.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(server: bowline::Server) -> bowline::Result<()> {
    /// use bowline::{Client, client::Host, types::Root};
    ///
    /// let host = Host::new().roots(async || vec![Root::new("file:///project")]);
    /// let client = Client::in_process(&server).host(host).await?;
    /// # Ok(()) }
    /// ```
    pub fn host(self, host: Host) -> Self {
        let capabilities = host.capabilities();
        self.host_responder(host, capabilities)
    }

    /// Sets a responder in place of a [`Host`], and declares the capabilities that it provides.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(server: bowline::Server) -> bowline::Result<()> {
    /// use bowline::exchange::{Outcome, Request};
    /// use bowline::types::{ClientCapabilities, RootsCapability};
    /// use bowline::{Client, Context, Json};
    ///
    /// async fn no_roots(_: Request, _: Context) -> Outcome {
    ///     Ok(Json::from(serde_json::json!({"roots": []})))
    /// }
    ///
    /// let mut capabilities = ClientCapabilities::default();
    /// capabilities.roots = Some(RootsCapability::default());
    /// let client = Client::in_process(&server).host_responder(no_roots, capabilities).await?;
    /// # Ok(()) }
    /// ```
    pub fn host_responder(
        mut self,
        responder: impl Responder,
        capabilities: ClientCapabilities,
    ) -> Self {
        self.config.host = Arc::new(responder);
        self.config.host_capabilities = capabilities;
        self
    }

    /// Sets the idle timeout of requests, which progress notifications restart. 60 s by default.
    ///
    /// It is also the limit of the acknowledgement of a subscription, which nothing restarts, and of `initialize`, unless
    /// a [connect timeout](Self::connect_timeout) is set.
    /// [`RequestBuilder::idle_timeout`](super::RequestBuilder::idle_timeout) overrides it for one request.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(server: bowline::Server) -> bowline::Result<()> {
    /// let client = bowline::Client::in_process(&server).idle_timeout(std::time::Duration::from_secs(600)).await?;
    /// # Ok(()) }
    /// ```
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.config.idle_timeout = timeout;
        self
    }

    /// Sets how long the version probe (`server/discover`) may be unanswered until `initialize` is tried. 5 s by default.
    ///
    /// Over HTTP the probe stays open meanwhile: a server that is only starting may still answer it, and what it answers
    /// then decides. A client of modern versions only does not try `initialize`.
    pub fn probe_timeout(mut self, timeout: Duration) -> Self {
        self.config.probe_timeout = timeout;
        self
    }

    /// Sets the timeout of connecting, until the server has answered: with the probe and the handshake, and without the
    /// time in which a user authorizes. 30 s by default, because some programs are downloaded first, and some servers are
    /// started by a request.
    ///
    /// If it elapses, the error is [`Error::Transport`] with a [`ConnectTimeout`](super::ConnectTimeout) as its source.
    /// For a child process it contains the lines that the program printed; after 5 s a warning with them is logged.
    ///
    /// Over HTTP it is also the timeout of making each connection, including DNS, every address, a proxy and TLS, which is
    /// 10 s by default and ignored if `ClientBuilder::http_client` is set.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> bowline::Result<()> {
    /// use std::time::Duration;
    /// use bowline::{Client, wire::Command};
    ///
    /// let command = Command::new("npx").args(["-y", "some-large-server"]);
    /// let client = Client::spawn(command).connect_timeout(Duration::from_secs(120)).await?;
    /// # Ok(()) }
    /// ```
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.config.connect_timeout = Some(timeout);
        self.http.set_connect_timeout(timeout);
        self
    }

    /// Sets how long a child process that has read the probe and did not answer it has to answer `initialize`. After
    /// that, or if it exits, it is terminated and started again, and `initialize` is its first message. 10 s by
    /// default; [`Duration::MAX`] means never.
    ///
    /// Some older servers stop answering after a request that precedes `initialize`. A program that is slow to start
    /// has not read the probe, so that the time does not begin. Two kinds of programs may be started twice if they take
    /// longer than the probe timeout and this time together: those that read their input before they can answer, such
    /// as `docker run`, and all programs outside Linux, where it cannot be seen what a process has read. Give them more
    /// time, or set their [version](Self::protocol_version).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> bowline::Result<()> {
    /// use std::time::Duration;
    /// use bowline::{Client, wire::Command};
    ///
    /// let command = Command::new("docker").args(["run", "-i", "some-server"]);
    /// let client = Client::spawn(command).respawn_after(Duration::from_secs(60)).await?;
    /// # Ok(()) }
    /// ```
    pub fn respawn_after(mut self, timeout: Duration) -> Self {
        self.config.respawn_after = timeout;
        self
    }

    /// Sets how many rounds of input (multi round-trip) one request may take before it fails. 10 by default.
    pub fn max_rounds(mut self, rounds: u32) -> Self {
        self.config.max_rounds = rounds;
        self
    }

    /// Reports `error` when the builder is awaited, unless an earlier setting was invalid too.
    pub(super) fn set_invalid(&mut self, error: impl Into<String>) {
        self.invalid.get_or_insert_with(|| Error::misuse(error));
    }

    /// Connects without a [`Client`]: the returned [`Connection`] sends requests as they are, and returns answers as they
    /// come.
    ///
    /// The settings of the cache, of output validation and of input rounds have no effect, nor do the callbacks for
    /// notifications, which [`Connection::unsolicited`] replaces. Requests of the server are answered by the
    /// [host responder](Self::host_responder). A [known](Self::known_server) version is not corrected if it turns out to
    /// be wrong.
    ///
    /// # Errors
    ///
    /// As for the future of the builder.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the wire.
    ///
    /// # Examples
    ///
    /// ```
    /// # use bowline::{Client, Server};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> bowline::Result<()> {
    /// use bowline::exchange::{Answer, CallOptions, Channel, Request};
    ///
    /// let server = Server::new("weather", "1.0");
    /// let connection = Client::in_process(&server).connection().await?;
    /// let request = Request::new("server/discover", bowline::Json::empty_object(), connection.caller());
    /// let answer = connection.open(request, CallOptions::default()).answer().await?;
    /// assert!(matches!(answer, Answer::Complete(_)));
    /// # Ok(()) }
    /// ```
    pub async fn connection(mut self) -> Result<Connection> {
        self.config.set_bare();
        let notifications = self.prepare();
        self.bare_connection(notifications).await
    }

    /// Opens a connection that is used without a client.
    pub(super) async fn bare_connection(
        self,
        notifications: Arc<NotificationDispatch>,
    ) -> Result<Connection> {
        let (connection, config, child) = self.open(&notifications).await?;
        connection.confirm();
        connection.send_log_level(config.idle_timeout).await;
        if let Some(command) = child {
            connection.keep_restart_settings(RestartSettings {
                command,
                config,
                notifications,
            });
        }
        Ok(connection)
    }

    async fn connect(mut self) -> Result<Client> {
        let notifications = self.prepare();
        self.connect_with(notifications).await
    }

    /// Declares the extensions. Not part of [`open`](Self::open), which also gets the config of a connected client, to
    /// restart its server.
    fn prepare(&mut self) -> Arc<NotificationDispatch> {
        let ClientConfig {
            extensions, caller, ..
        } = &mut self.config;
        if let Err(error) = extensions.check_undeclared(&caller.capabilities) {
            self.invalid.get_or_insert(error);
        }
        self.config.extensions.declare(&mut self.config.caller);
        let (url, identity) = (self.http.cache_url(), self.http.identity());
        self.config.notifications(url, identity)
    }

    /// Connects a client whose notifications go through `notifications`.
    pub(super) async fn connect_with(
        self,
        notifications: Arc<NotificationDispatch>,
    ) -> Result<Client> {
        let (connection, config, child) = self.open(&notifications).await?;
        let remembered = RememberedVersion::of(&config, &connection);
        let inner = ClientInner {
            first: connection,
            remembered,
            notifications,
            config,
            last_token: AtomicI64::new(0),
            child,
            closed: Arc::default(),
            detached: DetachedRequests::new(),
        };
        let client = Client {
            inner: Arc::new(inner),
        };
        client.send_log_level().await;
        Ok(client)
    }

    /// Opens the connection. Also returns its settings, and the command of a child process.
    async fn open(
        self,
        notifications: &Arc<NotificationDispatch>,
    ) -> Result<(Connection, ClientConfig, Option<ChildCommand>)> {
        let Self {
            target,
            mut config,
            http,
            invalid,
            connecting: _,
        } = self;
        if let Some(invalid) = invalid {
            return Err(invalid);
        }
        add_capabilities(
            &mut config.caller.capabilities,
            config.host_capabilities.clone(),
        );
        check_extensions(&config.caller.capabilities)?;
        config.host = host_with(config.host, &config.telemetry);
        let opener = Opener {
            config: &config,
            notifications,
        };
        let child = match &target {
            ConnectTarget::Child(command) => Some(command.clone()),
            ConnectTarget::InProcess(_)
            | ConnectTarget::Wire(_)
            | ConnectTarget::WireFn(_)
            | ConnectTarget::Http => None,
        };
        let connection = open(target, http, &opener).await?;
        connection.arm_reconnect();
        warn_of_deprecated(&connection.caller());
        Ok((connection, config, child))
    }
}

async fn open(target: ConnectTarget, http: HttpConfig, opener: &Opener<'_>) -> Result<Connection> {
    match target {
        ConnectTarget::InProcess(server) => {
            server.check()?;
            let sender = Sender::new(opener.config.telemetry.clone(), TransportKind::InProcess);
            let transport = Transport::in_process(server, opener.config.host.clone(), sender);
            opener.open(transport, None).await
        }
        ConnectTarget::Wire(wire) => opener.open_wire(wire).await,
        ConnectTarget::WireFn(open) => opener.open_wire_fn(open).await,
        ConnectTarget::Child(command) => opener.spawn(&command).await,
        ConnectTarget::Http => {
            let tools = opener.notifications.tools.clone();
            let names = opener.config.extensions.name_members();
            let budget = opener.config.read_budget.clone();
            let transport = http.transport(tools, names, budget)?;
            transport.connect(opener).await
        }
    }
}

impl Future for ClientBuilder {
    type Output = Result<Client>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        let connecting = match self.connecting.take() {
            Some(connecting) => connecting,
            None => {
                // What remains in the builder is not used again.
                let settings = std::mem::replace(&mut *self, Self::new(ConnectTarget::Http));
                Box::pin(settings.connect())
            }
        };
        self.connecting.insert(connecting).as_mut().poll(cx)
    }
}

impl std::fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("caller", &self.config.caller)
            .field("versions", &self.config.versions)
            .finish_non_exhaustive()
    }
}

/// Adds the host's capabilities to those that the application declared.
fn add_capabilities(declared: &mut ClientCapabilities, provided: ClientCapabilities) {
    declared.elicitation = declared.elicitation.take().or(provided.elicitation);
    declared.sampling = declared.sampling.take().or(provided.sampling);
    declared.roots = declared.roots.take().or(provided.roots);
}

/// Logs a warning for each deprecated feature that the client offers.
fn warn_of_deprecated(caller: &Caller) {
    let offered = [
        (
            CreateMessageRequest::NAME,
            caller.capabilities.sampling.is_some(),
        ),
        (ListRootsRequest::NAME, caller.capabilities.roots.is_some()),
        (LoggingMessageNotification::NAME, caller.log_level.is_some()),
    ];
    for (method, is_offered) in offered {
        if is_offered {
            deprecation::warn_deprecated(method, caller.dialect);
        }
    }
}

/// Checks the extension identifiers against the grammar of the specification.
fn check_extensions(declared: &ClientCapabilities) -> Result<()> {
    for id in declared.extensions.iter().flat_map(BTreeMap::keys) {
        check_extension_id(id).map_err(|error| {
            Error::misuse(format!("invalid extension identifier `{id}`: {error}"))
        })?;
    }
    Ok(())
}

/// The host of a client without one.
async fn reject_request(request: Request, _: Context) -> Outcome {
    let method = request.method;
    let why = format!("method not found: `{method}` (the client has no host)");
    Err(RpcError::new(ErrorCode::METHOD_NOT_FOUND, why))
}
