//! Clients: what an application holds to reach a server.

mod connect;
pub use connect::Connect;

mod habits;

mod host;
pub use host::Host;

#[cfg(feature = "http-client")]
mod http;
#[cfg(feature = "http-client")]
mod over_http;
#[cfg(not(feature = "http-client"))]
#[path = "over_http_off.rs"]
mod over_http;

mod link;

mod gate;
use gate::Gate;

mod opening;

mod restart;

mod verdict;
pub use verdict::Verdict;

#[cfg(feature = "http-client")]
mod verdicts;
#[cfg(feature = "http-client")]
pub use verdicts::Verdicts;

mod draft;
pub use draft::{Draft, OneRequest};

mod acts;
pub use acts::{CallTool, Complete, Ping, Raw, SetLogLevel, Typed};

mod lists;
pub use lists::{Items, List, Listed};

mod call;
pub use call::{Call, Reply};

mod asking;

mod offers;

mod outputs;
pub use outputs::OutputCheck;

#[cfg(feature = "validate")]
mod schema;
#[cfg(not(feature = "validate"))]
#[path = "schema_off.rs"]
mod schema;

mod remembered_version;

mod cache;
pub use cache::{Cache, CacheEntry, CacheKey, MemoryCache, Owner};

mod caching;

mod changes;
pub use changes::{Change, Changes};

mod subscription;
pub use subscription::{Ended, Subscribe, Subscription};

mod watch;
pub use watch::Watch;

mod hearing;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bowline_core::Notification;
use bowline_core::era::{Caller, Dialect, Request};
use bowline_core::mux::CallOptions;
use bowline_types::{
    DiscoverResult, Implementation, Json, LoggingLevel, Notice, ProgressToken,
    RootsListChangedNotification, ServerCapabilities, SubscriptionFilter,
};
use serde::Serialize;

use crate::exchange::{Exchange, Responder, TraceContext};
use crate::peer::Peer;
use crate::wire::{Command, Wire};
use crate::{Error, Result};
use caching::Freshness;
use habits::TraceSource;
use hearing::Hearing;
use link::{Link, OpenWire, Reached};
use remembered_version::RememberedVersion;

/// A connection to a server. Cheap to clone; the connection ends with its last clone.
///
/// # Examples
///
/// Losing a race cancels the call, and the server stops working on it:
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
    inner: Arc<Inner>,
}

struct Inner {
    /// The connection as it was made.
    first: Current,
    /// Set while `first` relies on a remembered version.
    remembered: Option<RememberedVersion>,
    hearing: Arc<Hearing>,
    checks_capabilities: bool,
    trace: Option<TraceSource>,
    host: Arc<dyn Responder>,
    timeout: Duration,
    most_rounds: u32,
    last_token: AtomicI64,
    /// How to connect once more to a server that can be started again.
    again: Option<Mutex<Box<Connect>>>,
}

/// A link and the protocol version spoken over it.
struct Current {
    channel: Gate,
    link: Link,
    dialect: &'static Dialect,
    /// Who is asking, with the log level as it was last set.
    caller: Mutex<Arc<Caller>>,
    server: Option<DiscoverResult>,
}

impl Current {
    fn new(reached: Reached) -> Self {
        let Reached {
            link,
            caller,
            server,
            ..
        } = reached;
        Self {
            channel: Gate::new(link.channel.clone()),
            link,
            dialect: caller.dialect,
            caller: Mutex::new(Arc::new(caller)),
            server,
        }
    }
}

impl Inner {
    fn now(&self) -> &Current {
        let corrected = self
            .remembered
            .as_ref()
            .and_then(RememberedVersion::corrected);
        corrected.unwrap_or(&self.first)
    }

    /// The wire, if there is one. Correcting the version of a duplex connection keeps its wire.
    fn wire(&self) -> Option<&OpenWire> {
        let now = self.now().link.wire.as_ref();
        now.or(self.first.link.wire.as_ref())
    }
}

impl Client {
    /// Connects to a server, or anything else that answers requests, in the same process.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(server: bowline::Server) -> bowline::Result<()> {
    /// let client = bowline::Client::to(&server).await?;
    /// # Ok(()) }
    /// ```
    pub fn to<R: Responder + Clone>(server: &R) -> Connect {
        Connect::to(Arc::new(server.clone()))
    }

    /// Connects over a wire.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(server: bowline::Server) -> bowline::Result<()> {
    /// let (near, far) = bowline::wire::memory();
    /// tokio::spawn(server.serve(far));
    /// let client = bowline::Client::over(near).await?;
    /// # Ok(()) }
    /// ```
    pub fn over(wire: impl Wire) -> Connect {
        Connect::over(Box::new(wire))
    }

    /// Starts a server as a child process, without a shell, and connects to it.
    ///
    /// A child that exits fails every call with an error that shows what it exited with and what it last
    /// said on stderr. The child is ended with the connection, and never outlives it; [`Client::close`]
    /// returns when it was reaped. What it inherits and how it is ended is told at [`Command`].
    ///
    /// If the child exits while it is asked what it speaks, as some old servers do, it is started once
    /// more. Later it is started again only by [`Client::restart`].
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
    pub fn spawn(command: impl Into<Command>) -> Connect {
        Connect::child(command.into())
    }

