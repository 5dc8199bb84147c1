//! How one HTTP request leaves this process.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{self, Poll};

use bytes::Bytes;
use http::header::PROXY_AUTHORIZATION;
use http::{Request, Response, Uri};
use http_body::{Body, Frame, SizeHint};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::Connect;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::body::ResponseBody;
use super::proxy::{Proxies, TcpConnector, authorization};
use crate::exchange::BoxFuture;
use crate::{Error, Result};

/// Sends HTTP requests.
///
/// # Cancel safety
///
/// Dropping the future, or the body of the response, must abandon the request: on HTTP/1.1 by closing the
/// connection, on HTTP/2 by resetting the stream. That is how a server learns that a call was dropped.
pub trait HttpSend: Send + Sync + 'static {
    /// Sends one request and waits for the head of its response.
    fn send(
        &self,
        request: Request<RequestBody>,
    ) -> BoxFuture<'static, Result<Response<ResponseBody>>>;
}

/// The body of a request: one frame of bytes.
#[derive(Debug)]
pub struct RequestBody {
    bytes: Option<Bytes>,
    handed_over: Handed,
}

/// Where the body of a request is: with us, with a connection, or taken back before a connection had it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handed(Arc<AtomicU8>);

impl Handed {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Takes the body back; it never leaves then. Whether that was still possible.
    pub(crate) fn withdraw(&self) -> bool {
        self.settle(WITHDRAWN)
    }

    /// Gives the body to a connection. Whether it was not taken back before.
    fn hand_over(&self) -> bool {
        self.settle(HANDED_OVER)
    }

    /// The request was refused, so that it is as if it had not been handed over.
    pub(super) fn take_back(&self) {
        let _ = self
            .0
            .compare_exchange(HANDED_OVER, WITH_US, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Decides where the body is, unless that is decided. Whether it is there.
    fn settle(&self, place: u8) -> bool {
        let decided = self
            .0
            .compare_exchange(WITH_US, place, Ordering::AcqRel, Ordering::Acquire);
        decided.is_ok() || decided == Err(place)
    }
}

/// The request was given up before its body was sent.
#[derive(Debug, thiserror::Error)]
#[error("the request was withdrawn before it was sent")]
#[non_exhaustive]
pub struct Withdrawn;

impl RequestBody {
    pub(crate) fn new(bytes: Bytes, handed_over: Handed) -> Self {
        Self {
            bytes: Some(bytes),
            handed_over,
        }
    }

    /// The same body, for a request that did not get as far as a connection.
    fn again(&self) -> Self {
        Self::new(
            self.bytes.clone().unwrap_or_default(),
            self.handed_over.clone(),
        )
    }

    /// All of the body, for senders that want it in one piece; nothing, if the request was withdrawn.
    #[must_use]
    pub fn into_bytes(mut self) -> Bytes {
        let bytes = self.bytes.take().filter(|_| self.handed_over.hand_over());
        bytes.unwrap_or_default()
    }
}

impl From<Bytes> for RequestBody {
    fn from(bytes: Bytes) -> Self {
        Self::new(bytes, Handed::new())
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Withdrawn;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Withdrawn>>> {
        if !self.handed_over.hand_over() {
            return Poll::Ready(Some(Err(Withdrawn)));
        }
        Poll::Ready(self.bytes.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

/// Sends through hyper, over pooled connections.
///
/// # Examples
///
/// Over connections of your own making, here in TLS that trusts nobody else:
///
/// ```no_run
/// # fn own_connector() -> hyper_util::client::legacy::connect::HttpConnector { todo!() }
/// # async fn example() -> bowline::Result<()> {
/// use bowline::{Client, http::client::HyperSend};
///
/// let send = HyperSend::over(own_connector());
/// let client = Client::connect("https://tools.example/mcp").http(send).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct HyperSend<C = HttpsConnector<TcpConnector>> {
    client: Client<C, RequestBody>,
    /// Where proxies may read the requests, which of them want credentials.
    proxies: Option<Arc<Matcher>>,
    connections: Connections,
}

/// How the first bytes of a connection are spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Versions {
    /// HTTP/1.1, or what the TLS handshake says.
    Negotiated,
    /// HTTP/2, without asking first.
    Http2Only,
}

/// How many requests a connection carries at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connections {
    /// One.
    Exclusive,
    /// Many, so that one request waits for a connection that another makes.
    Shared,
}

impl HyperSend {
    /// Over TCP, with TLS for `https`; HTTP/2 where the server offers it in the TLS handshake; through the
    /// proxies that the environment names.
    ///
    /// # Errors
    ///
    /// If the system's certificates cannot be read.
    pub fn new() -> Result<Self> {
        Self::secure(&Proxies::from_env(), Versions::Negotiated)
    }

    fn secure(proxies: &Proxies, versions: Versions) -> Result<Self> {
        let tls = HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(rustls::crypto::ring::default_provider())
            .map_err(|error| Error::Transport {
                what: "the system's certificates cannot be read".into(),
                source: Some(error.into()),
            })?;
        let proxies = proxies.matcher();
        let tcp = TcpConnector::new(proxies.clone());
        let tls = tls.https_or_http();
        let connector = match versions {
            Versions::Negotiated => tls.enable_all_versions().wrap_connector(tcp),
            Versions::Http2Only => tls.enable_http2().wrap_connector(tcp),
        };
        Ok(Self {
            connections: Connections::Shared,
            ..Self::speaking(versions, connector).through(proxies)
        })
    }
}

impl HyperSend<TcpConnector> {
    /// Over TCP, without TLS: for `http` only, and without reading the system's certificates; through the
    /// proxies that the environment names.
    #[must_use]
    pub fn plain() -> Self {
        Self::insecure(&Proxies::from_env(), Versions::Negotiated)
    }

    /// Over TCP, without TLS, speaking HTTP/2 without asking first: for servers that are known to.
    #[must_use]
    pub fn plain_http2() -> Self {
        Self::insecure(&Proxies::from_env(), Versions::Http2Only)
    }

    fn insecure(proxies: &Proxies, versions: Versions) -> Self {
        let proxies = proxies.matcher();
        Self::speaking(versions, TcpConnector::new(proxies.clone())).through(proxies)
    }
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
    Ok(Arc::new(HyperSend::secure(proxies, versions)?))
}

impl<C: Connect + Clone + Send + Sync + 'static> HyperSend<C> {
    /// Over connections that `connector` makes.
    #[must_use]
    pub fn over(connector: C) -> Self {
        Self::speaking(Versions::Negotiated, connector)
    }

    /// Over connections that `connector` makes, speaking HTTP/2 without asking first.
    #[must_use]
    pub fn over_http2(connector: C) -> Self {
        Self::speaking(Versions::Http2Only, connector)
    }

    fn speaking(versions: Versions, connector: C) -> Self {
        let mut builder = Client::builder(TokioExecutor::new());
        builder
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .http2_only(versions == Versions::Http2Only);
        Self {
            client: builder.build(connector),
            proxies: None,
            connections: match versions {
                Versions::Negotiated => Connections::Exclusive,
                Versions::Http2Only => Connections::Shared,
            },
        }
    }

    fn through(mut self, proxies: Arc<Matcher>) -> Self {
        self.proxies = Some(proxies);
        self
    }
}

impl<C: Connect + Clone + Send + Sync + 'static> HttpSend for HyperSend<C> {
    fn send(
        &self,
        mut request: Request<RequestBody>,
    ) -> BoxFuture<'static, Result<Response<ResponseBody>>> {
        let (client, uri) = (self.client.clone(), request.uri().clone());
        let proxies = self.proxies.as_ref();
        if let Some(credentials) = proxies.and_then(|proxies| authorization(proxies, &uri)) {
            request
                .headers_mut()
                .insert(PROXY_AUTHORIZATION, credentials);
        }
        if self.connections == Connections::Exclusive {
            let sending = client.request(request);
            return Box::pin(async move {
                let response = sending.await.map_err(|error| unreachable(&uri, error))?;
                Ok(response.map(ResponseBody::new))
            });
        }
        let (head, body) = request.into_parts();
        Box::pin(async move {
            loop {
                let request = Request::from_parts(head.clone(), body.again());
                match client.request(request).await {
                    Ok(response) => return Ok(response.map(ResponseBody::new)),
                    // Whoever was making the connection has let go. Somebody else has to make it.
                    Err(error) if was_left_waiting(&error) => {}
                    Err(error) => return Err(unreachable(&uri, error)),
                }
            }
        })
    }
}

