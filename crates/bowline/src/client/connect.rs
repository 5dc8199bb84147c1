//! How a client comes to be: where it connects, as whom, and speaking what.

use std::future::IntoFuture;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bowline_core::Outcome;
use bowline_core::era::{Caller, Dialect, Dialects, Request};
use bowline_core::mux::Limits;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};

use bowline_types::{ClientCapabilities, ErrorCode, Implementation, LoggingLevel, RpcError};

use super::http::{HttpOpening, Opened};
use super::opening::Opening;
use super::{Client, Inner, OpenWire};
use crate::exchange::{BoxFuture, Channel, Context, InProcess, Responder};
use crate::http::client::{Endpoint, HttpSend, HyperSend, ResponseLimits, parse_url};
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
    send: Option<Arc<dyn HttpSend>>,
    headers: HeaderMap,
    response_limits: ResponseLimits,
}

enum Target {
    InProcess(Arc<dyn Responder>),
    Wire(Box<dyn Wire>),
    Url(Result<Uri>),
}

impl Connect {
    pub(super) fn to(responder: Arc<dyn Responder>) -> Self {
        Self::new(Target::InProcess(responder))
    }

    pub(super) fn over(wire: Box<dyn Wire>) -> Self {
        Self::new(Target::Wire(wire))
    }

    pub(super) fn at(url: &str) -> Self {
        Self::new(Target::Url(parse_url(url)))
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
            send: None,
            headers: HeaderMap::new(),
            response_limits: ResponseLimits::default(),
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

    /// Sends HTTP requests through `send` instead of a connection pool of this client's own.
    pub fn http(mut self, send: impl HttpSend) -> Self {
        self.send = Some(Arc::new(send));
        self
    }

    /// Sends this header with every HTTP request.
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.append(name, value);
        self
    }

    /// Takes no more than this from an HTTP server.
    pub fn response_limits(mut self, limits: ResponseLimits) -> Self {
        self.response_limits = limits;
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
            send,
            headers,
            response_limits,
        } = self;
        let server_caller = Arc::new(OnceLock::new());
        let (channel, wire): (Arc<dyn Channel>, _) = match target {
            Target::InProcess(responder) => {
                let way_back = Arc::new(InProcess::new(host.clone()));
                (
                    Arc::new(InProcess::new(responder).with_way_back(way_back)),
                    None,
                )
            }
            Target::Url(uri) => {
                let send = match send {
                    Some(send) => send,
                    None => Arc::new(HyperSend::new()?),
                };
                let endpoint = Endpoint {
                    uri: uri?,
                    send,
                    headers,
                    limits: response_limits,
                };
                let (speaking, opening_host) = (speaking?, host.clone());
                let opening = HttpOpening {
                    endpoint,
                    host: opening_host,
                    speaking,
                    timeout,
                    probe_timeout,
                };
                let Opened {
                    channel,
                    caller,
                    server,
                    wire,
                } = opening.open(caller).await?;
                let (caller, last_token) = (Arc::new(caller), AtomicI64::new(0));
                let inner = Inner {
                    channel,
                    caller,
                    host,
                    server,
                    timeout,
                    last_token,
                    wire,
                };
                return Ok(Client {
                    inner: Arc::new(inner),
                });
            }
            Target::Wire(wire) => {
                let role = Role::Client {
                    server: server_caller.clone(),
                    host: host.clone(),
                };
                let (peer, driver) = Peer::new(wire, role, Limits::default());
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
        let (caller, server) = opening.open(caller).await?;
        // Set once, here; a server that asks earlier is answered as an unknown one.
        let _ = server_caller.set(Arc::new(Caller::new(caller.dialect)));
        let (caller, last_token) = (Arc::new(caller), AtomicI64::new(0));
        let inner = Inner {
            channel,
            caller,
            host,
            server,
            timeout,
            last_token,
            wire,
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
