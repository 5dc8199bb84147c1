//! Opening a client connection, and sending requests on an HTTP/1.1 one; HTTP/2 is in `http2.rs`.

use std::error::Error as StdError;
use std::future::{Future, poll_fn};

use http::header::HOST;
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderValue, Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::rt::{Read, Write};
use hyper_util::client::legacy::connect::{self, Connection as _};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tower_service::Service;

use super::closable::{ClosableIo, Closer};
use super::http2::{Http2Connection, Http2Slot};
use super::send::RequestBody;
use crate::exchange::BoxFuture;

/// Opens the connections of a [`HyperClient`](super::HyperClient). An async function of a URI is a connector.
///
/// # Examples
///
/// A server that listens on a Unix domain socket:
///
/// ```no_run
/// # #[cfg(unix)]
/// # async fn example() -> bowline::Result<()> {
/// use bowline::Client;
/// use bowline::http::client::{HttpStream, HyperClient};
/// use tokio::net::UnixStream;
///
/// let connector = async |_: http::Uri| {
///     let stream = UnixStream::connect("/run/tools.sock").await?;
///     Ok(HttpStream::new(stream))
/// };
/// let http_client = HyperClient::with_connector(connector);
/// let client = Client::connect("http://localhost/mcp").http_client(http_client).await?;
/// # Ok(()) }
/// ```
pub trait Connector: Send + Sync + 'static {
    /// Opens a connection to the scheme and authority of `uri`, with TLS if the scheme is `https`.
    ///
    /// # Errors
    ///
    /// Any error becomes the source of an [`Error::Transport`](crate::Error::Transport).
    ///
    /// # Cancel safety
    ///
    /// The future is dropped after the connect timeout, and when the request that needs the connection is dropped.
    fn connect(
        &self,
        uri: Uri,
    ) -> BoxFuture<'static, Result<HttpStream, Box<dyn StdError + Send + Sync>>>;
}

impl<F, R> Connector for F
where
    F: Fn(Uri) -> R + Send + Sync + 'static,
    R: Future<Output = Result<HttpStream, BoxError>> + Send + 'static,
{
    fn connect(&self, uri: Uri) -> BoxFuture<'static, Result<HttpStream, BoxError>> {
        Box::pin(self(uri))
    }
}

/// A connection that a [`Connector`] has opened.
#[must_use = "dropping a connection closes it"]
pub struct HttpStream {
    io: Box<dyn HyperIo>,
    is_http2: bool,
    /// Whether requests go to a proxy, which needs the absolute URL in the request line.
    is_to_proxy: bool,
}

trait HyperIo: Read + Write + Unpin + Send {}

impl<T: Read + Write + Unpin + Send> HyperIo for T {}

impl HttpStream {
    /// Creates a connection for HTTP/1.1.
    pub fn new(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        Self {
            io: Box::new(TokioIo::new(io)),
            is_http2: false,
            is_to_proxy: false,
        }
    }

    /// Uses HTTP/2, because it was negotiated in the TLS handshake (ALPN `h2`).
    pub fn http2(mut self) -> Self {
        self.is_http2 = true;
        self
    }
}

impl std::fmt::Debug for HttpStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpStream")
            .field("is_http2", &self.is_http2)
            .finish_non_exhaustive()
    }
}

/// Returns a connector that calls a connector of hyper-util or hyper-rustls.
pub(super) fn service_connector<S>(service: S) -> impl Connector
where
    S: Service<
            Uri,
            Response: connect::Connection + Read + Write + Unpin + Send + 'static,
            Error: Into<BoxError>,
            Future: Send,
        >,
    S: Clone + Send + Sync + 'static,
{
    move |uri| {
        let mut service = service.clone();
        async move {
            let ready = poll_fn(|cx| service.poll_ready(cx));
            ready.await.map_err(Into::into)?;
            let io = service.call(uri).await.map_err(Into::into)?;
            let connected = io.connected();
            Ok(HttpStream {
                io: Box::new(io),
                is_http2: connected.is_negotiated_h2(),
                is_to_proxy: connected.is_proxied(),
            })
        }
    }
}

