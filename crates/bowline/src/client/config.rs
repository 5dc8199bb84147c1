//! The settings of a client, whatever its transport.

use std::sync::Arc;
use std::time::Duration;

use bowline_core::Notification;
use bowline_core::era::{Caller, Dialect, Dialects};
use bowline_core::input::DEFAULT_MAX_ROUNDS;
use bowline_types::{ClientCapabilities, Implementation, LoggingMessageNotificationParams};

use super::cache::{Cache, MemoryCache};
use super::cache_policy::{CachePolicy, CacheScopeOptions, IdentitySource};
use super::extension::ClientExtensions;
use super::known_tools::KnownTools;
use super::notification_dispatch::{NotificationDispatch, OnError, OnLog, OnNotification};
use super::{ClientBuilder, KnownServer, OutputValidation, Reconnect};
use crate::Error;
use crate::exchange::{Responder, TraceContext};
use crate::limits::ReadBudget;
use crate::telemetry::{Configured, Telemetry};

/// The settings of a client.
#[derive(Clone)]
pub(super) struct ClientConfig {
    /// This client as a server sees it. The version is that of a connection that is not opened yet.
    pub(super) caller: Caller,
    /// The protocol versions that the client may use.
    pub(super) versions: Dialects,
    /// Whether a server that has both eras is spoken to in the legacy one.
    pub(super) prefers_legacy: bool,
    /// Answers the server's requests.
    pub(super) host: Arc<dyn Responder>,
    pub(super) host_capabilities: ClientCapabilities,
    pub(super) extensions: ClientExtensions,
    /// The idle timeout of requests.
    pub(super) idle_timeout: Duration,
    /// The timeout of connecting; `None` for the default.
    pub(super) connect_timeout: Option<Duration>,
    /// Limits unfinished and unread messages, together with other connections.
    pub(super) read_budget: Option<ReadBudget>,
    pub(super) probe_timeout: Duration,
    pub(super) respawn_after: Duration,
    pub(super) reconnect: Option<Reconnect>,
    pub(super) max_rounds: u32,
    pub(super) checks_capabilities: bool,
    /// The version of an earlier connection, used instead of a probe.
    pub(super) known_server: Option<KnownServer>,
    pub(super) trace: Option<TraceSource>,
    /// Whether the connection is used without a [`Client`](super::Client).
    pub(super) is_bare: bool,
    pub(super) telemetry: Configured,
    cache: Arc<dyn Cache>,
    principal: Option<String>,
    server_identity: Option<String>,
    output_validation: OutputValidation,
    on_log: Option<OnLog>,
    on_notification: Option<OnNotification>,
    on_error: Option<OnError>,
}

/// Returns the trace that the current request belongs to.
pub(super) type TraceSource = Arc<dyn Fn() -> Option<TraceContext> + Send + Sync>;

impl ClientConfig {
    pub(super) fn new(host: Arc<dyn Responder>) -> Self {
        let mut caller = Caller::new(Dialect::LATEST);
        caller.implementation = Some(Implementation::new("bowline", env!("CARGO_PKG_VERSION")));
        Self {
            caller,
            versions: Dialects::all(),
            prefers_legacy: false,
            host,
            host_capabilities: ClientCapabilities::default(),
            extensions: ClientExtensions::default(),
            idle_timeout: DEFAULT_IDLE_TIMEOUT,
            connect_timeout: None,
            read_budget: None,
            probe_timeout: DEFAULT_PROBE_TIMEOUT,
            respawn_after: DEFAULT_RESPAWN_AFTER,
            reconnect: None,
            max_rounds: DEFAULT_MAX_ROUNDS,
            checks_capabilities: true,
            known_server: None,
            trace: None,
            is_bare: false,
            telemetry: Configured::default(),
            cache: Arc::new(MemoryCache::default()),
            principal: None,
            server_identity: None,
            output_validation: OutputValidation::default(),
            on_log: None,
            on_notification: None,
            on_error: None,
        }
    }

