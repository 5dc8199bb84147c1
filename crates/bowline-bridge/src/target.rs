//! [`Target`]: how a bridge connects to a server.

use std::fmt;
use std::sync::{Arc, OnceLock};

use bowline::client::{ClientBuilder, ReadBudget};
use bowline::exchange::Principal;
use bowline::http::RedactedUrl;
use bowline::telemetry::Telemetry;
use bowline::wire::Command;
use bowline::{Client, Error, Result};

use crate::client_token::TokenCell;

/// How a bridge connects to a server. It connects once or more often: see [`Bridge`](crate::Bridge).
///
/// # Examples
///
/// ```
/// use bowline::wire::Command;
/// use bowline_bridge::Target;
///
/// let files = Target::command("files", || Command::new("npx").args(["-y", "files-server"]));
/// let search = Target::http("https://search.example/mcp");
/// assert_eq!(search.name(), "https://search.example/mcp");
///
/// let search = Target::http("https://search.example/mcp?apiKey=s3cret");
/// assert_eq!(search.name(), "https://search.example/mcp?apiKey=…");
/// ```
#[derive(Clone)]
#[must_use = "a target does nothing unless a bridge is created from it"]
pub struct Target {
    name: Arc<str>,
    connect: Arc<ConnectFn>,
    is_stateful: bool,
    is_per_principal: bool,
    needs_token: bool,
}

type ConnectFn = dyn Fn(&FrontClient) -> Result<ClientBuilder> + Send + Sync;

/// The client on whose behalf a bridge connects.
#[derive(Clone)]
pub(crate) struct FrontClient {
    pub(crate) principal: Principal,
    /// The tokens that it presents, if the target needs them.
    pub(crate) tokens: Option<Arc<TokenCell>>,
    /// What clients that share a connection have in common, if connections are not shared by all.
    pub(crate) key: Option<Arc<str>>,
    /// Whether connections are shared with clients on other connections. Decided once for a request, because it decides
    /// about the other members.
    pub(crate) is_shared: bool,
}

impl Target {
    /// Creates a target from a function that returns the builder of a client. The bridge sets its capabilities and its
    /// host, and connects.
    pub fn new(
        name: impl Into<Arc<str>>,
        connect: impl Fn(&Principal) -> Result<ClientBuilder> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            connect: Arc::new(move |client| connect(&client.principal)),
            is_stateful: true,
            is_per_principal: false,
            needs_token: false,
        }
    }

    /// Creates a target whose connections are authorized with the tokens of a client.
    pub(crate) fn with_token(
        name: impl Into<Arc<str>>,
        connect: impl Fn(&Arc<TokenCell>) -> Result<ClientBuilder> + Send + Sync + 'static,
    ) -> Self {
        let connect = move |client: &FrontClient| match &client.tokens {
            Some(tokens) => connect(tokens),
            None => Err(Error::Misuse {
                what: "the client has no token".to_owned(),
            }),
        };
        Self {
            name: name.into(),
            connect: Arc::new(connect),
            is_stateful: true,
            is_per_principal: true,
            needs_token: true,
        }
    }

    /// Creates a target that starts a command and talks to it over stdin and stdout.
    pub fn command(
        name: impl Into<Arc<str>>,
        command: impl Fn() -> Command + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, move |_| Ok(Client::spawn(command())))
    }

    /// Creates a target that connects to a URL. Its name is the URL without secrets, as clients see it.
    pub fn http(url: impl Into<Arc<str>>) -> Self {
        let url = url.into();
        let name = RedactedUrl::new(&url).to_string();
        let target = Self::new(name, move |_| Ok(Client::connect(&url)));
        target.stateless()
    }

    /// Declares that a modern server behind this target keeps no state for a connection, so that one connection serves
    /// all clients. This is the default for URLs, and not for commands.
    pub fn stateless(mut self) -> Self {
        self.is_stateful = false;
        self
    }

    /// Declares that connections carry the credentials of a principal, so that no two principals share one.
    pub fn per_principal(mut self) -> Self {
        self.is_per_principal = true;
        self
    }

    /// Sets the name that errors and logs contain.
    pub fn named(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// Returns the name that errors and logs contain.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Uses this protocol version and no other. By default that is the newest that the server has, and for legacy clients
    /// the newest before 2026-07-28, if it has one: at 2026-07-28 many servers cannot ask their clients.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline_bridge::{Bridge, Target};
    ///
    /// let target = Target::http("https://search.example/mcp").protocol_version("2025-11-25");
    /// let bridge = Bridge::new(target);
    /// ```
    pub fn protocol_version(mut self, version: impl Into<String>) -> Self {
        let (connect, version) = (self.connect, version.into());
        self.connect = Arc::new(move |client| Ok(connect(client)?.protocol_version(&version)));
        self
    }

    /// Gives the connections the telemetry that is set when they are opened.
    pub(crate) fn with_telemetry(mut self, telemetry: Arc<OnceLock<Telemetry>>) -> Self {
        let connect = self.connect;
        self.connect = Arc::new(move |client| {
            let builder = connect(client)?;
            Ok(match telemetry.get() {
                Some(telemetry) => builder.telemetry(telemetry.clone()),
                None => builder,
            })
        });
        self
    }

    /// Limits the unfinished messages of all connections.
    pub(crate) fn with_read_budget(mut self, budget: ReadBudget) -> Self {
        let connect = self.connect;
        self.connect = Arc::new(move |client| Ok(connect(client)?.read_budget(&budget)));
        self
    }

    pub(crate) fn connect(&self, client: &FrontClient) -> Result<ClientBuilder> {
        (self.connect)(client)
    }

    /// Returns whether connections are authorized with the tokens of a client.
    pub(crate) fn needs_token(&self) -> bool {
        self.needs_token
    }

    /// Returns whether a modern server may still keep state for each connection.
    pub(crate) fn is_stateful(&self) -> bool {
        self.is_stateful
    }

    pub(crate) fn is_per_principal(&self) -> bool {
        self.is_per_principal
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
