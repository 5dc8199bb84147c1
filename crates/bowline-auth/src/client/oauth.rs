//! [`OAuth`]: the configuration of the OAuth client, and its [`Authorizer`] implementation.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bowline::exchange::BoxFuture;
use bowline::http::RedactedUrl;
use bowline::http::client::{Authorizer, Challenge, HttpClient, Refusal};
use http::{request, response};
use url::Url;

use super::address_policy::AddressPolicy;
use super::application::{
    Application, ChooseIssuer, Grant, IdentityProvider, RegisteredClient, check_metadata_url,
};
use super::fetch::Fetch;
use super::runtime::{OAuthRuntime, PendingAuthorization};
use super::store::{MemoryStore, TokenStore};
use super::user_agent::{AppError, UserAgent};
use super::{Error, Result, Secret, SigningKey};

/// Obtains access tokens for one server and adds them to its requests.
///
/// Defaults to the authorization-code grant, which involves the user; [`client_credentials`](Self::client_credentials),
/// [`workload`](Self::workload) and [`enterprise`](Self::enterprise) do not.
///
/// The client identifies itself to an authorization server in the order of the specification: as the
/// [`client`](Self::client) that is registered there, by its [`client_metadata`](Self::client_metadata) document, by a
/// stored dynamic registration, or by a new one. Credentials from one issuer are never sent to another.
///
/// # Cancel safety
///
/// Calls that are refused at the same time share one authorization; dropping the last of them cancels it, unless it
/// [outlives them](Self::outlive_calls). A token refresh always runs to completion, because the server may already have
/// invalidated the old refresh token.
///
/// # Examples
///
/// A service that uses its own credentials:
///
/// ```
/// use bowline_auth::client::{OAuth, RegisteredClient};
///
/// let client = RegisteredClient::new("https://login.example.com", "nightly-report").secret("from the vault");
/// let oauth = OAuth::new("https://example.com/mcp").client(client).client_credentials();
/// ```
#[must_use = "pass it to `ClientBuilder::authorizer`"]
pub struct OAuth {
    config: OAuthConfig,
    runtime: OnceLock<Result<Arc<OAuthRuntime>, Arc<Error>>>,
}

/// The settings of an [`OAuth`].
#[derive(Clone)]
pub(crate) struct OAuthConfig {
    server: String,
    allows_private: bool,
    http_client: Option<Arc<dyn HttpClient>>,
    pub(crate) application: Application,
    pub(crate) user_agent: Option<Arc<dyn UserAgent>>,
    pub(crate) assertions: Option<Assertions>,
    pub(crate) store: Arc<dyn TokenStore>,
    pub(crate) prompt_timeout: Duration,
    /// Whether a sign-in goes on when no call waits for it.
    pub(crate) outlives_calls: bool,
    /// Distinguishes the credentials of several users of one server in the store.
    account: Option<String>,
    allows_plain_http: bool,
    pub(crate) max_prompts: usize,
    pub(crate) prompts_within: Duration,
}

/// Returns an assertion for the given issuer.
pub(crate) type Assertions =
    Arc<dyn Fn(String) -> BoxFuture<'static, Result<Secret, AppError>> + Send + Sync>;

impl OAuth {
    /// Creates a client for the MCP server at this URL, which must be the URL passed to `Client::connect`.
    pub fn new(server: impl Into<String>) -> Self {
        let application = Application::new("MCP client");
        Self {
            config: OAuthConfig {
                server: server.into(),
                allows_private: false,
                http_client: None,
                application,
                user_agent: None,
                assertions: None,
                store: Arc::new(MemoryStore::new()),
                prompt_timeout: DEFAULT_PROMPT_TIMEOUT,
                outlives_calls: false,
                account: None,
                allows_plain_http: false,
                max_prompts: DEFAULT_PROMPTS,
                prompts_within: DEFAULT_PROMPTS_WITHIN,
            },
            runtime: OnceLock::new(),
        }
    }

