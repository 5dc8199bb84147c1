//! `HyperClient`, the default [`HttpClient`]: a hyper client with our own connection pool.

use std::sync::Arc;
use std::time::Duration;

use http::header::PROXY_AUTHORIZATION;
use http::{Request, Response, Uri};
use hyper_util::client::proxy::matcher::Matcher;

use super::body::ResponseBody;
use super::connection::{Connector, HttpVersionPolicy, service_connector};
use super::pool::Pool;
use super::proxy::{Proxies, TcpConnector, authorization};
use super::send::{HttpClient, RequestBody};
use super::tls::{TlsOptions, secure};
use crate::Result;
use crate::exchange::BoxFuture;

/// An [`HttpClient`] based on hyper, with a pool of keep-alive connections.
///
/// # Examples
///
/// With a connector of your own, here one that binds the local address:
///
/// ```no_run
/// # async fn example() -> bowline::Result<()> {
/// use bowline::Client;
/// use bowline::http::client::{HttpStream, HyperClient};
/// use tokio::net::TcpSocket;
///
/// let connector = async |_: http::Uri| {
///     let socket = TcpSocket::new_v4()?;
///     socket.bind("192.0.2.7:0".parse()?)?;
///     Ok(HttpStream::new(socket.connect("198.51.100.4:80".parse()?).await?))
/// };
/// let http_client = HyperClient::with_connector(connector);
/// let client = Client::connect("http://tools.example/mcp").http_client(http_client).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct HyperClient {
    pool: Arc<Pool>,
    /// The proxies that may need a `Proxy-Authorization` header; `None` without proxies.
    proxies: Option<Arc<Matcher>>,
}

/// Settings of the connections to a server.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionOptions {
    pub(crate) proxies: Proxies,
    pub(crate) version_policy: HttpVersionPolicy,
    pub(crate) connect_timeout: Duration,
    pub(crate) tls: TlsOptions,
}

impl Default for ConnectionOptions {
    fn default() -> Self {
        Self {
            proxies: Proxies::from_env(),
            version_policy: HttpVersionPolicy::Negotiated,
            connect_timeout: CONNECT_TIMEOUT,
            tls: TlsOptions::default(),
        }
    }
}

/// Returns the default HTTP client for `uri`.
pub(crate) fn default_client(
    uri: &Uri,
    options: &ConnectionOptions,
) -> Result<Arc<dyn HttpClient>> {
    // Redirects stay within the origin, so an `http` URL never needs TLS.
    if uri.scheme() == Some(&http::uri::Scheme::HTTP) {
        return Ok(Arc::new(HyperClient::insecure(options)));
    }
    secure(options)
}

impl HyperClient {
    /// Creates a client for `http` only: TCP without TLS, through the proxies of the environment. Does not load root
    /// certificates.
    #[must_use]
    pub fn plain() -> Self {
        Self::insecure(&ConnectionOptions::default())
    }

    /// Creates a client with this connector and a connect timeout of 10 s.
    #[must_use]
    pub fn with_connector(connector: impl Connector) -> Self {
        Self::with_connector_and_timeout(connector, CONNECT_TIMEOUT)
    }

    /// Creates a client with this connector and this connect timeout.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use bowline::http::client::{HttpStream, HyperClient};
    /// use tokio::net::TcpStream;
    ///
    /// let connector = async |_: http::Uri| Ok(HttpStream::new(TcpStream::connect("127.0.0.1:80").await?));
    /// let client = HyperClient::with_connector_and_timeout(connector, Duration::from_secs(3));
    /// ```
    #[must_use]
    pub fn with_connector_and_timeout(
        connector: impl Connector,
        connect_timeout: Duration,
    ) -> Self {
        Self::from_pool(Pool::new(
            connector,
            HttpVersionPolicy::Negotiated,
            connect_timeout,
        ))
    }

    /// Creates a client with this connector that uses HTTP/2 with prior knowledge, and a connect timeout of 10 s.
    #[must_use]
    pub fn with_http2_connector(connector: impl Connector) -> Self {
        Self::from_pool(Pool::new(
            connector,
            HttpVersionPolicy::Http2Only,
            CONNECT_TIMEOUT,
        ))
    }

    fn insecure(options: &ConnectionOptions) -> Self {
        let proxies = options.proxies.matcher();
        let tcp = TcpConnector::new(proxies.clone(), options.connect_timeout);
        let connector = service_connector(tcp);
        let pool = Pool::new(connector, options.version_policy, options.connect_timeout);
        Self::from_pool(pool).with_proxies(proxies)
    }

    pub(super) fn from_pool(pool: Pool) -> Self {
        Self {
            pool: Arc::new(pool),
            proxies: None,
        }
    }

    pub(super) fn with_proxies(mut self, proxies: Option<Arc<Matcher>>) -> Self {
        self.proxies = proxies;
        self
    }
}

impl HttpClient for HyperClient {
    fn send(
        &self,
        mut request: Request<RequestBody>,
    ) -> BoxFuture<'static, Result<Response<ResponseBody>>> {
        let proxies = self.proxies.as_ref();
        if let Some(credentials) = proxies.and_then(|it| authorization(it, request.uri())) {
            let headers = request.headers_mut();
            headers.insert(PROXY_AUTHORIZATION, credentials);
        }
        Box::pin(self.pool.clone().send(request))
    }
}

impl std::fmt::Debug for HyperClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HyperClient").finish_non_exhaustive()
    }
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