    /// Makes these the settings of a [`Connection`](super::Connection) without a client.
    pub(super) fn set_bare(&mut self) {
        self.is_bare = true;
        self.output_validation = OutputValidation::Off;
    }

    /// Returns the legacy versions, if `initialize` is sent before a probe.
    pub(super) fn legacy_first(&self) -> Option<Dialects> {
        let may_choose = self.prefers_legacy && self.versions.latest_legacy().is_some();
        may_choose.then(|| self.versions.without_modern())
    }

    /// The timeout of connecting.
    pub(super) fn connect_timeout(&self) -> Duration {
        self.connect_timeout.unwrap_or(DEFAULT_CONNECT_TIMEOUT)
    }

    /// The timeout of a handshake on a wire, which must not end it before a connect timeout that was set.
    pub(super) fn handshake_timeout(&self) -> Duration {
        let idle_timeout = self.idle_timeout;
        self.connect_timeout
            .map_or(idle_timeout, |set| set.max(idle_timeout))
    }

    /// `url` and `identity` are those of a connection over HTTP.
    pub(super) fn notifications(
        &self,
        url: Option<String>,
        identity: Option<IdentitySource>,
    ) -> Arc<NotificationDispatch> {
        let options = CacheScopeOptions {
            server: self.server_identity.clone().or(url),
            principal: self.principal.clone(),
            identity,
        };
        Arc::new(NotificationDispatch {
            cache_policy: Arc::new(CachePolicy::new(self.cache.clone(), options)),
            tools: Arc::new(KnownTools::new(self.output_validation)),
            on_log: self.on_log.clone(),
            on_notification: self.on_notification.clone(),
            on_error: self.on_error.clone(),
        })
    }
}

impl ClientBuilder {
    /// Uses the protocol version of an earlier connection instead of probing the server.
    ///
    /// A modern server gets no message before the first request, a legacy one its handshake. If the version turns out
    /// to be wrong, because the first request fails, the client probes the server and uses the right one from then
    /// on;
    /// [`Client::known_server`](super::Client::known_server) then returns it. The failed request is sent again if the
    /// error proves that it did not run.
    pub fn known_server(mut self, server: KnownServer) -> Self {
        self.config.known_server = Some(server);
        self
    }

    /// Sets a function that returns the trace context of each request without [its own](super::RequestBuilder::trace).
    ///
    /// It is called where a request is started or awaited, so that it can read the current span.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(server: bowline::Server) -> bowline::Result<()> {
    /// use std::sync::{Arc, Mutex};
    /// use bowline::{Client, exchange::TraceContext};
    ///
    /// // In place of the current span of your tracing system.
    /// let current: Arc<Mutex<Option<TraceContext>>> = Arc::default();
    /// let trace = {
    ///     let current = current.clone();
    ///     move || current.lock().ok()?.clone()
    /// };
    /// let client = Client::in_process(&server).trace(trace).await?;
    /// # Ok(()) }
    /// ```
    pub fn trace(
        mut self,
        trace: impl Fn() -> Option<TraceContext> + Send + Sync + 'static,
    ) -> Self {
        self.config.trace = Some(Arc::new(trace));
        self
    }

    /// Records spans and metrics of every request, on every transport, and sends the trace context of each in
    /// `params._meta`. A [`Telemetry`] is created with the feature `otel`.
    ///
    /// The parent of a span is the span that is active where the request is started or awaited. Without one it is the
    /// [trace](super::RequestBuilder::trace) of the request.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::telemetry::Telemetry;
    /// use bowline::{Client, Server};
    ///
    /// async fn connect(server: &Server, telemetry: Telemetry) -> bowline::Result<Client> {
    ///     Client::in_process(server).telemetry(telemetry).await
    /// }
    /// ```
    pub fn telemetry(mut self, telemetry: Telemetry) -> Self {
        self.config.telemetry = telemetry.into();
        self
    }