    /// Sets the `client_name` that the consent page displays.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.config.application.name = name.into();
        self
    }

    /// Sets the user agent that opens the authorization URL and receives the redirect.
    pub fn user_agent(mut self, user_agent: impl UserAgent) -> Self {
        self.config.user_agent = Some(Arc::new(user_agent));
        self
    }

    /// Sets the client id and credentials of a client that is already registered at an authorization server.
    pub fn client(mut self, client: RegisteredClient) -> Self {
        self.config.application.client = Some(client);
        self
    }

    /// Sets the URL of the client ID metadata document. Authorization servers that support it need no registration.
    pub fn client_metadata(mut self, url: impl Into<String>) -> Self {
        self.config.application.metadata_url = Some(url.into());
        self
    }

    /// Sets the key for `private_key_jwt` authentication of the client described by
    /// [`client_metadata`](Self::client_metadata). The document must list the public key (`jwks` or `jwks_uri`) and the
    /// `token_endpoint_auth_method`.
    pub fn client_metadata_key(mut self, key: SigningKey) -> Self {
        self.config.application.metadata_key = Some(Arc::new(key));
        self
    }

    /// Requests these scopes instead of all `scopes_supported` of the server. The scopes of a challenge are requested
    /// in addition.
    pub fn scopes<S: Into<String>>(mut self, scopes: impl IntoIterator<Item = S>) -> Self {
        let scopes = scopes.into_iter().map(Into::into).collect();
        self.config.application.scopes.wanted = Some(scopes);
        self
    }

    /// Never requests scopes other than these. A request that needs more fails with [`Error::InsufficientScope`].
    pub fn max_scopes<S: Into<String>>(mut self, scopes: impl IntoIterator<Item = S>) -> Self {
        let scopes = scopes.into_iter().map(Into::into).collect();
        self.config.application.scopes.allowed = Some(scopes);
        self
    }

    /// Adds a parameter to the authorization URL, such as `login_hint` or `audience`. A parameter that this crate sets
    /// itself fails the authorization with [`Error::Misuse`].
    pub fn authorization_param(
        mut self,
        name: impl Into<String>,
        value: impl Into<String>,
    ) -> Self {
        let params = &mut self.config.application.authorization_params;
        params.push((name.into(), value.into()));
        self
    }

    /// Chooses one of the `authorization_servers` of the protected resource metadata. By default the issuer of the
    /// current token is chosen, or else the first.
    ///
    /// `choose` receives the issuers and returns one of them, or `None` to reject them all.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline_auth::client::OAuth;
    ///
    /// let trusted = String::from("https://id.example.com");
    /// let oauth = OAuth::new("https://example.com/mcp")
    ///     .choose_issuer(move |issuers| issuers.iter().find(|issuer| **issuer == trusted).cloned());
    /// ```
    pub fn choose_issuer(
        mut self,
        choose: impl Fn(&[String]) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.config.application.choose_issuer = Some(ChooseIssuer(Arc::new(choose)));
        self
    }

    /// Sets the initial access token (RFC 7591) for registration at `issuer`. It is sent to no other issuer.
    pub fn initial_access_token(mut self, issuer: impl Into<String>, token: Secret) -> Self {
        self.config.application.initial_access_token = Some((issuer.into(), token));
        self
    }

    /// Treats a server without protected resource metadata as its own authorization server, with the default endpoints
    /// of 2025-03-26 and PKCE. Only servers of that revision need this. Since 2025-06-18 the metadata are required, and
    /// a client that continues without them can be made to send its secrets to any path on the host.
    pub fn fall_back_without_metadata(mut self) -> Self {
        self.config.application.assumes_default_endpoints = true;
        self
    }

    /// Uses the client credentials grant, without a user.
    ///
    /// Requires a [`client`](Self::client); its credentials are sent to its issuer only.
    pub fn client_credentials(mut self) -> Self {
        self.config.application.grant = Grant::ClientCredentials;
        self
    }

    /// Uses the JWT bearer grant (RFC 7523) with a workload identity: a JWT that `assertion` returns.
    ///
    /// `assertion` receives the issuer of the authorization server, which belongs into the `aud` of the JWT: that of
    /// the [`client`](Self::client), which is required. It is called once per token, and not at all if the MCP server
    /// names another issuer.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::path::PathBuf;
    /// use bowline_auth::client::{OAuth, Secret};
    ///
    /// let path = PathBuf::from("/var/run/secrets/token");
    /// let oauth = OAuth::new("https://example.com/mcp").workload(move |_issuer| {
    ///     let path = path.clone();
    ///     async move { Ok(Secret::new(std::fs::read_to_string(path)?)) }
    /// });
    /// ```
    pub fn workload<F, Fut>(mut self, assertion: F) -> Self
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Secret, AppError>> + Send + 'static,
    {
        self.config.application.grant = Grant::Assertion;
        self.config.assertions = Some(Arc::new(move |issuer| Box::pin(assertion(issuer))));
        self
    }

    /// Uses enterprise-managed authorization: exchanges the ID token that `id_token` returns for an ID-JAG at a
    /// company's identity provider.
    ///
    /// `id_token` receives the issuer of the identity provider; the ID token is sent to that provider only. The ID-JAG
    /// is sent to the issuer of the [`client`](Self::client), which is required.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use bowline_auth::client::{IdentityProvider, OAuth, RegisteredClient, Secret};
    ///
    /// # fn example(sign_in: impl Fn() -> String + Send + Sync + 'static) {
    /// let desk = RegisteredClient::new("https://id.example", "desk");
    /// let provider = IdentityProvider::new("https://id.example/token", desk);
    /// let sign_in = Arc::new(sign_in);
    /// let oauth = OAuth::new("https://example.com/mcp").enterprise(provider, move |_issuer| {
    ///     let sign_in = sign_in.clone();
    ///     async move { Ok(Secret::new(sign_in())) }
    /// });
    /// # drop(oauth);
    /// # }
    /// ```
    pub fn enterprise<F, Fut>(mut self, provider: IdentityProvider, id_token: F) -> Self
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Secret, AppError>> + Send + 'static,
    {
        self.config.application.grant = Grant::Enterprise(provider);
        self.config.assertions = Some(Arc::new(move |issuer| Box::pin(id_token(issuer))));
        self
    }

    /// Sets the store for credentials. Defaults to a [`MemoryStore`], which loses them when the program ends.
    pub fn store(mut self, store: impl TokenStore) -> Self {
        self.config.store = Arc::new(store);
        self
    }

    /// Stores credentials under an account name, for programs that use one server on behalf of several users. Create
    /// one `OAuth` per user, with the store in an `Arc`.
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

    /// Limits how often calls may prompt the user within a period; defaults to ten times within ten minutes. A call
    /// beyond the limit fails with [`Error::TooManyPrompts`].
    ///
    /// No call prompts again for scopes that the user denied. [`authorize`](Self::authorize) ignores and resets both
    /// restrictions.
    pub fn max_prompts(mut self, max: usize, within: Duration) -> Self {
        self.config.max_prompts = max;
        self.config.prompts_within = within;
        self
    }

    /// Allows sending tokens over plain `http://` to other machines, where every hop can read them. Use it only on a
    /// network that is protected by other means.
    ///
    /// Without it, such a server can be called as long as it requires no token; a token is neither obtained for it nor
    /// sent to it ([`Error::Unencrypted`]).
    pub fn allow_plain_http(mut self) -> Self {
        self.config.allows_plain_http = true;
        self
    }

    /// Limits the time between opening the authorization URL and its redirect. Defaults to ten minutes.
    pub fn prompt_timeout(mut self, timeout: Duration) -> Self {
        self.config.prompt_timeout = timeout;
        self
    }

    /// Continues a sign-in when the last call that waits for it is dropped, up to the
    /// [`prompt_timeout`](Self::prompt_timeout). The next call then finds the token.
    ///
    /// For programs whose callers wait for less time than a person needs to sign in, such as a bridge.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline_auth::client::{Loopback, OAuth};
    ///
    /// let oauth = OAuth::new("https://example.com/mcp")
    ///     .user_agent(Loopback::new(|url| Ok(eprintln!("Open {url} in your browser."))))
    ///     .outlive_calls();
    /// ```
    pub fn outlive_calls(mut self) -> Self {
        self.config.outlives_calls = true;
        self
    }

    /// Allows authorization servers in private networks. By default only public addresses are allowed, and loopback
    /// addresses if the MCP server is on this machine.
    pub fn allow_private_addresses(mut self) -> Self {
        self.config.allows_private = true;
        self
    }

    /// Sends the client's requests through `client`, for example to use the system's proxies. URLs are still checked,
    /// but the addresses that their host names resolve to are not.
    pub fn http_client(mut self, client: impl HttpClient) -> Self {
        self.config.http_client = Some(Arc::new(client));
        self
    }

    /// Obtains a token now, without waiting for a server to require one.
    ///
    /// # Errors
    ///
    /// If no token can be obtained.
    ///
    /// # Cancel safety
    ///
    /// Cancels the authorization, unless a call waits for it too or it [outlives calls](Self::outlive_calls). A grant
    /// without a user runs to completion.
    pub async fn authorize(&self) -> Result<(), Arc<Error>> {
        self.runtime()?.authorize().await
    }

    /// Starts an authorization and returns the URL to redirect the user to; [`complete`](Self::complete) finishes it.
    /// For web applications, where the redirect is handled by another request or another process.
    ///
    /// `redirect_uri` is the application's callback URL. `challenges` are those of the
    /// [`Error::Unauthorized`](bowline::Error::Unauthorized) that a call failed with, or empty; they name the required
    /// scopes. No [`user_agent`](Self::user_agent) is needed. All processes must share the [`store`](Self::store).
    ///
    /// # Errors
    ///
    /// If a server cannot be reached or fails a security check.
    ///
    /// # Cancel safety
    ///
    /// A dynamic registration may be made and not stored; the next attempt registers again.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use bowline_auth::client::{FileStore, OAuth, PendingAuthorization};
    /// # async fn example(user: &str) -> Result<(), Box<dyn std::error::Error>> {
    /// let oauth = || OAuth::new("https://example.com/mcp").store(FileStore::new("tokens")).account(user);
    ///
    /// // In the handler of the page where the user signs in:
    /// let pending = oauth().begin("https://app.example/callback", &[]).await?;
    /// let stored = serde_json::to_string(&pending)?;
    /// let redirect_to = pending.url();
    ///
    /// // In the handler of `/callback`, perhaps in another process:
    /// let redirect_url = "https://app.example/callback?code=…&state=…";
    /// let pending: PendingAuthorization = serde_json::from_str(&stored)?;
    /// oauth().complete(pending, redirect_url).await?;
    /// # Ok(()) }
    /// ```
    pub async fn begin(
        &self,
        redirect_uri: &str,
        challenges: &[Challenge],
    ) -> Result<PendingAuthorization, Arc<Error>> {
        let pending = self.runtime()?.begin(redirect_uri, challenges).await;
        pending.map_err(Arc::new)
    }

    /// Exchanges the authorization code for a token. `redirect_url` is the full URL of the redirect, with its query.
    ///
    /// # Errors
    ///
    /// If the URL fails a security check, or the authorization server returned an error.
    ///
    /// # Cancel safety
    ///
    /// The code may be consumed without a token; start again with [`begin`](Self::begin).
    pub async fn complete(
        &self,
        pending: PendingAuthorization,
        redirect_url: &str,
    ) -> Result<(), Arc<Error>> {
        let completed = self.runtime()?.complete(pending, redirect_url).await;
        completed.map_err(Arc::new)
    }

    /// Removes the token from memory and from the store, and revokes it at the authorization server within ten seconds
    /// if possible. A refresh in progress does not restore it. Stored credentials that cannot be read are removed.
    ///
    /// # Errors
    ///
    /// If writing to the store fails.
    ///
    /// # Cancel safety
    ///
    /// The token is removed from memory in any case, but possibly not from the store.
    pub async fn forget(&self) -> Result<(), Arc<Error>> {
        self.runtime()?.forget().await.map_err(Arc::new)
    }

    fn runtime(&self) -> Result<&Arc<OAuthRuntime>, Arc<Error>> {
        let runtime = self.runtime.get_or_init(|| {
            let runtime = self.config.clone().start();
            runtime.map(Arc::new).map_err(Arc::new)
        });
        runtime.as_ref().map_err(Clone::clone)
    }
}

