//! The ceiling for bridges: a hyper server and a hyper client that pass each request and its response on unchanged,
//! without a look into them.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// A byte stream.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for T {}

/// Serves one connection of a client until it is closed.
pub async fn serve_connection<S: Stream>(stream: impl Stream, upstream: Arc<UpstreamPool<S>>) {
    let service = service_fn(move |request| {
        let upstream = upstream.clone();
        async move { Ok::<_, Infallible>(forward(request, upstream).await) }
    });
    let builder = hyper::server::conn::http1::Builder::new();
    // Fails if the client closes the connection, at the end of a turn.
    let _ = builder
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn forward<S: Stream>(
    request: Request<Incoming>,
    upstream: Arc<UpstreamPool<S>>,
) -> Response<LeasedBody<S>> {
    let (head, body) = request.into_parts();
    // Requests are small, and one write for head and body is cheaper than two.
    let body = body.collect().await.expect("a request body").to_bytes();
    let mut connection = upstream.take().await;
    let request = Request::from_parts(head, Full::new(body));
    let response = connection.send_request(request).await.expect("a response");
    response.map(|body| LeasedBody {
        body,
        lease: Some((connection, upstream)),
    })
}

/// A stack of idle connections to the server.
pub struct UpstreamPool<S> {
    connect: ConnectFn<S>,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

/// Opens a connection to the server.
type ConnectFn<S> = Box<dyn Fn() -> Connecting<S> + Send + Sync>;
type Connecting<S> = Pin<Box<dyn Future<Output = io::Result<S>> + Send>>;

impl<S: Stream> UpstreamPool<S> {
    /// Creates a pool of connections that `connect` opens.
    pub fn new<F>(connect: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<S>> + Send + 'static,
    {
        Self {
            connect: Box::new(move || Box::pin(connect())),
            idle: Mutex::default(),
        }
    }

    async fn take(&self) -> SendRequest<Full<Bytes>> {
        let idle = self.lock().pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => self.open().await,
        };
        connection.ready().await.expect("a connection");
        connection
    }

    async fn open(&self) -> SendRequest<Full<Bytes>> {
        let stream = (self.connect)().await.expect("failed to connect");
        let (sender, connection) = handshake(TokioIo::new(stream)).await.expect("HTTP/1.1");
        tokio::spawn(connection);
        sender
    }
}

impl<S> UpstreamPool<S> {
    fn lock(&self) -> MutexGuard<'_, Vec<SendRequest<Full<Bytes>>>> {
        self.idle
            .lock()
            .expect("no thread panics while it holds the lock")
    }
}

/// The body of a response. Its connection is idle again when it has been read.
struct LeasedBody<S> {
    body: Incoming,
    lease: Option<(SendRequest<Full<Bytes>>, Arc<UpstreamPool<S>>)>,
}

impl<S> Body for LeasedBody<S> {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<S> Drop for LeasedBody<S> {
    fn drop(&mut self) {
        if let Some((connection, upstream)) = self.lease.take()
            && self.body.is_end_stream()
        {
            upstream.lock().push(connection);
        }
    }
}
