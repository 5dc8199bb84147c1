//! One connection to a server: how it is made, and how a request leaves by it; HTTP/2 is in `http2.rs`.

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

use super::closable::{Closable, Closer};
use super::http2::Shared;
use super::send::RequestBody;

/// Makes connections, as those of hyper-util and hyper-rustls do: a service from a server's URI to its bytes.
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

/// How the first bytes of a connection are spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Versions {
    /// HTTP/1.1, or what the TLS handshake says.
    Negotiated,
    /// HTTP/2, without asking first.
    Http2Only,
}

pub(super) enum Connection {
    Exclusive(Exclusive),
    Shared(Shared),
}

/// HTTP/1.1: has one request at a time.
pub(super) struct Exclusive {
    send: http1::SendRequest<RequestBody>,
    closer: Closer,
    /// Whether a proxy reads the requests, and so wants to know the whole URL.
    is_to_proxy: bool,
}

/// Why a request has no response.
pub(super) enum SendFailed {
    /// Nothing of it has left; here it is.
    Unsent(Box<Request<RequestBody>>, BoxError),
    /// The server said that it did not process it.
    Unprocessed(BoxError),
    /// The server may have processed it.
    Failed(BoxError),
}

impl Connection {
    /// Makes a connection, and has it driven up to its end.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes what there is of the connection.
    pub(super) async fn make(
        mut connector: impl Connector,
        uri: Uri,
        versions: Versions,
    ) -> Result<Self, BoxError> {
        let ready = poll_fn(|cx| connector.poll_ready(cx));
        ready.await.map_err(Into::into)?;
        let io = connector.call(uri).await.map_err(Into::into)?;
        let connected = connect::Connection::connected(&io);
        if versions == Versions::Http2Only || connected.is_negotiated_h2() {
            return Ok(Self::Shared(Shared::open(io).await?));
        }
        let (io, closer) = Closable::new(io);
        let (mut send, connection) = http1::handshake(io).await?;
        let driving = tokio::spawn(connection);
        must_be_open(send.ready().await, driving).await?;
        let is_to_proxy = connected.is_proxied();
        Ok(Self::Exclusive(Exclusive {
            send,
            closer,
            is_to_proxy,
        }))
    }
}

impl Exclusive {
    /// Sends a request, and waits for the head of its response.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection at once.
    pub(super) fn send(
        &mut self,
        mut request: Request<RequestBody>,
        host: &HeaderValue,
    ) -> impl Future<Output = Result<Response<Incoming>, SendFailed>> + use<> {
        let headers = request.headers_mut();
        headers.entry(HOST).or_insert_with(|| host.clone());
        let is_read = request.uri().scheme() == Some(&Scheme::HTTP);
        if !(self.is_to_proxy && is_read) {
            *request.uri_mut() = without_origin(request.uri());
        }
        let sending = self.send.try_send_request(request);
        let unanswered = self.closer.close_on_drop();
        async move {
            let sent = sending.await;
            unanswered.disarm();
            sent.map_err(|mut failed| match failed.take_message() {
                Some(unsent) => SendFailed::Unsent(Box::new(unsent), failed.into_error().into()),
                None => SendFailed::Failed(failed.into_error().into()),
            })
        }
    }

    /// Closes the connection, whatever is under way on it.
    pub(super) fn close(&self) {
        self.closer.close();
    }

    /// Whether it takes a request at once.
    pub(super) fn is_ready(&self) -> bool {
        self.send.is_ready()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.send.is_closed()
    }
}

/// If a connection takes no requests, whoever drives it knows better why.
async fn must_be_open(
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