    /// Calls `on_log` with each log message of the server.
    ///
    /// It is called from the task that reads the wire, or from the call that the message belongs to, and must not
    /// block.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(server: bowline::Server) -> bowline::Result<()> {
    /// let (messages, received) = std::sync::mpsc::channel();
    /// let client = bowline::Client::in_process(&server)
    ///     .log_level(bowline::types::LoggingLevel::Info)
    ///     .on_log(move |message| drop(messages.send(message)))
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn on_log(
        mut self,
        on_log: impl Fn(LoggingMessageNotificationParams) + Send + Sync + 'static,
    ) -> Self {
        self.config.on_log = Some(Arc::new(on_log));
        self
    }

    /// Calls `on_notification` with each notification of the server except log messages and progress, including
    /// unknown methods.
    ///
    /// It is called like the callback of [`ClientBuilder::on_log`], after the cache has evicted what changed.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(server: bowline::Server) -> bowline::Result<()> {
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    ///
    /// let count = Arc::new(AtomicUsize::new(0));
    /// let counter = count.clone();
    /// let client = bowline::Client::in_process(&server)
    ///     .on_notification(move |_| drop(counter.fetch_add(1, Ordering::Relaxed)))
    ///     .await?;
    /// println!("{} notifications", count.load(Ordering::Relaxed));
    /// # Ok(()) }
    /// ```
    pub fn on_notification(
        mut self,
        on_notification: impl Fn(&Notification) + Send + Sync + 'static,
    ) -> Self {
        self.config.on_notification = Some(Arc::new(on_notification));
        self
    }

    /// Sets a callback for errors that belong to no call: an error response without an id, a malformed message, and a
    /// request that the server's version does not have. They are logged as well.
    ///
    /// The callback is called like that of [`ClientBuilder::on_log`]. Over Streamable HTTP of 2026-07-28 every error
    /// belongs to a call.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(wire: impl bowline::wire::Wire) -> bowline::Result<()> {
    /// let name = String::from("weather");
    /// let connect = bowline::Client::from_wire(wire).on_error(move |error| eprintln!("{name}: {error}"));
    /// # let _ = connect; Ok(()) }
    /// ```
    pub fn on_error(mut self, on_error: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        self.config.on_error = Some(Arc::new(on_error));
        self
    }

    /// Caches results in `cache`. By default each client has its own [`MemoryCache`].
    ///
    /// Several clients can share one. They share results of the same server: the same URL, or the same
    /// [`server_identity`](Self::server_identity).
    pub fn cache(mut self, cache: Arc<dyn Cache>) -> Self {
        self.config.cache = cache;
        self
    }

    /// Sets a name for the server, so that clients that set the same name share cached results. Defaults to the URL
    /// over HTTP, and to a name that no other client has on other transports.
    pub fn server_identity(mut self, identity: impl Into<String>) -> Self {
        self.config.server_identity = Some(identity.into());
        self
    }

    /// Sets the principal that the client acts for, so that clients with the same principal share private cached
    /// results.
    ///
    /// Defaults to the [identity](crate::http::client::Authorizer::identity) of the client's authorizer. Without an
    /// authorizer private results are not shared. If the principal changes later, call
    /// [`Client::set_principal`](super::Client::set_principal).
    pub fn principal(mut self, principal: impl Into<String>) -> Self {
        self.config.principal = Some(principal.into());
        self
    }

    /// Sets when `structuredContent` is validated against the `outputSchema` of its tool.
    pub fn output_validation(mut self, validation: OutputValidation) -> Self {
        self.config.output_validation = validation;
        self
    }

    /// Sends requests even if the server did not declare the capability for them.
    pub fn skip_capability_check(mut self) -> Self {
        self.config.checks_capabilities = false;
        self
    }
}

const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Long enough for programs that are downloaded first, such as those of `npx` and `uvx`.
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const DEFAULT_PROBE_TIMEOUT: Duration = Duration::from_secs(5);
const DEFAULT_RESPAWN_AFTER: Duration = Duration::from_secs(10);
