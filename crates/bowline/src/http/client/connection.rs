//! Opening a client connection, and sending requests on an HTTP/1.1 one; HTTP/2 is in `http2.rs`.

use std::error::Error as StdError;
use std::future::{Future, poll_fn};

use http::header::HOST;
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderValue, Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::rt::{Read, Write};
use hyper_util::client::legacy::connect;
use tokio::task::JoinHandle;
use tower_service::Service;

use super::closable::{ClosableIo, Closer};
use super::http2::Http2Connection;
use super::send::RequestBody;

/// Opens connections: a `tower` service from a URI to an I/O stream, like those of hyper-util and hyper-rustls.
pub trait Connector:
    Service<
        Uri,
        Response: connect::Connection + Read + Write + Unpin + Send + 'static,
        Error: Into<Box<dyn StdError + Send + Sync>>,
        Future: Send,
    > + Clone
    + Send
    + Sync
    + 'static
{
}

impl<S> Connector for S where
    S: Service<
            Uri,
            Response: connect::Connection + Read + Write + Unpin + Send + 'static,
            Error: Into<Box<dyn StdError + Send + Sync>>,
            Future: Send,
        > + Clone
        + Send
        + Sync
        + 'static
{
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
    Http2(Http2Connection),
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
    /// Opens a connection and spawns the task that drives it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub(super) async fn open(
        mut connector: impl Connector,
        uri: Uri,
        version_policy: HttpVersionPolicy,
    ) -> Result<Self, BoxError> {
        let ready = poll_fn(|cx| connector.poll_ready(cx));
        ready.await.map_err(Into::into)?;
        let io = connector.call(uri).await.map_err(Into::into)?;
        let connected = connect::Connection::connected(&io);
        if version_policy == HttpVersionPolicy::Http2Only || connected.is_negotiated_h2() {
            return Ok(Self::Http2(Http2Connection::open(io).await?));
        }
        let (io, closer) = ClosableIo::new(io);
        let (mut send, connection) = http1::handshake(io).await?;
        let driving = tokio::spawn(connection);
        check_open(send.ready().await, driving).await?;
        let is_to_proxy = connected.is_proxied();
        Ok(Self::Http1(Http1Connection {
            send,
            closer,
            is_to_proxy,
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
