//! [`Client`], a connection to a server, and what its methods return.

mod builder;
pub use builder::ClientBuilder;

mod config;

mod host;
pub use host::Host;

mod connection;
pub use connection::Connection;

pub use crate::limits::ReadBudget;

mod unsolicited;
pub use unsolicited::{Unsolicited, UnsolicitedEvent};

mod transport;
use transport::ChildCommand;

mod opener;
pub use opener::ConnectTimeout;

#[cfg(feature = "http-client")]
mod http;
#[cfg(not(feature = "http-client"))]
#[path = "http_disabled.rs"]
mod http;

mod restart;

mod reconnect;
pub use reconnect::Reconnect;

mod servers_config;
pub use servers_config::{ServerConfig, ServersConfig};

mod known_server;
pub use known_server::KnownServer;

#[cfg(feature = "http-client")]
mod era_cache;
#[cfg(feature = "http-client")]
pub use era_cache::EraCache;

mod deferred;

mod detached;
use detached::DetachedRequests;

mod extension;
pub use extension::{ClientExtension, ExtensionResult};

mod extension_call;
pub use extension_call::ExtensionCall;

mod request_builder;
pub use request_builder::{RequestBuilder, RequestKind, SingleRequest};

mod requests;
pub use requests::{CallTool, Complete, Ping, SetLogLevel, Typed, Untyped};

mod lists;
pub use lists::{ItemStream, List, PaginatedMethod};

mod structured;

mod call;
pub use call::{Call, Reply};

mod input_requests;

mod capabilities;

mod known_tools;

mod output_validation;
pub use output_validation::OutputValidation;

#[cfg(feature = "validate")]
mod schema;
#[cfg(not(feature = "validate"))]
#[path = "schema_disabled.rs"]
mod schema;

mod remembered_version;
pub(crate) use remembered_version::cannot_have_run;

mod cache;
pub use cache::{Cache, CacheEntry, CacheKey, CacheOwner, MemoryCache};

mod cache_policy;

mod changes;
pub use changes::{Change, ChangeFilter};

mod subscription;
pub use subscription::{Subscription, SubscriptionBuilder, SubscriptionEnd};

mod watch;
pub use watch::Watch;

mod notification_dispatch;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bowline_core::Notification;
use bowline_core::era::{Caller, Dialect, Request};
use bowline_types::{
    DiscoverResult, Implementation, Json, LoggingLevel, NotificationMethod, ProgressToken,
    RootsListChangedNotification, ServerCapabilities, SubscriptionFilter,
};
use serde::Serialize;

use crate::exchange::{CallOptions, Exchange, Responder, TraceContext};
use crate::peer::Peer;
use crate::signal::Signal;
use crate::wire::{Command, EngineWire, Wire};
use crate::{Error, Result};
use cache_policy::CacheMode;
use config::ClientConfig;
use notification_dispatch::NotificationDispatch;
use remembered_version::RememberedVersion;

/// A connection to a server. Cheap to clone; the connection is closed when the last clone is dropped.
///
/// # Examples
///
/// Dropping a call, as `select!` does here, cancels it at the server:
///
/// ```
/// # use bowline::Client;
/// # async fn user_pressed_stop() {}
/// # async fn example(client: Client) -> bowline::Result<()> {
/// let slow = client.call_tool("slow", serde_json::json!({"seconds": 60}));
/// tokio::select! {
///     reply = slow => println!("{}", reply?.text()),
///     () = user_pressed_stop() => {}
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client {
    inner: Arc<ClientInner>,
}

struct ClientInner {
    /// The connection as it was opened.
    first: Connection,
    /// Set if `first` was opened with a remembered version.
    remembered: Option<RememberedVersion>,
    notifications: Arc<NotificationDispatch>,
    config: ClientConfig,
    last_token: AtomicI64,
    /// The command of the server, if [`Client::spawn`] started it.
    child: Option<ChildCommand>,
    /// Raised when the client is closed or dropped.
    closed: Arc<Signal>,
    detached: DetachedRequests,
}

impl Drop for ClientInner {
    fn drop(&mut self) {
        self.closed.raise();
        self.detached.begin_close();
    }
}

/// Closes a connection even if the future that waits before closing it is dropped.
struct CloseOnDrop<'a>(&'a Connection);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.begin_close();
    }
}

impl ClientInner {
    /// Returns the connection that requests are sent over.
    fn current_connection(&self) -> &Connection {
        let corrected = self
            .remembered
            .as_ref()
            .and_then(RememberedVersion::corrected);
        corrected.unwrap_or(&self.first)
    }
}

impl Client {
    /// Connects to a [`Server`](crate::Server), or any other [`Responder`], in the same process.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(server: bowline::Server) -> bowline::Result<()> {
    /// let client = bowline::Client::in_process(&server).await?;
    /// # Ok(()) }
    /// ```
    pub fn in_process<R: Responder + Clone>(server: &R) -> ClientBuilder {
        ClientBuilder::in_process(Arc::new(server.clone()))
    }

