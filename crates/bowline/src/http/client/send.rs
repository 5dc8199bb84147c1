//! How one HTTP request leaves this process.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{self, Poll};

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body::{Body, Frame, SizeHint};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::sync::watch;

use super::body::ResponseBody;
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

/// Tells when the body of a request was handed to a connection.
#[derive(Clone, Debug)]
pub(crate) struct Handed {
    flag: Arc<AtomicBool>,
    told: watch::Sender<bool>,
}

impl Handed {
    pub(crate) fn new() -> Self {
        Self {
            flag: Arc::default(),
            told: watch::Sender::new(false),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.flag.load(Ordering::Acquire)
    }

    /// The request was refused, so that it is as if it had not been handed over.
    pub(super) fn take_back(&self) {
        self.flag.store(false, Ordering::Release);
        self.told.send_replace(false);
    }

    fn hand_over(&self) {
        self.flag.store(true, Ordering::Release);
        self.told.send_replace(true);
    }
}

impl RequestBody {
    pub(crate) fn new(bytes: Bytes, handed_over: Handed) -> Self {
        Self {
            bytes: Some(bytes),
            handed_over,
        }
    }

    /// All of the body, for senders that want it in one piece.
    #[must_use]
    pub fn into_bytes(mut self) -> Bytes {
        self.handed_over.hand_over();
        self.bytes.take().unwrap_or_default()
    }
}

impl From<Bytes> for RequestBody {
    fn from(bytes: Bytes) -> Self {
        Self::new(bytes, Handed::new())
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.handed_over.hand_over();
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
#[derive(Clone)]
pub struct HyperSend<C = HttpsConnector<HttpConnector>> {
    client: Client<C, RequestBody>,
}

impl HyperSend {
    /// Over TCP, with TLS for `https`; HTTP/2 where the server offers it in the TLS handshake.
    ///
    /// # Errors
    ///
    /// If the system's certificates cannot be read.
    pub fn new() -> Result<Self> {
        let tls = HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(rustls::crypto::ring::default_provider())
            .map_err(|error| Error::Transport {
                what: "the system's certificates cannot be read".into(),
                source: Some(error.into()),
            })?;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let connector = tls
            .https_or_http()
            .enable_all_versions()
            .wrap_connector(tcp);
        Ok(Self::over(connector))
    }
}

impl HyperSend<HttpConnector> {
    /// Over TCP, without TLS: for `http` only, and without reading the system's certificates.
    #[must_use]
    pub fn plain() -> Self {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        Self::over(tcp)
    }
}

impl<C: Connect + Clone + Send + Sync + 'static> HyperSend<C> {
    /// Over connections that `connector` makes.
    #[must_use]
    pub fn over(connector: C) -> Self {
        Self {
            client: Self::builder().build(connector),
        }
    }

    /// Over connections that `connector` makes, speaking HTTP/2 without asking first.
    #[must_use]
    pub fn over_http2(connector: C) -> Self {
        Self {
            client: Self::builder().http2_only(true).build(connector),
        }
    }

    fn builder() -> hyper_util::client::legacy::Builder {
        let mut builder = Client::builder(TokioExecutor::new());
        builder
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new());
        builder
    }
}

impl<C: Connect + Clone + Send + Sync + 'static> HttpSend for HyperSend<C> {
    fn send(
        &self,
        request: Request<RequestBody>,
    ) -> BoxFuture<'static, Result<Response<ResponseBody>>> {
        let uri = request.uri().clone();
        let sending = self.client.request(request);
        Box::pin(async move {
            let response = sending.await.map_err(|error| unreachable(&uri, error))?;
            Ok(response.map(ResponseBody::new))
        })
    }
}

impl<C> std::fmt::Debug for HyperSend<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HyperSend").finish_non_exhaustive()
    }
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