impl OAuthConfig {
    /// Fails if tokens would be sent unencrypted to another machine. Called where a token is obtained or sent, and not
    /// earlier: a server that requires none can be called.
    pub(crate) fn check_encryption(&self, server: &Url) -> Result<()> {
        let is_protected = server.scheme() == "https"
            || AddressPolicy::for_server(server) == AddressPolicy::ThisMachine;
        if is_protected || self.allows_plain_http {
            return Ok(());
        }
        let server = RedactedUrl::new(server).to_string();
        Err(Error::Unencrypted { server })
    }

    fn start(self) -> Result<OAuthRuntime> {
        let address = &self.server;
        let server = Url::parse(address)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or_else(|| {
                let address = RedactedUrl::new(address);
                Error::misuse(format!("`{address}` is not an http:// or https:// URL"))
            })?;
        if let Some(address) = &self.application.metadata_url {
            check_metadata_url(address)?;
        }
        if self.application.is_unattended() && self.application.client.is_none() {
            return Err(Error::misuse(
                "a grant without a user requires a registered client",
            ));
        }
        let policy = match self.allows_private {
            true => AddressPolicy::Private,
            false => AddressPolicy::for_server(&server),
        };
        let fetch = match &self.http_client {
            Some(client) => Fetch::new(client.clone()),
            None => Fetch::with_policy(policy),
        };
        OAuthRuntime::new(server, policy, fetch, self)
    }

    /// Returns the key in the store. A URL contains no spaces, so different pairs have different keys.
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

    fn observe_response(&self, head: &response::Parts) {
        if let Ok(runtime) = self.runtime() {
            runtime.observe_response(head);
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
            .field("server", &RedactedUrl::new(&self.config.server))
            .field("application", &self.config.application)
            .finish_non_exhaustive()
    }
}

const DEFAULT_PROMPTS: usize = 10;
const DEFAULT_PROMPTS_WITHIN: Duration = Duration::from_secs(600);
const DEFAULT_PROMPT_TIMEOUT: Duration = Duration::from_secs(600);
