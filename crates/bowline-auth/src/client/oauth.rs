//! What an application says once, and hands over: how it is known, who asks people, where tokens are kept.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bowline::exchange::BoxFuture;
use bowline::http::client::{Authorizer, Challenge, HttpSend, Refusal};
use http::{request, response};
use url::Url;

use super::application::{
    Application, ChooseIssuer, Grant, IdentityProvider, RegisteredClient, check_metadata_url,
};
use super::fetch::Fetch;
use super::guard::Guard;
use super::runtime::{PendingAuthorization, Runtime};
use super::store::{MemoryStore, TokenStore};
use super::user_agent::{AppError, UserAgent};
use super::{Error, Result, Secret, SigningKey};

/// Gets tokens for one server, and shows them to nobody else.
///
/// Without further words it is a client that has a person agree; [`client_credentials`](Self::client_credentials),
/// [`workload`](Self::workload) and [`enterprise`](Self::enterprise) are for clients that need nobody.
///
/// Authorization servers learn who the client is in the order of the specification: by what
/// [`client`](Self::client) says, by the document at [`client_metadata`](Self::client_metadata), by a
/// registration from before, or by a new one. What one of them gave is never shown to another.
///
/// # Cancel safety
///
/// Calls that are refused at the same time wait for one person's decision, and dropping the last of them ends it.
/// Renewing a token is finished in any case: the old one may be used up.
///
/// # Examples
///
/// A service that has its own right to use a server:
///
/// ```
/// use bowline_auth::client::{OAuth, RegisteredClient};
///
/// let client = RegisteredClient::new("https://login.example.com", "nightly-report").secret("from the vault");
/// let oauth = OAuth::new("https://example.com/mcp").client(client).client_credentials();
/// ```
#[must_use = "it is for `Connect::authorizer`"]
pub struct OAuth {
    config: Config,
    runtime: OnceLock<Result<Arc<Runtime>, Arc<Error>>>,
}

/// What an application says.
#[derive(Clone)]
pub(crate) struct Config {
    server: String,
    allows_private: bool,
    send: Option<Arc<dyn HttpSend>>,
    pub(crate) application: Application,
    pub(crate) user_agent: Option<Arc<dyn UserAgent>>,
    pub(crate) assertions: Option<Assertions>,
    pub(crate) store: Arc<dyn TokenStore>,
    pub(crate) patience: Duration,
    /// Whose tokens these are, where a store has those of several people.
    account: Option<String>,
    allows_plain_http: bool,
    pub(crate) max_prompts: usize,
    pub(crate) prompts_within: Duration,
}

/// Gets an assertion about the client for the issuer with this name.
pub(crate) type Assertions =
    Arc<dyn Fn(String) -> BoxFuture<'static, Result<Secret, AppError>> + Send + Sync>;

impl OAuth {
    /// Gets tokens for the server at this URL: the one that the client connects to.
    pub fn new(server: impl Into<String>) -> Self {
        let application = Application::new("MCP client");
        Self {
            config: Config {
                server: server.into(),
                allows_private: false,
                send: None,
                application,
                user_agent: None,
                assertions: None,
                store: Arc::new(MemoryStore::new()),
                patience: DEFAULT_PATIENCE,
                account: None,
                allows_plain_http: false,
                max_prompts: DEFAULT_PROMPTS,
                prompts_within: DEFAULT_PROMPTS_WITHIN,
            },
            runtime: OnceLock::new(),
        }
    }

