//! How a client comes to be: where it connects, as whom, and speaking what.

use std::future::IntoFuture;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bowline_core::Outcome;
use bowline_core::era::{Caller, Dialect, Dialects, Request};
use bowline_types::{ClientCapabilities, ErrorCode, Implementation, LoggingLevel, RpcError};

use super::link::{Answering, Link, Target};
use super::opening::{Opened, Opening};
use super::{Client, Inner};
use crate::exchange::{BoxFuture, Context, Responder};
use crate::wire::{Command, Wire};
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
}

impl Connect {
    pub(super) fn to(responder: Arc<dyn Responder>) -> Self {
        Self::new(Target::InProcess(responder))
    }

    pub(super) fn over(wire: Box<dyn Wire>) -> Self {
        Self::new(Target::Wire(wire))
    }

    pub(super) fn child(command: Command) -> Self {
        Self::new(Target::Child(Box::new(command)))
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
        } = self;
        let speaking = speaking?;
        let server = Arc::new(OnceLock::new());
        let answering = Answering {
            host: host.clone(),
            server: server.clone(),
        };
        let (mut link, command) = target.link(answering.clone())?;
        let opening = Opening {
            link: &link,
            speaking: &speaking,
            timeout,
            probe_timeout,
        };
        let opened = opening.open(caller, command.is_some()).await?;
        let (caller, introduction) = match (opened, command) {
            (Opened::Open(caller, introduction), _) => (caller, introduction),
            (Opened::Gone(caller, offered), Some(mut command)) => {
                // What is left of the first child is ended while the second starts.
                link = Link::spawn(&mut command, answering)?;
                let opening = Opening {
                    link: &link,
                    speaking: &speaking,
                    timeout,
                    probe_timeout,
                };
                opening.shake_hands(caller, offered).await?
            }
            (Opened::Gone(..), None) => return Err(Error::Closed),
        };
        // Set once, here; a server that asks earlier is answered as an unknown one.
        let _ = server.set(Arc::new(Caller::new(caller.dialect)));
        let (caller, last_token) = (Arc::new(caller), AtomicI64::new(0));
        let inner = Inner {
            channel: link.channel,
            caller,
            host,
            server: introduction,
            timeout,
            last_token,
            wire: link.wire,
        };
        Ok(Client {
            inner: Arc::new(inner),
        })
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
