//! Sending through hyper: over which connections, through which proxies.

use std::sync::Arc;
use std::time::Duration;

use http::header::PROXY_AUTHORIZATION;
use http::{Request, Response, Uri};
use hyper_util::client::proxy::matcher::Matcher;

use super::body::ResponseBody;
use super::connection::{Connector, Versions};
use super::pool::Pool;
use super::proxy::{Proxies, TcpConnector, authorization};
use super::send::{HttpSend, RequestBody};
use super::tls::secure;
use crate::Result;
use crate::exchange::BoxFuture;

/// Sends through hyper, over connections that are kept for the next request.
///
/// # Examples
///
/// Over connections of your own making, here such as leave from one address:
///
/// ```no_run
/// # async fn example() -> bowline::Result<()> {
/// use std::net::Ipv4Addr;
///
/// use bowline::{Client, http::client::HyperSend};
/// use hyper_util::client::legacy::connect::HttpConnector;
///
/// let mut tcp = HttpConnector::new();
/// tcp.set_local_address(Some(Ipv4Addr::new(192, 0, 2, 7).into()));
/// let client = Client::connect("http://tools.example/mcp").http(HyperSend::over(tcp)).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct HyperSend {
    pool: Arc<Pool>,
    /// Where proxies may read the requests, which of them want credentials.
    proxies: Option<Arc<Matcher>>,
}

/// How servers are reached.
#[derive(Clone, Debug)]
pub(crate) struct Reaching {
    pub(crate) proxies: Proxies,
    pub(crate) versions: Versions,
    pub(crate) connect_timeout: Duration,
}

impl Default for Reaching {
    fn default() -> Self {
        Self {
            proxies: Proxies::from_env(),
            versions: Versions::Negotiated,
            connect_timeout: CONNECT_TIMEOUT,
        }
    }
}

/// What sends to `uri` if nobody chose anything else.
pub(crate) fn sender(uri: &Uri, reaching: &Reaching) -> Result<Arc<dyn HttpSend>> {
    // Redirects do not leave the origin, so what begins without TLS never needs it.
    if uri.scheme() == Some(&http::uri::Scheme::HTTP) {
        return Ok(Arc::new(HyperSend::insecure(reaching)));
    }
    secure(reaching)
}

impl HyperSend {
    /// Over TCP, without TLS: for `http` only, and without reading the system's certificates; through the
    /// proxies that the environment names.
    #[must_use]
    pub fn plain() -> Self {
        Self::insecure(&Reaching::default())
    }

    /// Over connections that `connector` makes. Each must come about within 10 s.
    #[must_use]
    pub fn over(connector: impl Connector) -> Self {
        Self::over_within(connector, CONNECT_TIMEOUT)
    }

    /// Over connections that `connector` makes, each of which must come about within `connect_timeout`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use bowline::http::client::HyperSend;
    /// use hyper_util::client::legacy::connect::HttpConnector;
    ///
    /// let send = HyperSend::over_within(HttpConnector::new(), Duration::from_secs(3));
    /// ```
    #[must_use]
    pub fn over_within(connector: impl Connector, connect_timeout: Duration) -> Self {
        Self::by(Pool::over(connector, Versions::Negotiated, connect_timeout))
    }

    /// Over connections that `connector` makes, speaking HTTP/2 without asking first. Each must come about within 10 s.
    #[must_use]
    pub fn over_http2(connector: impl Connector) -> Self {
        Self::by(Pool::over(connector, Versions::Http2Only, CONNECT_TIMEOUT))
    }

    fn insecure(reaching: &Reaching) -> Self {
        let proxies = reaching.proxies.matcher();
        let tcp = TcpConnector::new(proxies.clone(), reaching.connect_timeout);
        let pool = Pool::over(tcp, reaching.versions, reaching.connect_timeout);
        Self::by(pool).through(proxies)
    }

    pub(super) fn by(pool: Pool) -> Self {
        Self {
            pool: Arc::new(pool),
            proxies: None,
        }
    }

    pub(super) fn through(mut self, proxies: Option<Arc<Matcher>>) -> Self {
        self.proxies = proxies;
        self
    }
}

impl HttpSend for HyperSend {
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

impl std::fmt::Debug for HyperSend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HyperSend").finish_non_exhaustive()
    }
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