    /// What people are told that the application is called.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.config.application.name = name.into();
        self
    }

    /// Takes people to the authorization server and back.
    pub fn user_agent(mut self, user_agent: impl UserAgent) -> Self {
        self.config.user_agent = Some(Arc::new(user_agent));
        self
    }

    /// Who the application is to an authorization server that knows it already.
    pub fn client(mut self, client: RegisteredClient) -> Self {
        self.config.application.client = Some(client);
        self
    }

    /// Where the application publishes what it is (a client ID metadata document). Authorization servers that
    /// understand this need no registration.
    pub fn client_metadata(mut self, url: impl Into<String>) -> Self {
        self.config.application.metadata_url = Some(url.into());
        self
    }

    /// Signs for the client whose metadata [`client_metadata`](Self::client_metadata) publishes (`private_key_jwt`).
    /// The document has the public key, under `jwks` or `jwks_uri`, and `token_endpoint_auth_method`.
    pub fn client_metadata_key(mut self, key: SigningKey) -> Self {
        self.config.application.metadata_key = Some(Arc::new(key));
        self
    }

    /// Asks for these scopes, in the place of all that the server publishes. What a server says that a request needs
    /// is asked for besides.
    pub fn scopes<S: Into<String>>(mut self, scopes: impl IntoIterator<Item = S>) -> Self {
        let scopes = scopes.into_iter().map(Into::into).collect();
        self.config.application.scopes.wanted = Some(scopes);
        self
    }

    /// Asks for these scopes at most, whatever a server says that it needs. A request that needs more fails with
    /// [`Error::StillNotEnough`].
    pub fn max_scopes<S: Into<String>>(mut self, scopes: impl IntoIterator<Item = S>) -> Self {
        let scopes = scopes.into_iter().map(Into::into).collect();
        self.config.application.scopes.at_most = Some(scopes);
        self
    }

    /// Adds a parameter to the address that a person is sent to, such as `login_hint` or an issuer's own `audience`.
    /// Those that this crate sets itself are refused when a token is asked for.
    pub fn authorization_param(
        mut self,
        name: impl Into<String>,
        value: impl Into<String>,
    ) -> Self {
        let params = &mut self.config.application.authorization_params;
        params.push((name.into(), value.into()));
        self
    }

    /// Chooses among the authorization servers that the MCP server names. Without it, that is the one that has given
    /// out the token so far, or else the first.
    ///
    /// `choose` is given their issuers, and returns one of them, or `None` to trust none.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline_auth::client::OAuth;
    ///
    /// let oauth = OAuth::new("https://example.com/mcp")
    ///     .choose_issuer(|issuers| issuers.iter().find(|it| it.ends_with(".example.com")).cloned());
    /// ```
    pub fn choose_issuer(
        mut self,
        choose: impl Fn(&[String]) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.config.application.choose_issuer = Some(ChooseIssuer(Arc::new(choose)));
        self
    }

    /// Registers at `issuer` with an initial access token (RFC 7591), which no other issuer sees.
    pub fn initial_access_token(mut self, issuer: impl Into<String>, token: Secret) -> Self {
        self.config.application.initial_access_token = Some((issuer.into(), token));
        self
    }

    /// Treats a server that publishes no metadata as its own authorization server, with endpoints at fixed paths and
    /// PKCE. Servers of 2025-03-26 may be like that, and only that revision asks for it; since 2025-06-18 servers have
    /// to publish metadata, and a client that goes on without them can be had to send its secrets anywhere on the host.
    pub fn fall_back_without_metadata(mut self) -> Self {
        self.config.application.falls_back = true;
        self
    }

    /// Uses the client credentials grant: the client itself has the right, and no person is asked.
    ///
    /// Needs a [`client`](Self::client), whose credentials go to its issuer only.
    pub fn client_credentials(mut self) -> Self {
        self.config.application.grant = Grant::ClientCredentials;
        self
    }

    /// Uses the JWT bearer grant: whatever runs this program vouches for it, by a JWT that `assertion` returns.
    ///
    /// `assertion` is given the issuer of the authorization server that the JWT is sent to, which belongs into
    /// its audience: that of the [`client`](Self::client), which is needed. It is called once for each token, and
    /// not at all if the MCP server names another issuer.
    pub fn workload<F, Fut>(mut self, assertion: F) -> Self
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Secret, AppError>> + Send + 'static,
    {
        self.config.application.grant = Grant::Assertion;
        self.config.assertions = Some(Arc::new(move |issuer| Box::pin(assertion(issuer))));
        self
    }

    /// Has a company's identity provider vouch for a person, by the ID token that `id_token` returns.
    ///
    /// `id_token` is given the issuer of the identity provider, the only one that sees the ID token. What the
    /// provider returns is sent to the issuer of the [`client`](Self::client), which is needed.
    pub fn enterprise<F, Fut>(mut self, provider: IdentityProvider, id_token: F) -> Self
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Secret, AppError>> + Send + 'static,
    {
        self.config.application.grant = Grant::Enterprise(provider);
        self.config.assertions = Some(Arc::new(move |issuer| Box::pin(id_token(issuer))));
        self
    }

    /// Keeps credentials there. In memory by default, so that they are forgotten at the end.
    pub fn store(mut self, store: impl TokenStore) -> Self {
        self.config.store = Arc::new(store);
        self
    }

    /// Keeps credentials under the name of an account, for programs that use one server on behalf of several people
    /// and keep their tokens in one store. Make one `OAuth` for each of them, with a store in an `Arc`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use bowline_auth::client::{MemoryStore, OAuth};
    ///
    /// let store = Arc::new(MemoryStore::new());
    /// let url = "https://example.com/mcp";
    /// let ada = OAuth::new(url).store(store.clone()).account("ada");
    /// let bob = OAuth::new(url).store(store).account("bob");
    /// ```
    pub fn account(mut self, account: impl Into<String>) -> Self {
        self.config.account = Some(account.into());
        self
    }

    /// Limits how often calls may have a person asked within a time; ten times within ten minutes by default. A
    /// call that would ask once more fails with [`Error::TooManyPrompts`].
    ///
    /// What a person has denied is not asked for again by any call. [`authorize`](Self::authorize) asks
    /// nevertheless, and begins anew.
    pub fn max_prompts(mut self, max: usize, within: Duration) -> Self {
        self.config.max_prompts = max;
        self.config.prompts_within = within;
        self
    }

    /// Allows to send tokens over plain `http://` to a server that is not on this machine. Everybody on the way can
    /// read them: this is for networks that are protected otherwise.
    pub fn allow_plain_http(mut self) -> Self {
        self.config.allows_plain_http = true;
        self
    }

    /// How long a person may take. Ten minutes by default.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.config.patience = patience;
        self
    }

    /// Lets the server name authorization servers in private networks. Without it only public hosts are
    /// visited, and, if the server is on this machine, this machine.
    pub fn allow_private_addresses(mut self) -> Self {
        self.config.allows_private = true;
        self
    }

    /// Sends requests through `send`, such as one that obeys the proxies of the system. Where its connections
    /// lead is then not checked, only what the addresses say.
    pub fn http(mut self, send: impl HttpSend) -> Self {
        self.config.send = Some(Arc::new(send));
        self
    }

    /// Gets a token now, rather than when a server asks for one.
    ///
    /// # Errors
    ///
    /// If there is none to be had.
    ///
    /// # Cancel safety
    ///
    /// Nobody is waited for any more, unless a call waits as well.
    pub async fn authorize(&self) -> Result<(), Arc<Error>> {
        self.runtime()?.authorize().await
    }

    /// Begins to get a token, up to the point where a person is needed: for applications whose person comes back to
    /// another process or another server, as in a web application. [`complete`](Self::complete) goes on from there.
    ///
    /// `redirect_uri` is where the person is to come back to. `challenges` are those of the
    /// [`Error::Unauthorized`](bowline::Error::Unauthorized) that a call failed with, or none; they say which scopes
    /// are needed. No [`user_agent`](Self::user_agent) is needed. The [`store`](Self::store) has to be one that all
    /// processes share.
    ///
    /// # Errors
    ///
    /// If a server cannot be reached, or must not be trusted.
    ///
    /// # Cancel safety
    ///
    /// A registration that was made may be lost; nothing else is.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use bowline_auth::client::{FileStore, OAuth, PendingAuthorization};
    /// # async fn example(user: &str) -> Result<(), Box<dyn std::error::Error>> {
    /// let oauth = || OAuth::new("https://example.com/mcp").store(FileStore::new("tokens")).account(user);
    ///
    /// // In the handler of the page where the person starts:
    /// let pending = oauth().begin("https://app.example/callback", &[]).await?;
    /// let kept_for_the_person = serde_json::to_string(&pending)?;
    /// let redirect_to = pending.url();
    ///
    /// // In the handler of `/callback`, perhaps in another process:
    /// let came_back_to = "https://app.example/callback?code=…&state=…";
    /// let pending: PendingAuthorization = serde_json::from_str(&kept_for_the_person)?;
    /// oauth().complete(pending, came_back_to).await?;
    /// # Ok(()) }
    /// ```
    pub async fn begin(
        &self,
        redirect_uri: &str,
        challenges: &[Challenge],
    ) -> Result<PendingAuthorization, Arc<Error>> {
        let begun = self.runtime()?.begin(redirect_uri, challenges).await;
        begun.map_err(Arc::new)
    }

    /// Gets the token when the person has come back to `came_back_to`, the whole address with its query.
    ///
    /// # Errors
    ///
    /// If the address is not what must have come back, or the authorization server says no.
    ///
    /// # Cancel safety
    ///
    /// The code may be used up without a token; begin again then.
    pub async fn complete(
        &self,
        pending: PendingAuthorization,
        came_back_to: &str,
    ) -> Result<(), Arc<Error>> {
        let completed = self.runtime()?.complete(pending, came_back_to).await;
        completed.map_err(Arc::new)
    }

    /// Forgets the token, here and in the store, and has the authorization server revoke it if that can be done within
    /// ten seconds. The next request has none, also if a token is being renewed meanwhile. A store whose content cannot
    /// be read is emptied.
    ///
    /// # Errors
    ///
    /// If the store cannot be written.
    ///
    /// # Cancel safety
    ///
    /// The token is forgotten here in any case, and perhaps not in the store.
    pub async fn forget(&self) -> Result<(), Arc<Error>> {
        self.runtime()?.forget().await.map_err(Arc::new)
    }

    fn runtime(&self) -> Result<&Arc<Runtime>, Arc<Error>> {
        let runtime = self.runtime.get_or_init(|| {
            let runtime = self.config.clone().start();
            runtime.map(Arc::new).map_err(Arc::new)
        });
        runtime.as_ref().map_err(Clone::clone)
    }
}

