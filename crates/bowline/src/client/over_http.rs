//! Connecting over HTTP: by what requests are sent, through what, and with what in their heads.

use std::sync::Arc;
use std::time::Duration;

use bowline_core::era::Caller;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};

use super::caching::Identity;
use super::http::HttpOpening;
use super::link::Reached;
use super::opening::Terms;
use super::verdicts::origin;
use super::{Client, Connect, Verdicts};
use crate::http::client::{
    Authorizer, Drain, Endpoint, HttpSend, Proxies, Reaching, ResponseLimits, UnexpectedStatus,
    Versions, parse_url, sender,
};
use crate::{Error, Result};

impl Client {
    /// Connects to a server at an `http://` or `https://` URL, whatever version it speaks.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> bowline::Result<()> {
    /// let client = bowline::Client::connect("http://localhost:8000/mcp").await?;
    /// # Ok(()) }
    /// ```
    pub fn connect(url: &str) -> Connect {
        let mut connect = Connect::new(None);
        connect.over_http.url = parse_url(url);
        connect
    }
}

/// What a connection over HTTP is told; the others have no use for it.
impl Connect {
    /// Sends HTTP requests through `send` instead of a connection pool of this client's own.
    pub fn http(mut self, send: impl HttpSend) -> Self {
        self.over_http.send = Some(Arc::new(send));
        self
    }

    /// Reaches an HTTP server through these proxies instead of those that the environment names.
    ///
    /// Not if requests are sent [in another way](Self::http).
    pub fn proxies(mut self, proxies: Proxies) -> Self {
        self.over_http.reaching.proxies = proxies;
        self
    }

    /// Sets how long making a connection may take, with everything that belongs to it: names looked up, every address tried, a
    /// proxy, TLS. 10 s by default.
    ///
    /// Not if requests are sent [in another way](Self::http).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> bowline::Result<()> {
    /// use std::time::Duration;
    ///
    /// let connect = bowline::Client::connect("https://tools.example/mcp");
    /// let client = connect.connect_timeout(Duration::from_secs(3)).await?;
    /// # Ok(()) }
    /// ```
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.over_http.reaching.connect_timeout = timeout;
        self
    }

    /// Speaks HTTP/2 from the first byte, without asking whether the server does: for `http://` servers that
    /// are known to. Where there is TLS, HTTP/2 is spoken anyway if the server offers it.
    ///
    /// Not if requests are sent [in another way](Self::http).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> bowline::Result<()> {
    /// let client = bowline::Client::connect("http://localhost:8000/mcp").http2().await?;
    /// # Ok(()) }
    /// ```
    pub fn http2(mut self) -> Self {
        self.over_http.reaching.versions = Versions::Http2Only;
        self
    }

    /// Sends this header with every HTTP request.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(token: &str) -> Result<(), Box<dyn std::error::Error>> {
    /// use http::HeaderValue;
    /// use http::header::AUTHORIZATION;
    ///
    /// let mut token = HeaderValue::from_str(&format!("Bearer {token}"))?;
    /// token.set_sensitive(true);
    /// let client = bowline::Client::connect("https://tools.example/mcp").header(AUTHORIZATION, token).await?;
    /// # Ok(()) }
    /// ```
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.over_http.headers.append(name, value);
        self
    }

    /// Answers an HTTP server that wants to know who is asking, with every request.
    pub fn authorizer(mut self, authorizer: impl Authorizer) -> Self {
        self.over_http.authorizer = Some(Arc::new(authorizer));
        self
    }

    /// Takes no more than this from an HTTP server.
    pub fn response_limits(mut self, limits: ResponseLimits) -> Self {
        self.over_http.response_limits = limits;
        self
    }

    /// Shares with others which HTTP servers are known to be of the legacy era, instead of
    /// [what this process knows](Verdicts::of_this_process).
    pub fn verdicts(mut self, verdicts: &Verdicts) -> Self {
        self.over_http.verdicts = verdicts.clone();
        self
    }
}

/// What a connection over HTTP was told.
pub(super) struct OverHttp {
    url: Result<Uri>,
    send: Option<Arc<dyn HttpSend>>,
    reaching: Reaching,
    headers: HeaderMap,
    authorizer: Option<Arc<dyn Authorizer>>,
    response_limits: ResponseLimits,
    /// What was found out about servers before.
    pub(super) verdicts: Verdicts,
}

impl OverHttp {
    /// The URL for cache keys: with the query, which may select a tenant, and without user name and password.
    pub(super) fn url_text(&self) -> Option<String> {
        let uri = self.url.as_ref().ok()?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Some(format!("{}{path}", origin(uri)))
    }

    pub(super) fn identity(&self) -> Option<Identity> {
        let authorizer = self.authorizer.clone()?;
        Some(Arc::new(move || authorizer.identity()))
    }

    /// Finds out what the server speaks, and how it is spoken to.
    pub(super) async fn reach(self, terms: Terms, caller: Caller) -> Result<Reached> {
        let verdicts = self.verdicts.clone();
        let endpoint = self.endpoint()?;
        let opening = HttpOpening {
            endpoint,
            terms,
            verdicts,
        };
        opening.open(caller).await
    }

    fn endpoint(self) -> Result<Endpoint> {
        let uri = self.url?;
        let send = match self.send {
            Some(send) => send,
            None => sender(&uri, &self.reaching)?,
        };
        Ok(Endpoint {
            uri,
            send,
            headers: self.headers,
            authorizer: self.authorizer,
            limits: self.response_limits,
            drain: Arc::new(Drain::default()),
        })
    }
}

impl Default for OverHttp {
    fn default() -> Self {
        Self {
            url: Err(Error::misuse("there is no URL to connect to")),
            send: None,
            reaching: Reaching::default(),
            headers: HeaderMap::new(),
            authorizer: None,
            response_limits: ResponseLimits::default(),
            verdicts: Verdicts::of_this_process(),
        }
    }
}

/// The HTTP status of a response that carried no answer, if that is what went wrong.
pub(super) fn status_of(error: &Error) -> Option<u16> {
    UnexpectedStatus::of(error).map(|status| status.as_u16())
}