    /// Asks to be told when something changes.
    ///
    /// In the legacy era this is made of `resources/subscribe` and what the server says unasked.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// use bowline::client::Changes;
    ///
    /// let mut changes = client.subscribe(Changes::new().resource("file:///notes.txt")).await?;
    /// while let Some(change) = changes.next().await? {
    ///     println!("{change:?}");
    /// }
    /// # Ok(()) }
    /// ```
    pub fn subscribe(&self, changes: impl Into<SubscriptionFilter>) -> Subscribe {
        Subscribe::new(self, changes.into())
    }

    /// Asks to be told when something changes, again and again if a subscription is lost.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// use bowline::client::{Change, Changes};
    ///
    /// let mut changes = client.watch(Changes::new().tools());
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

    /// Tells the server that the roots have changed, where its era has a word for it. Servers of later
    /// versions ask whenever they want the roots, so there is nothing to tell them.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] if the client did not declare that its roots change; see
    /// [`Host::roots_change`].
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(server: bowline::Server) -> bowline::Result<()> {
    /// use bowline::{Client, client::Host, types::Root};
    ///
    /// let host = Host::new()
    ///     .roots(async || vec![Root::new("file:///project")])
    ///     .roots_change();
    /// let client = Client::to(&server).host(host).await?;
    /// client.roots_changed()?;
    /// # Ok(()) }
    /// ```
    pub fn roots_changed(&self) -> Result<()> {
        let caller = self.caller();
        let roots = caller.capabilities.roots.as_ref();
        if roots.and_then(|roots| roots.list_changed) != Some(true) {
            return Err(Error::misuse(
                "this client did not declare that its roots change; `Host::roots_change` does",
            ));
        }
        let method = RootsListChangedNotification::NAME;
        if caller.dialect.knows_notification(method) {
            if let Some(peer) = self.peer() {
                peer.notify(Notification::new(method, None));
            }
            if let Some(responder) = &self.inner.first.link.responder {
                responder.roots_changed(&caller);
            }
        }
        Ok(())
    }

    /// Says whom the client acts for from now on: private results of others are not used any more.
    pub fn set_principal(&self, principal: impl Into<String>) {
        self.inner.hearing.caching.belong_to(principal.into());
    }

    /// What was found out about the server, for [`Connect::remembered`] the next time.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        Verdict::new(self.dialect(), self.server().cloned())
    }

    /// What the server said of itself, if it was asked.
    #[must_use]
    pub fn server(&self) -> Option<&DiscoverResult> {
        self.inner.now().server.as_ref()
    }

    /// What the server calls itself, if it told.
    #[must_use]
    pub fn server_implementation(&self) -> Option<Implementation> {
        self.server()?.meta.as_ref()?.server_info().ok().flatten()
    }

    /// What the server offers, as far as is known.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// let has_prompts = client.capabilities().is_some_and(|offered| offered.prompts.is_some());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn capabilities(&self) -> Option<&ServerCapabilities> {
        self.server().map(|server| &server.capabilities)
    }

    /// The protocol version that is spoken.
    #[must_use]
    pub fn dialect(&self) -> &'static Dialect {
        self.inner.now().dialect
    }

    /// The other end of the wire, if there is one: for counting what is going on.
    #[must_use]
    pub fn peer(&self) -> Option<&Peer> {
        self.inner.wire().map(|wire| &wire.peer)
    }

    /// Ends the connection in good order: what is queued is sent, then the wire is closed. Where there is no
    /// wire, no more requests are taken, and those that are under way may end.
    ///
    /// A wire that does not take what is queued within a second is closed all the same. A server that was
    /// started by [`Client::spawn`] is ended, and has been reaped when this returns.
    ///
    /// # Errors
    ///
    /// None on today's wires.
    ///
    /// # Cancel safety
    ///
    /// Safe: the connection closes even if nobody waits for it.
    pub async fn close(self) -> Result<()> {
        match self.inner.wire() {
            Some(wire) => wire.close().await,
            None => self.inner.now().channel.close(),
        }
        Ok(())
    }

    fn caller(&self) -> Arc<Caller> {
        let caller = self.inner.now().caller.lock();
        caller.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Wants log messages of at least this severity with every request.
    fn log_from(&self, level: LoggingLevel) {
        let caller = self.inner.now().caller.lock();
        let mut caller = caller.unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut caller).log_level = Some(level);
    }

    fn open(&self, request: Request, options: CallOptions, freshness: Freshness) -> Exchange {
        let (caching, channel) = (&self.inner.hearing.caching, &self.inner.now().channel);
        caching.open(channel, request, options, freshness)
    }

    /// Hears what came with an exchange, unless a wire's driver has heard it already.
    fn hear_within(&self, notification: &Notification) {
        if self.inner.wire().is_none() {
            self.inner.hearing.hear(notification);
        }
    }

    /// The trace that a request belongs to, if it is the client who knows.
    fn trace(&self) -> Option<TraceContext> {
        self.inner.trace.as_ref().and_then(|trace| trace())
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

/// Encodes params or arguments; what is nothing in Rust (`()`, `None`) is the empty object.
fn encode_object(value: &impl Serialize) -> Result<Json> {
    let json = Json::encode(value)
        .map_err(|error| Error::misuse(format!("the arguments have no JSON form: {error}")))?;
    if json.is_null() {
        Ok(Json::empty_object())
    } else if json.is_object() {
        Ok(json)
    } else {
        Err(Error::misuse("arguments and params are a JSON object"))
    }
}
