//! How a client comes to be: where it connects, as whom, and speaking what.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline_core::Outcome;
use bowline_core::era::{Caller, Dialect, Dialects, Request};
use bowline_core::input::DEFAULT_ROUND_CAP;
use bowline_types::{
    ClientCapabilities, CreateMessageRequest, ErrorCode, Implementation, ListRootsRequest,
    LoggingLevel, LoggingMessageNotification, Method, Notice, RpcError, check_extension_id,
};

use super::habits::Habits;
use super::hearing::Hearing;
use super::link::{Answering, End, Link, Reached, Start};
use super::opening::{Opened, Opening, Terms};
use super::over_http::OverHttp;
use super::remembered_version::{RememberedVersion, Reprobe};
use super::{Client, Current, Inner};
use crate::exchange::{BoxFuture, Context, Responder};
use crate::wire::{Command, Wire};
use crate::{Error, Result, deprecation};

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
    /// `None` if it is reached over HTTP.
    end: Option<End>,
    caller: Caller,
    speaking: Result<Dialects>,
    host: Arc<dyn Responder>,
    timeout: Duration,
    probe_timeout: Duration,
    respawn_after: Duration,
    most_rounds: u32,
    pub(super) over_http: OverHttp,
    pub(super) habits: Habits,
}

impl Connect {
    pub(super) fn to(responder: Arc<dyn Responder>) -> Self {
        Self::new(Some(End::InProcess(responder)))
    }

    pub(super) fn over(wire: Box<dyn Wire>) -> Self {
        Self::new(Some(End::Wire(wire)))
    }

    pub(super) fn child(command: Command) -> Self {
        Self::new(Some(End::Child(Start::by(command))))
    }

    pub(super) fn new(end: Option<End>) -> Self {
        let mut caller = Caller::new(Dialect::LATEST);
        caller.implementation = Some(Implementation::new("bowline", env!("CARGO_PKG_VERSION")));
        Self {
            end,
            caller,
            speaking: Ok(Dialects::all()),
            host: Arc::new(NoHost),
            timeout: DEFAULT_TIMEOUT,
            probe_timeout: DEFAULT_PROBE_TIMEOUT,
            respawn_after: DEFAULT_RESPAWN_AFTER,
            most_rounds: DEFAULT_ROUND_CAP,
            over_http: OverHttp::default(),
            habits: Habits::default(),
        }
    }

    /// Says who is asking.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(server: bowline::Server) -> bowline::Result<()> {
    /// let client = bowline::Client::to(&server).named("editor", "2.1").await?;
    /// # Ok(()) }
    /// ```
    pub fn named(mut self, name: impl Into<String>, version: impl Into<String>) -> Self {
        self.caller.implementation = Some(Implementation::new(name, version));
        self
    }

    /// Speaks this protocol version and no other.
    ///
    /// For a version without a handshake no probe is sent, except to a child process: a legacy server might execute the first modern
    /// request before it turns out to be legacy.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(server: bowline::Server) -> bowline::Result<()> {
    /// let client = bowline::Client::to(&server).speaking("2025-11-25").await?;
    /// assert_eq!(client.dialect().version, "2025-11-25");
    /// # Ok(()) }
    /// ```
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

    /// Has the server's questions answered by `host`, such as a [`Host`](super::Host), and declares what
    /// it answers.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(server: bowline::Server) -> bowline::Result<()> {
    /// use bowline::{Client, client::Host, types::Root};
    ///
    /// let host = Host::new().roots(async || vec![Root::new("file:///project")]);
    /// let client = Client::to(&server).host(host).await?;
    /// # Ok(()) }
    /// ```
    pub fn host(mut self, host: impl Responder) -> Self {
        self.host = Arc::new(host);
        self
    }

    /// How long a request may take while nothing is heard of it, unless it says otherwise. 60 s by
    /// default.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(server: bowline::Server) -> bowline::Result<()> {
    /// let patient = bowline::Client::to(&server).timeout(std::time::Duration::from_secs(600)).await?;
    /// # Ok(()) }
    /// ```
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long to wait for an answer that tells what the server speaks. 5 s by default.
    pub fn probe_timeout(mut self, timeout: Duration) -> Self {
        self.probe_timeout = timeout;
        self
    }

    /// Sets how long a child process that did not answer the probe has to answer `initialize`. After that, or if it
    /// exits, it is ended and started once more, and `initialize` is the first thing that it is sent. 10 s by default;
    /// [`Duration::MAX`] means never.
    ///
    /// Some older servers answer nothing at all after a request that comes before `initialize`. A program that takes
    /// longer to start than both times together, because it is downloaded first for example, would be started twice:
    /// give it more time, or say what it [speaks](Self::speaking).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> bowline::Result<()> {
    /// use std::time::Duration;
    /// use bowline::{Client, wire::Command};
    ///
    /// let command = Command::new("npx").args(["-y", "some-server"]);
    /// let client = Client::spawn(command).respawn_after(Duration::from_secs(60)).await?;
    /// # Ok(()) }
    /// ```
    pub fn respawn_after(mut self, after: Duration) -> Self {
        self.respawn_after = after;
        self
    }

    /// How often a server may ask for input before one request is given up. 10 times by default.
    pub fn most_rounds(mut self, rounds: u32) -> Self {
        self.most_rounds = rounds;
        self
    }