impl<C> std::fmt::Debug for HyperSend<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HyperSend").finish_non_exhaustive()
    }
}

/// Whether a request waited for a connection that another request was making, and that one was dropped. It
/// never left then. Hyper has no name for that, only words.
fn was_left_waiting(error: &hyper_util::client::legacy::Error) -> bool {
    let reason = std::error::Error::source(error).map(ToString::to_string);
    error.is_connect() && reason.as_deref() == Some(NO_LONGER_WANTED)
}

fn unreachable(uri: &Uri, error: hyper_util::client::legacy::Error) -> Error {
    let what = match error.is_connect() {
        true => format!("no connection to {uri}"),
        false => format!("the request to {uri} failed"),
    };
    Error::Transport {
        what,
        source: Some(error.into()),
    }
}

const NO_LONGER_WANTED: &str = "request was canceled";
const WITH_US: u8 = 0;
const HANDED_OVER: u8 = 1;
const WITHDRAWN: u8 = 2;

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    async fn first_piece(body: RequestBody) -> Option<Result<Bytes, Withdrawn>> {
        let mut body = std::pin::pin!(body);
        let frame = poll_fn(|cx| body.as_mut().poll_frame(cx)).await?;
        Some(frame.map(|frame| frame.into_data().unwrap()))
    }

    #[tokio::test]
    async fn a_body_that_was_withdrawn_never_leaves() {
        let handed = Handed::new();
        let body = || RequestBody::new(Bytes::from_static(b"{}"), handed.clone());

        assert!(handed.withdraw());

        assert!(matches!(first_piece(body()).await, Some(Err(Withdrawn))));
        assert_eq!(body().into_bytes(), "");
        assert!(handed.withdraw(), "it still is");
    }

    #[tokio::test]
    async fn a_body_that_a_connection_has_cannot_be_withdrawn() {
        let handed = Handed::new();
        let body = || RequestBody::new(Bytes::from_static(b"{}"), handed.clone());

        assert!(matches!(first_piece(body()).await, Some(Ok(bytes)) if bytes == "{}"));

        assert!(!handed.withdraw());
        assert_eq!(body().into_bytes(), "{}", "as when a request is sent again");
    }
}
