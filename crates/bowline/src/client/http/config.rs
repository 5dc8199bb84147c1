//! The settings of a connection over HTTP.

use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};

use super::HttpTransport;
use crate::client::builder::ConnectTarget;
use crate::client::cache_policy::IdentitySource;
use crate::client::era_cache::origin;
use crate::client::known_tools::KnownTools;
use crate::client::{Client, ClientBuilder, EraCache, ReadBudget};
use crate::http::client::{
    Authorizer, ConnectionOptions, DEFAULT_RETRY_UNAVAILABLE, Drain, Endpoint, HttpChannel,
    HttpClient, HttpVersionPolicy, Proxies, ResponseLimits, UnexpectedStatus, default_client,
    parse_url,
};
use crate::{Error, Result};

impl Client {
    /// Connects to a server of any protocol version at an `http://` or `https://` URL.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> bowline::Result<()> {
    /// let client = bowline::Client::connect("http://localhost:8000/mcp").await?;
    /// # Ok(()) }
    /// ```
    pub fn connect(url: &str) -> ClientBuilder {
        let mut connect = ClientBuilder::new(ConnectTarget::Http);
        connect.http.url = parse_url(url);
        connect
    }
}

/// Returns the builder of [`Client::connect`] with these headers.
pub(in crate::client) fn connect_with_headers(
    url: &str,
    headers: Vec<(HeaderName, HeaderValue)>,
) -> ClientBuilder {
    let mut connect = Client::connect(url);
    connect.http.headers.extend(headers);
    connect
}

/// Settings of a connection over HTTP. Other transports ignore them.
impl ClientBuilder {
    /// Sends HTTP requests through `client` instead of this client's own connection pool.
    pub fn http_client(mut self, client: impl HttpClient) -> Self {
        self.http.client = Some(Arc::new(client));
        self
    }

    /// Sets the proxies, instead of those of the environment variables.
    ///
    /// Ignored if [`ClientBuilder::http_client`](Self::http_client) is set.
    pub fn proxies(mut self, proxies: Proxies) -> Self {
        self.http.connection.proxies = proxies;
        self
    }

    /// Uses HTTP/2 with prior knowledge, for `http://` servers that are known to support it. Over TLS, HTTP/2 is
    /// negotiated by ALPN without this.
    ///
    /// Ignored if [`ClientBuilder::http_client`](Self::http_client) is set.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> bowline::Result<()> {
    /// let client = bowline::Client::connect("http://localhost:8000/mcp").http2().await?;
    /// # Ok(()) }
    /// ```
    pub fn http2(mut self) -> Self {
        self.http.connection.version_policy = HttpVersionPolicy::Http2Only;
        self
    }

    /// Sends this access token with every HTTP request (`Authorization: Bearer …`). Connecting fails with
    /// [`Error::Misuse`] if it contains characters that a header cannot contain.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(token: &str) -> bowline::Result<()> {
    /// let client = bowline::Client::connect("https://tools.example/mcp").bearer(token).await?;
    /// # Ok(()) }
    /// ```
    pub fn bearer(mut self, token: impl AsRef<str>) -> Self {
        match HeaderValue::from_str(&format!("Bearer {}", token.as_ref())) {
            Ok(mut value) => {
                value.set_sensitive(true);
                self.http.headers.insert(AUTHORIZATION, value);
            }
            // Without the token, which must not appear in logs.
            Err(_) => {
                let what = "the token of `bearer` contains characters that a header cannot contain";
                self.http.record(Err(Error::misuse(what)));
            }
        }
        self
    }

    /// Sends this header with every HTTP request. Connecting fails with [`Error::Misuse`] if the name or the value is
    /// not valid.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> bowline::Result<()> {
    /// let client = bowline::Client::connect("https://tools.example/mcp").header("x-region", "eu").await?;
    /// # Ok(()) }
    /// ```
    pub fn header<N, V>(mut self, name: N, value: V) -> Self
    where
        HeaderName: TryFrom<N>,
        HeaderValue: TryFrom<V>,
    {
        match (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            (Ok(name), Ok(value)) => drop(self.http.headers.append(name, value)),
            (Ok(name), Err(_)) => {
                // Without the value, which may be secret.
                let what = format!("the value of the header `{name}` is not valid");
                self.http.record(Err(Error::misuse(what)));
            }
            (Err(_), _) => {
                let what = "the name of a header is not valid";
                self.http.record(Err(Error::misuse(what)));
            }
        }
        self
    }