impl Config {
    fn start(self) -> Result<Runtime> {
        let address = &self.server;
        let server = Url::parse(address)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or_else(|| {
                Error::misuse(format!("`{address}` is not an http:// or https:// URL"))
            })?;
        let is_protected =
            server.scheme() == "https" || Guard::of_server(&server) == Guard::ThisMachine;
        if !is_protected && !self.allows_plain_http {
            return Err(Error::misuse(format!(
                "tokens for `{address}` would travel unencrypted: use https://, or `OAuth::allow_plain_http`"
            )));
        }
        if let Some(address) = &self.application.metadata_url {
            check_metadata_url(address)?;
        }
        if self.application.needs_nobody() && self.application.client.is_none() {
            return Err(Error::misuse(
                "a client that asks no person has to be registered: give OAuth a client with its issuer",
            ));
        }
        let guard = match self.allows_private {
            true => Guard::Private,
            false => Guard::of_server(&server),
        };
        let fetch = match &self.send {
            Some(send) => Fetch::by(send.clone()),
            None => Fetch::guarded(guard)?,
        };
        Runtime::new(server, guard, fetch, self)
    }

    /// The key in the store: a URL has no spaces, so that no two pairs give one key.
    pub(crate) fn store_key(&self, server: &Url) -> String {
        match &self.account {
            Some(account) => format!("{server} {account}"),
            None => server.to_string(),
        }
    }
}

