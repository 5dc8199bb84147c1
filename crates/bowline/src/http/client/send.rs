//! How one HTTP request leaves this process.

use std::error::Error as StdError;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{self, Poll};

use bytes::Bytes;
use http::header::PROXY_AUTHORIZATION;
use http::{Request, Response, Uri};
use http_body::{Body, Frame, SizeHint};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::Connect;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::Instant;

use super::body::ResponseBody;
use super::proxy::{Proxies, TcpConnector, authorization};
use super::tls::secure;
use crate::exchange::BoxFuture;
use crate::{Error, Result};

/// Sends HTTP requests.
///
/// # Cancel safety
///
/// Dropping the future, or the body of the response, must abandon the request: on HTTP/1.1 by closing the
/// connection, on HTTP/2 by resetting the stream. That is how a server learns that a call was dropped.
///
/// # Examples
///
/// Counting what is sent:
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use bowline::exchange::BoxFuture;
/// use bowline::http::client::{HttpSend, RequestBody, ResponseBody};
/// use http::{Request, Response};
///
/// struct Counting<S> {
///     inner: S,
///     sent: AtomicU64,
/// }
///
/// impl<S: HttpSend> HttpSend for Counting<S> {
///     fn send(
///         &self,
///         request: Request<RequestBody>,
///     ) -> BoxFuture<'static, bowline::Result<Response<ResponseBody>>> {
///         self.sent.fetch_add(1, Ordering::Relaxed);
///         self.inner.send(request)
///     }
/// }
/// ```
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

/// Where the body of a request is: with us, with a connection, or taken back before a connection had it. What is with
/// a connection cannot be taken back, but it can be unwanted: then nobody is asked about it if it is refused.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handed(Arc<Place>);

#[derive(Debug, Default)]
struct Place {
    place: AtomicU8,
    /// When a connection got the body.
    since: Mutex<Option<Instant>>,
}

impl Handed {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Takes the body back; it never leaves then. Whether that was still possible.
    pub(crate) fn withdraw(&self) -> bool {
        let is_withdrawn = self.settle(WITHDRAWN);
        let _ = self.change(HANDED_OVER, UNWANTED);
        is_withdrawn
    }

    /// Gives the body to a connection. Whether it was not taken back before.
    fn hand_over(&self) -> bool {
        let is_over = self.settle(HANDED_OVER) || self.settle(UNWANTED);
        if is_over {
            self.lock().get_or_insert_with(Instant::now);
        }
        is_over
    }

    /// When a connection got the body; now, if it is just getting it.
    pub(crate) fn since(&self) -> Instant {
        self.lock().unwrap_or_else(Instant::now)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        // No code that could panic runs under this lock.
        self.0.since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The request was refused, so that it is as if it had not been handed over. Whether it is still wanted.
    pub(super) fn take_back(&self) -> bool {
        *self.lock() = None;
        let _ = self.change(HANDED_OVER, WITH_US);
        self.0.place.load(Ordering::Acquire) == WITH_US
    }

    /// Decides where the body is, unless that is decided. Whether it is there.
    fn settle(&self, place: u8) -> bool {
        let decided = self.change(WITH_US, place);
        decided.is_ok() || decided == Err(place)
    }

    fn change(&self, from: u8, to: u8) -> std::result::Result<u8, u8> {
        self.0
            .place
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
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
    pub(super) fn again(&self) -> Self {
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
        let Some(bytes) = self.bytes.take() else {
            return Poll::Ready(None);
        };
        Poll::Ready(Some(match self.handed_over.hand_over() {
            true => Ok(Frame::data(bytes)),
            false => Err(Withdrawn),
        }))
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
pub struct HyperSend<C = TcpConnector> {
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

impl HyperSend<TcpConnector> {
    /// Over TCP, without TLS: for `http` only, and without reading the system's certificates; through the
    /// proxies that the environment names.
    #[must_use]
    pub fn plain() -> Self {
        Self::insecure(&Proxies::from_env(), Versions::Negotiated)
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
    secure(proxies, versions)
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

    pub(super) fn speaking(versions: Versions, connector: C) -> Self {
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

    /// The TLS handshake decides how many requests a connection carries at once.
    #[cfg(feature = "tls")]
    pub(super) fn shared(mut self) -> Self {
        self.connections = Connections::Shared;
        self
    }

    pub(super) fn through(mut self, proxies: Option<Arc<Matcher>>) -> Self {
        self.proxies = proxies;
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
                    Err(error) if error.is_connect() && was_left_waiting(&error) => {}
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
pub(super) fn was_left_waiting(no_connection: &(dyn StdError + 'static)) -> bool {
    let mut next = Some(no_connection);
    while let Some(cause) = next {
        if cause.to_string() == NO_LONGER_WANTED {
            return true;
        }
        next = cause.source();
    }
    false
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
const UNWANTED: u8 = 3;

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

    #[tokio::test]
    async fn a_request_that_is_refused_was_not_sent_unless_it_is_unwanted() {
        let refused = || {
            let handed = Handed::new();
            let body = RequestBody::new(Bytes::from_static(b"{}"), handed.clone());
            let _ = body.into_bytes();
            handed
        };
        let (wanted, unwanted) = (refused(), refused());
        assert!(!unwanted.withdraw());

        assert!(wanted.take_back());
        assert!(!unwanted.take_back());

        assert!(wanted.withdraw(), "it is with us again");
    }
}
