//! How a client comes to be: where it connects, as whom, and speaking what.

use std::future::IntoFuture;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bowline_core::Outcome;
use bowline_core::era::{Caller, Dialect, Dialects, Request};
use bowline_core::mux::Limits;
use bowline_types::{ClientCapabilities, ErrorCode, Implementation, LoggingLevel, RpcError};

use super::habits::Habits;
use super::opening::Opening;
use super::{Client, Inner, OpenWire};
use crate::exchange::{BoxFuture, Channel, Context, InProcess, Responder};
use crate::peer::{Peer, Role};
use crate::wire::Wire;
use crate::{Error, Result};

/// A connection that is being made; await it.
///
/// # Cancel safety
///
/// Dropping it, or the future it becomes, closes the wire.
///
/// # Examples
///
/// ```
/// # async fn example(server: bowline::Server) -> bowline::Result<()> {
/// let client = bowline::Client::to(&server).named("editor", "2.1").speaking("2025-11-25").await?;
/// # Ok(()) }
/// ```
#[must_use = "a connection is made by awaiting it"]
pub struct Connect {
    target: Target,
    caller: Caller,
    speaking: Result<Dialects>,
    host: Arc<dyn Responder>,
    timeout: Duration,
    probe_timeout: Duration,
    pub(super) habits: Habits,
}

enum Target {
    InProcess(Arc<dyn Responder>),
    Wire(Box<dyn Wire>),
}

impl Connect {
    pub(super) fn to(responder: Arc<dyn Responder>) -> Self {
        Self::new(Target::InProcess(responder))
    }

    pub(super) fn over(wire: Box<dyn Wire>) -> Self {
        Self::new(Target::Wire(wire))
    }

    fn new(target: Target) -> Self {
        let mut caller = Caller::new(Dialect::LATEST);
        caller.implementation = Some(Implementation::new("bowline", env!("CARGO_PKG_VERSION")));
        Self {
            target,
            caller,
            speaking: Ok(Dialects::all()),
            host: Arc::new(NoHost),
            timeout: DEFAULT_TIMEOUT,
            probe_timeout: DEFAULT_PROBE_TIMEOUT,
            habits: Habits::default(),
        }
    }

    /// Says who is asking.
    pub fn named(mut self, name: impl Into<String>, version: impl Into<String>) -> Self {
        self.caller.implementation = Some(Implementation::new(name, version));
        self
    }

    /// Speaks this protocol version and no other.
    ///
    /// A version without a handshake is then spoken without asking the server what it speaks.
    pub fn speaking(mut self, version: &str) -> Self {
        self.speaking = match Dialect::of(version) {
            Some(chosen) => Ok(Dialects::only(|dialect| std::ptr::eq(dialect, chosen))),
            None => Err(Error::misuse(format!(
                "there is no protocol version `{version}`"
            ))),
        };
        self
    }

    /// Declares what this client can do when the server asks.
    pub fn capabilities(mut self, capabilities: ClientCapabilities) -> Self {
        self.caller.capabilities = capabilities;
        self
    }

    /// Asks for log messages of at least this severity with every request.
    pub fn log_level(mut self, level: LoggingLevel) -> Self {
        self.caller.log_level = Some(level);
        self
    }

    /// Has the server's questions answered by `host`.
    pub fn host(mut self, host: impl Responder) -> Self {
        self.host = Arc::new(host);
        self
    }

    /// How long a request may take while nothing is heard of it, unless it says otherwise. 60 s by
    /// default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long to wait for an answer that tells what the server speaks. 5 s by default.
    pub fn probe_timeout(mut self, timeout: Duration) -> Self {
        self.probe_timeout = timeout;
        self
    }

    async fn connect(self) -> Result<Client> {
        let Self {
            target,
            caller,
            speaking,
            host,
            timeout,
            probe_timeout,
            habits,
        } = self;
        let hearing = habits.hearing();
        let server_caller = Arc::new(OnceLock::new());
        let (channel, wire): (Arc<dyn Channel>, _) = match target {
            Target::InProcess(responder) => {
                let way_back = Arc::new(InProcess::new(host.clone()));
                (
                    Arc::new(InProcess::new(responder).with_way_back(way_back)),
                    None,
                )
            }
            Target::Wire(wire) => {
                let role = Role::Client {
                    server: server_caller.clone(),
                    host: host.clone(),
                };
                let (peer, driver) = Peer::new(wire, role, Limits::default());
                let tap = hearing.clone();
                peer.notices()
                    .tap(Box::new(move |notification| tap.hear(notification)));
                // Owned by the connection: it ends when `OpenWire` is dropped.
                tokio::spawn(driver);
                (Arc::new(peer.clone()), Some(OpenWire(peer)))
            }
        };
        let peer = wire.as_ref().map(|wire| &wire.0);
        let opening = Opening {
            channel: &*channel,
            peer,
            speaking: speaking?,
            timeout,
            probe_timeout,
        };
        let (caller, server) = opening.open(caller, habits.remembered).await?;
        // Set once, here; a server that asks earlier is answered as an unknown one.
        let _ = server_caller.set(Arc::new(Caller::new(caller.dialect)));
        let (level, dialect) = (caller.log_level, caller.dialect);
        let inner = Inner {
            channel,
            dialect,
            caller: Mutex::new(Arc::new(caller)),
            hearing,
            checks_capabilities: habits.checks_capabilities,
            host,
            server,
            timeout,
            last_token: AtomicI64::new(0),
            wire,
        };
        let client = Client {
            inner: Arc::new(inner),
        };
        if let Some(level) = level
            && let Err(error) = client.set_log_level(level).await
        {
            tracing::debug!(%error, "the server does not let its log level be set");
        }
        Ok(client)
    }
}

impl IntoFuture for Connect {
    type Output = Result<Client>;
    type IntoFuture = BoxFuture<'static, Result<Client>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.connect())
    }
}

impl std::fmt::Debug for Connect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connect")
            .field("caller", &self.caller)
            .field("speaking", &self.speaking)
            .finish_non_exhaustive()
    }
}

/// A host that answers nothing.
struct NoHost;

impl Responder for NoHost {
    fn respond<'a>(&'a self, request: Request, _: Context) -> BoxFuture<'a, Outcome> {
        let why = format!("this client has no host to answer `{}`", request.method);
        Box::pin(async { Err(RpcError::new(ErrorCode::METHOD_NOT_FOUND, why)) })
    }
}

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
const DEFAULT_PROBE_TIMEOUT: Duration = Duration::from_secs(5);