    /// The same once more, if what it connects to can be started again.
    pub(super) fn again(&self) -> Option<Self> {
        let (Some(End::Child(start)), Ok(speaking)) = (&self.end, &self.speaking) else {
            return None;
        };
        Some(Self {
            end: Some(End::Child(start.clone())),
            caller: self.caller.clone(),
            speaking: Ok(speaking.clone()),
            host: self.host.clone(),
            timeout: self.timeout,
            probe_timeout: self.probe_timeout,
            respawn_after: self.respawn_after,
            most_rounds: self.most_rounds,
            over_http: OverHttp::default(),
            habits: self.habits.clone(),
        })
    }

    async fn connect(self) -> Result<Client> {
        let (url, identity) = (self.over_http.url_text(), self.over_http.identity());
        let hearing = self.habits.hearing(url, identity);
        self.connect_hearing(hearing).await
    }

    /// Connects a client that hears what the server says through `hearing`.
    pub(super) async fn connect_hearing(mut self, hearing: Arc<Hearing>) -> Result<Client> {
        declare(&mut self.caller.capabilities, self.host.answers());
        check_extensions(&self.caller.capabilities)?;
        let (timeout, most_rounds) = (self.timeout, self.most_rounds);
        let host = self.host.clone();
        let checks_capabilities = self.habits.checks_capabilities;
        let trace = self.habits.trace.clone();
        let again = self.again().map(|again| Mutex::new(Box::new(again)));
        let mut reached = self.reach(hearing.clone()).await?;
        warn_of_deprecated(&reached.caller);
        let inner = Inner {
            remembered: reached.reprobe.take().map(RememberedVersion::new),
            first: Current::new(reached),
            hearing,
            checks_capabilities,
            trace,
            host,
            timeout,
            most_rounds,
            last_token: AtomicI64::new(0),
            again,
        };
        let client = Client {
            inner: Arc::new(inner),
        };
        client.ask_for_logs().await;
        Ok(client)
    }

    async fn reach(self, hearing: Arc<Hearing>) -> Result<Reached> {
        let terms = Terms {
            host: self.host,
            hearing,
            speaking: self.speaking?,
            timeout: self.timeout,
            probe_timeout: self.probe_timeout,
            respawn_after: self.respawn_after,
            remembered: self.habits.remembered,
        };
        let Some(end) = self.end else {
            return self.over_http.reach(terms, self.caller).await;
        };
        let answering = Answering::by(terms.host.clone(), terms.hearing.clone());
        let is_remembered = terms.remembered.is_some();
        let mut reached = reach(end, answering.clone(), self.caller, &terms.opening()).await?;
        if is_remembered && reached.caller.dialect.is_modern() {
            reached.reprobe = Some(Box::new(ProbeOverLink { terms, answering }));
        } else {
            answering.server_is(&reached.caller);
        }
        Ok(reached)
    }
}

/// Probes again over the existing link.
struct ProbeOverLink {
    terms: Terms,
    answering: Answering,
}

impl Reprobe for ProbeOverLink {
    fn probe<'a>(&'a self, link: &'a Link, caller: Caller) -> BoxFuture<'a, Result<Reached>> {
        Box::pin(async move {
            let opening = Opening {
                remembered: None,
                ..self.terms.opening()
            };
            match opening.probe_again(link, caller).await? {
                Opened::Open(caller, server) => {
                    self.answering.server_is(&caller);
                    Ok(Reached {
                        link: link.over_the_same(),
                        caller,
                        server,
                        reprobe: None,
                    })
                }
                Opened::Respawn(..) => Err(Error::Closed),
            }
        })
    }

    fn confirm(&self, caller: &Caller) {
        self.answering.server_is(caller);
    }
}

/// Connects to `end`, and a second time if it is a child that the probe has broken.
async fn reach(
    end: End,
    answering: Answering,
    caller: Caller,
    opening: &Opening<'_>,
) -> Result<Reached> {
    let (mut link, start) = end.link(answering.clone())?;
    let opened = opening.open(&link, caller, start.is_some()).await?;
    let (caller, server) = match (opened, start) {
        (Opened::Open(caller, server), _) => (caller, server),
        (Opened::Respawn(caller, offered), Some(start)) => {
            tracing::debug!("starting the server again: it does not respond after the probe");
            // Ended first: it may hold what the next one needs, a lock for example.
            if let Some(wire) = &link.wire {
                wire.close().await;
            }
            link = start.link(answering.clone())?;
            opening.shake_hands(&link, caller, offered).await?
        }
        (Opened::Respawn(..), None) => return Err(Error::Closed),
    };
    Ok(Reached {
        link,
        caller,
        server,
        reprobe: None,
    })
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

/// Adds what the host answers to what the client is told to declare.
fn declare(declared: &mut ClientCapabilities, answers: ClientCapabilities) {
    declared.elicitation = declared.elicitation.take().or(answers.elicitation);
    declared.sampling = declared.sampling.take().or(answers.sampling);
    declared.roots = declared.roots.take().or(answers.roots);
}

/// Warns of the deprecated features that the client offers.
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
            deprecation::warn_of(method, caller.dialect);
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

/// A host that answers nothing.
struct NoHost;

impl Responder for NoHost {
    fn respond<'a>(&'a self, request: Request, _: Context) -> BoxFuture<'a, Outcome> {
        let why = format!("this client has no host to answer `{}`", request.method);
        Box::pin(async { Err(RpcError::new(ErrorCode::METHOD_NOT_FOUND, why)) })
    }

    fn roots_changed(&self, _: &Caller) {}
}

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
const DEFAULT_PROBE_TIMEOUT: Duration = Duration::from_secs(5);
const DEFAULT_RESPAWN_AFTER: Duration = Duration::from_secs(10);
