//! Sending through hyper: over which connections, through which proxies.

use std::sync::Arc;

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
/// Over connections of your own making, here such as must come about within three seconds:
///
/// ```no_run
/// # async fn example() -> bowline::Result<()> {
/// use std::time::Duration;
///
/// use bowline::{Client, http::client::HyperSend};
/// use hyper_util::client::legacy::connect::HttpConnector;
///
/// let mut tcp = HttpConnector::new();
/// tcp.set_connect_timeout(Some(Duration::from_secs(3)));
/// let client = Client::connect("http://tools.example/mcp").http(HyperSend::over(tcp)).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct HyperSend {
    pool: Arc<Pool>,
    /// Where proxies may read the requests, which of them want credentials.
    proxies: Option<Arc<Matcher>>,
}

/// What sends to `uri` if nobody chose anything else.
pub(crate) fn sender(
    uri: &Uri,
    proxies: &Proxies,
    versions: Versions,
) -> Result<Arc<dyn HttpSend>> {
    // Redirects do not leave the origin, so what begins without TLS never needs it.
    if uri.scheme() == Some(&http::uri::Scheme::HTTP) {
        return Ok(Arc::new(HyperSend::insecure(proxies, versions)));
    }
    secure(proxies, versions)
}

impl HyperSend {
    /// Over TCP, without TLS: for `http` only, and without reading the system's certificates; through the
    /// proxies that the environment names.
    #[must_use]
    pub fn plain() -> Self {
        Self::insecure(&Proxies::from_env(), Versions::Negotiated)
    }

    /// Over connections that `connector` makes.
    #[must_use]
    pub fn over(connector: impl Connector) -> Self {
        Self::by(Pool::over(connector, Versions::Negotiated))
    }

    /// Over connections that `connector` makes, speaking HTTP/2 without asking first.
    #[must_use]
    pub fn over_http2(connector: impl Connector) -> Self {
        Self::by(Pool::over(connector, Versions::Http2Only))
    }

    fn insecure(proxies: &Proxies, versions: Versions) -> Self {
        let proxies = proxies.matcher();
        let tcp = TcpConnector::new(proxies.clone());
        Self::by(Pool::over(tcp, versions)).through(proxies)
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