    /// Sets the authorizer, which adds credentials to every request.
    pub fn authorizer(mut self, authorizer: impl Authorizer) -> Self {
        self.http.authorizer = Some(Arc::new(authorizer));
        self
    }

    /// Sets the limits on responses.
    pub fn response_limits(mut self, limits: ResponseLimits) -> Self {
        self.http.response_limits = limits;
        self
    }

    /// Sets for how long a request is sent again that the server refused with status 503 and `Retry-After` (in seconds),
    /// which means that it was not executed: the server drains or is overloaded. Defaults to 30 s; `Duration::ZERO`
    /// returns the refusal instead. The timeouts of the call apply as well.
    ///
    /// A server that refused a request may be restarting, so until then a failure to connect counts as another refusal.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let connect = bowline::Client::connect("https://tools.example/mcp").retry_unavailable(Duration::ZERO);
    /// ```
    pub fn retry_unavailable(mut self, limit: Duration) -> Self {
        self.http.retry_unavailable = limit;
        self
    }

    /// Sets the cache of servers that are known to be legacy, instead of the
    /// [one that this process shares](EraCache::shared).
    pub fn era_cache(mut self, eras: &EraCache) -> Self {
        self.http.eras = eras.clone();
        self
    }
}

/// The settings of a connection over HTTP.
pub(in crate::client) struct HttpConfig {
    url: Result<Uri>,
    client: Option<Arc<dyn HttpClient>>,
    pub(super) connection: ConnectionOptions,
    headers: HeaderMap,
    authorizer: Option<Arc<dyn Authorizer>>,
    response_limits: ResponseLimits,
    retry_unavailable: Duration,
    /// The eras of servers that were probed before.
    eras: EraCache,
}

impl HttpConfig {
    /// Keeps the first error of a setting, for the attempt to connect.
    pub(super) fn record(&mut self, set: Result<()>) {
        if let (Ok(_), Err(error)) = (&self.url, set) {
            self.url = Err(error);
        }
    }

    /// The URL for cache keys: with the query, which may select a tenant, and without user name and password.
    pub(in crate::client) fn cache_url(&self) -> Option<String> {
        let uri = self.url.as_ref().ok()?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Some(format!("{}{path}", origin(uri)))
    }

    /// Sets the timeout for making a connection, including DNS, every address, a proxy and TLS.
    pub(in crate::client) fn set_connect_timeout(&mut self, timeout: Duration) {
        self.connection.connect_timeout = timeout;
    }

    pub(in crate::client) fn identity(&self) -> Option<IdentitySource> {
        let authorizer = self.authorizer.clone()?;
        Some(Arc::new(move || authorizer.identity()))
    }

    /// `name_members` are the methods of extensions, with the member that `Mcp-Name` mirrors.
    pub(in crate::client) fn transport(
        self,
        tools: Arc<KnownTools>,
        name_members: Vec<(String, String)>,
        read_budget: Option<ReadBudget>,
    ) -> Result<HttpTransport> {
        let uri = self.url?;
        let client = match self.client {
            Some(client) => client,
            None => default_client(&uri, &self.connection)?,
        };
        let endpoint = Endpoint {
            uri,
            client,
            headers: self.headers,
            authorizer: self.authorizer,
            limits: self.response_limits,
            read_budget,
            retry_unavailable: self.retry_unavailable,
            drain: Arc::new(Drain::default()),
        };
        let channel = HttpChannel::new(endpoint.clone(), name_members);
        Ok(HttpTransport::new(channel, endpoint, self.eras, tools))
    }
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            url: Err(Error::misuse("no URL to connect to")),
            client: None,
            connection: ConnectionOptions::default(),
            headers: HeaderMap::new(),
            authorizer: None,
            response_limits: ResponseLimits::default(),
            retry_unavailable: DEFAULT_RETRY_UNAVAILABLE,
            eras: EraCache::shared(),
        }
    }
}

/// The HTTP status of a response without a JSON-RPC answer, if `error` is one.
pub(in crate::client) fn status_of(error: &Error) -> Option<u16> {
    UnexpectedStatus::of(error).map(|status| status.as_u16())
}