impl Authorizer for OAuth {
    fn sign<'a>(&'a self, head: &'a mut request::Parts) -> BoxFuture<'a, bowline::Result<()>> {
        Box::pin(async {
            let runtime = self.runtime().map_err(|error| unauthorized(None, error))?;
            let signed = runtime.sign(head).await;
            signed.map_err(|error| unauthorized(None, Arc::new(error)))
        })
    }

    fn answer<'a>(&'a self, refusal: &'a Refusal) -> BoxFuture<'a, bowline::Result<()>> {
        Box::pin(async {
            let failed = |error| unauthorized(Some(refusal), error);
            let runtime = self.runtime().map_err(failed)?;
            runtime.answer(refusal).await.map_err(failed)
        })
    }

    fn identity(&self) -> Option<String> {
        self.runtime().ok()?.identity()
    }

    fn hear(&self, head: &response::Parts) {
        if let Ok(runtime) = self.runtime() {
            runtime.hear(head);
        }
    }
}

fn unauthorized(refusal: Option<&Refusal>, error: Arc<Error>) -> bowline::Error {
    bowline::Error::Unauthorized {
        challenges: refusal.map_or_else(Vec::new, |refusal| refusal.challenges.clone()),
        source: Some(error.into()),
    }
}

impl fmt::Debug for OAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuth")
            .field("server", &self.config.server)
            .field("application", &self.config.application)
            .finish_non_exhaustive()
    }
}

const DEFAULT_PROMPTS: usize = 10;
const DEFAULT_PROMPTS_WITHIN: Duration = Duration::from_secs(600);
const DEFAULT_PATIENCE: Duration = Duration::from_secs(600);