    /// Connects over a [`Wire`].
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(server: bowline::Server) -> bowline::Result<()> {
    /// let (client_wire, server_wire) = bowline::wire::memory();
    /// tokio::spawn(server.serve(server_wire));
    /// let client = bowline::Client::from_wire(client_wire).await?;
    /// # Ok(()) }
    /// ```
    pub fn from_wire(wire: impl Wire) -> ClientBuilder {
        ClientBuilder::over_wire(Box::new(wire))
    }

    /// Connects over the [`Wire`] that `connect` opens. It is called again to
    /// [reconnect](ClientBuilder::reconnect).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> bowline::Result<()> {
    /// use bowline::{Client, client::Reconnect, wire::Lines};
    /// use tokio::net::TcpStream;
    ///
    /// let address = std::env::args().nth(1).unwrap_or("127.0.0.1:4000".to_owned());
    /// let connect = move || {
    ///     let address = address.clone();
    ///     async move { Ok(Lines::tcp(TcpStream::connect(address).await?)) }
    /// };
    /// let client = Client::from_wire_fn(connect).reconnect(Reconnect::default()).await?;
    /// # Ok(()) }
    /// ```
    pub fn from_wire_fn<W, F>(mut connect: impl FnMut() -> F + Send + 'static) -> ClientBuilder
    where
        W: Wire,
        F: Future<Output = std::io::Result<W>> + Send + 'static,
    {
        ClientBuilder::over_wire_fn(Box::new(move || {
            let connecting = connect();
            Box::pin(async {
                let wire = connecting.await.map_err(|error| Error::Transport {
                    what: "failed to connect".into(),
                    source: Some(error.into()),
                })?;
                Ok(Box::new(wire) as Box<dyn EngineWire>)
            })
        }))
    }

    /// Starts a server as a child process, without a shell, and connects to it.
    ///
    /// If the child exits, every call fails with an error that contains its exit status and the lines that it printed.
    /// Lines on stdout that are not messages are skipped and logged. The child is terminated with the connection and
    /// never outlives it; [`Client::close`] returns after it was reaped. [`Command`] documents what it inherits and how
    /// it is terminated.
    ///
    /// If the child exits at the version probe, or [does not respond](ClientBuilder::respawn_after) after it, as some
    /// older servers do, it is started once more. Later it is started again only by [`Client::restart`] and with
    /// [`ClientBuilder::reconnect`]. Connecting fails if the child has not answered within
    /// [`ClientBuilder::connect_timeout`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> bowline::Result<()> {
    /// use std::process::Command;
    ///
    /// let client = bowline::Client::spawn(Command::new("weather-server")).await?;
    /// let reply = client.call_tool("forecast", serde_json::json!({"city": "Bergen"})).await?;
    /// client.close().await
    /// # }
    /// ```
    ///
    /// [`Command`]: crate::wire::Command
    pub fn spawn(command: impl Into<Command>) -> ClientBuilder {
        ClientBuilder::child(command.into())
    }

    /// Subscribes to changes at the server (`subscriptions/listen`).
    ///
    /// In the legacy era this is emulated by `resources/subscribe` and the server's unsolicited notifications.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// use bowline::client::ChangeFilter;
    ///
    /// let mut changes = client.subscribe(ChangeFilter::new().resource("file:///notes.txt")).await?;
    /// while let Some(change) = changes.next().await? {
    ///     println!("{change:?}");
    /// }
    /// # Ok(()) }
    /// ```
    pub fn subscribe(&self, changes: impl Into<SubscriptionFilter>) -> SubscriptionBuilder {
        SubscriptionBuilder::new(self, changes.into())
    }

    /// Subscribes to changes at the server, and subscribes again whenever the subscription ends.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// use bowline::client::{Change, ChangeFilter};
    ///
    /// let mut changes = client.watch(ChangeFilter::new().tools());
    /// while let Some(change) = changes.next().await? {
    ///     if matches!(change, Change::Tools | Change::Missed) {
    ///         let tools = client.list_tools().await?;
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    pub fn watch(&self, changes: impl Into<SubscriptionFilter>) -> Watch {
        Watch::new(self, changes.into())
    }

    /// Sends `notifications/roots/list_changed`, if the protocol version has it. In later versions this does nothing:
    /// their servers request the roots whenever they need them.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] if the client does not declare `roots.listChanged`; see [`Host::roots_list_changed`].
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(server: bowline::Server) -> bowline::Result<()> {
    /// use bowline::{Client, client::Host, types::Root};
    ///
    /// let host = Host::new()
    ///     .roots(async || vec![Root::new("file:///project")])
    ///     .roots_list_changed();
    /// let client = Client::in_process(&server).host(host).await?;
    /// client.roots_changed()?;
    /// # Ok(()) }
    /// ```
    pub fn roots_changed(&self) -> Result<()> {
        let caller = self.caller();
        let roots = caller.capabilities.roots.as_ref();
        if roots.and_then(|roots| roots.list_changed) != Some(true) {
            return Err(Error::misuse(
                "this client does not declare `roots.listChanged`; call `Host::roots_list_changed` first",
            ));
        }
        let method = RootsListChangedNotification::NAME;
        let connection = self.inner.current_connection();
        connection.notify(Notification::new(method, None));
        Ok(())
    }

    /// Sets the principal that the client acts for. Cached private results of the previous one are no longer used.
    pub fn set_principal(&self, principal: impl Into<String>) {
        self.inner
            .notifications
            .cache_policy
            .set_principal(principal.into());
    }

    /// Returns the server's protocol version and capabilities, for [`ClientBuilder::known_server`] at the next
    /// connection.
    #[must_use]
    pub fn known_server(&self) -> KnownServer {
        KnownServer::of(self.inner.current_connection())
    }

    /// Returns the server's `server/discover` result, or that of `initialize` in the same form; `None` if neither was
    /// requested.
    #[must_use]
    pub fn server(&self) -> Option<&DiscoverResult> {
        self.inner.current_connection().server()
    }

    /// Returns the server's name and version (`serverInfo`), if the server sent them.
    #[must_use]
    pub fn server_info(&self) -> Option<Implementation> {
        self.server()?.meta.as_ref()?.server_info().ok().flatten()
    }

    /// Returns the capabilities of the server; `None` if they were not requested.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// let has_prompts = client.server_capabilities().is_some_and(|offered| offered.prompts.is_some());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn server_capabilities(&self) -> Option<&ServerCapabilities> {
        self.server().map(|server| &server.capabilities)
    }

    /// Returns the settings of an extension that the server declares in `server/discover`; `None` if it does not declare
    /// the extension, or its protocol version is before 2026-07-28.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// if let Some(settings) = client.server_extension("com.example/drawing") {
    ///     println!("the server can draw: {settings}");
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn server_extension(&self, id: &str) -> Option<Json> {
        let declared = self.server_capabilities()?.extensions.as_ref()?.get(id)?;
        let settings = Json::encode(declared).ok();
        settings.filter(|_| self.dialect().is_modern())
    }

    /// Returns the protocol version in use.
    #[must_use]
    pub fn dialect(&self) -> &'static Dialect {
        self.inner.current_connection().dialect()
    }

    /// Returns the peer at the other end of the wire, for example to read its statistics; `None` without a wire.
    #[must_use]
    pub fn peer(&self) -> Option<&Peer> {
        self.inner
            .current_connection()
            .wire()
            .map(|wire| &wire.peer)
    }

    /// Closes the connection. First it waits until the server has answered what dropped calls have sent to cancel their
    /// work, for at most four seconds: posted cancels of HTTP until 2025-11-25, and
    /// [detached requests](Self::request_detached), such as those that cancel tasks. Then it sends what is queued, for at
    /// most a second, and closes the wire. Without a wire, new requests fail with [`Error::Closed`] and those in flight
    /// may complete.
    ///
    /// Await tasks that were aborted first, such as by `JoinSet::shutdown`: a call that is dropped after this has looked is
    /// not cancelled at the server if it is a task.
    ///
    /// A server that was started by [`Client::spawn`] is terminated, and has been reaped when this returns.
    ///
    /// # Errors
    ///
    /// None at present.
    ///
    /// # Cancel safety
    ///
    /// Safe: the connection is closed even if the future is dropped.
    pub async fn close(self) -> Result<()> {
        self.inner.closed.raise();
        let connection = CloseOnDrop(self.inner.current_connection());
        self.inner.detached.close().await;
        connection.0.close().await;
        Ok(())
    }

    fn caller(&self) -> Arc<Caller> {
        self.inner.current_connection().caller()
    }

    /// Sets the log level that is sent with every request.
    fn set_default_log_level(&self, level: LoggingLevel) {
        self.inner.current_connection().set_log_level(level);
    }

    fn open(&self, request: Request, options: CallOptions, cache_mode: CacheMode) -> Exchange {
        let cache_policy = &self.inner.notifications.cache_policy;
        cache_policy.open(
            self.inner.current_connection(),
            request,
            options,
            cache_mode,
        )
    }

    /// Delivers a notification that belongs to an exchange, unless the driver of a wire has delivered it already.
    fn deliver_from_exchange(&self, notification: &Notification) {
        if self.inner.current_connection().wire().is_none() {
            self.inner.notifications.deliver(notification);
        }
    }

    /// Returns the current trace from [`ClientBuilder::trace`].
    fn trace(&self) -> Option<TraceContext> {
        self.inner.config.trace.as_ref().and_then(|trace| trace())
    }

    fn mint_token(&self) -> ProgressToken {
        ProgressToken::Number(self.inner.last_token.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("caller", &self.caller())
            .finish_non_exhaustive()
    }
}

/// Encodes params or arguments as a JSON object; `()` and `None` become the empty object.
fn encode_object(value: &impl Serialize) -> Result<Json> {
    let json = Json::encode(value)
        .map_err(|error| Error::misuse(format!("failed to serialize arguments: {error}")))?;
    if json.is_null() {
        Ok(Json::empty_object())
    } else if json.is_object() {
        Ok(json)
    } else {
        Err(Error::misuse("arguments must serialize to a JSON object"))
    }
}