/// How the HTTP version of a connection is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HttpVersionPolicy {
    /// By ALPN in the TLS handshake; HTTP/1.1 without TLS.
    Negotiated,
    /// HTTP/2 with prior knowledge.
    Http2Only,
}

pub(super) enum HttpConnection {
    Http1(Http1Connection),
    Http2(Http2Slot),
}

/// An HTTP/1.1 connection, which carries one request at a time.
pub(super) struct Http1Connection {
    send: http1::SendRequest<RequestBody>,
    closer: Closer,
    /// Whether requests go to a proxy, which needs the absolute URL in the request line.
    is_to_proxy: bool,
}

/// Why a request got no response.
pub(super) enum SendFailed {
    /// None of it was written; returned to be sent again.
    Unsent(Box<Request<RequestBody>>, BoxError),
    /// The server reported that it did not process the request.
    Unprocessed(BoxError),
    /// The server may have processed the request.
    Failed(BoxError),
}

impl HttpConnection {
    /// Starts HTTP on a connection and spawns the task that drives it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub(super) async fn open(
        stream: HttpStream,
        version_policy: HttpVersionPolicy,
    ) -> Result<Self, BoxError> {
        if version_policy == HttpVersionPolicy::Http2Only || stream.is_http2 {
            return Ok(Self::Http2(Http2Connection::open(stream.io).await?));
        }
        let (io, closer) = ClosableIo::new(stream.io);
        let (mut send, connection) = http1::handshake(io).await?;
        let driving = tokio::spawn(connection);
        check_open(send.ready().await, driving).await?;
        Ok(Self::Http1(Http1Connection {
            send,
            closer,
            is_to_proxy: stream.is_to_proxy,
        }))
    }
}

impl Http1Connection {
    /// Sends a request and waits for the head of its response.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection synchronously.
    pub(super) fn send(
        &mut self,
        mut request: Request<RequestBody>,
        host: &HeaderValue,
    ) -> impl Future<Output = Result<Response<Incoming>, SendFailed>> + use<> {
        let headers = request.headers_mut();
        headers.entry(HOST).or_insert_with(|| host.clone());
        let is_plain_http = request.uri().scheme() == Some(&Scheme::HTTP);
        if !(self.is_to_proxy && is_plain_http) {
            *request.uri_mut() = without_origin(request.uri());
        }
        let sending = self.send.try_send_request(request);
        let close_guard = self.closer.close_on_drop();
        async move {
            let sent = sending.await;
            close_guard.disarm();
            sent.map_err(|mut failed| match failed.take_message() {
                Some(unsent) => SendFailed::Unsent(Box::new(unsent), failed.into_error().into()),
                None => SendFailed::Failed(failed.into_error().into()),
            })
        }
    }

    /// Closes the connection, aborting the request on it.
    pub(super) fn close(&self) {
        self.closer.close();
    }

    /// Returns whether it can take a request now.
    pub(super) fn is_ready(&self) -> bool {
        self.send.is_ready()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.send.is_closed()
    }
}

/// Returns the error of the connection task if the connection has failed: it is more specific than that of `ready`.
async fn check_open(
    ready: hyper::Result<()>,
    driving: JoinHandle<hyper::Result<()>>,
) -> Result<(), BoxError> {
    let Err(closed) = ready else { return Ok(()) };
    match driving.await {
        Ok(Err(why)) => Err(why.into()),
        _ => Err(closed.into()),
    }
}

fn without_origin(uri: &Uri) -> Uri {
    let path = uri.path_and_query().cloned();
    path.unwrap_or_else(|| PathAndQuery::from_static("/"))
        .into()
}

pub(super) type BoxError = Box<dyn StdError + Send + Sync>;
