//! `raw-proxy`: the ceiling for bridges. A hyper server and a hyper client that pass each request and its response on
//! unchanged, without a look into them.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use bench_fixture::ProxyOptions;
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

fn main() {
    let options = ProxyOptions::read();
    bench_fixture::block_on(options.runtime, serve(options));
}

async fn serve(options: ProxyOptions) {
    let listener = TcpListener::bind(("127.0.0.1", options.port)).await;
    let listener = listener.expect("failed to bind");
    bench_fixture::print_address(listener.local_addr().expect("a bound socket"));
    let upstream = Arc::new(UpstreamPool::new(&options.url));
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        let _ = stream.set_nodelay(true);
        tokio::spawn(connection(stream, upstream.clone()));
    }
}

async fn connection(stream: TcpStream, upstream: Arc<UpstreamPool>) {
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

async fn forward(request: Request<Incoming>, upstream: Arc<UpstreamPool>) -> Response<LeasedBody> {
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
struct UpstreamPool {
    authority: String,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

impl UpstreamPool {
    fn new(url: &str) -> Self {
        let url: http::Uri = url.parse().expect("a URL");
        let authority = url.authority().expect("a URL with an authority");
        Self {
            authority: authority.to_string(),
            idle: Mutex::default(),
        }
    }

    async fn take(&self) -> SendRequest<Full<Bytes>> {
        let idle = self.lock().pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => self.connect().await,
        };
        connection.ready().await.expect("a connection");
        connection
    }

    async fn connect(&self) -> SendRequest<Full<Bytes>> {
        let stream = TcpStream::connect(&self.authority).await;
        let stream = stream.expect("failed to connect");
        let _ = stream.set_nodelay(true);
        let (sender, connection) = handshake(TokioIo::new(stream)).await.expect("HTTP/1.1");
        tokio::spawn(connection);
        sender
    }

    fn lock(&self) -> MutexGuard<'_, Vec<SendRequest<Full<Bytes>>>> {
        self.idle
            .lock()
            .expect("no thread panics while it holds the lock")
    }
}

/// The body of a response. Its connection is idle again when it has been read.
struct LeasedBody {
    body: Incoming,
    lease: Option<(SendRequest<Full<Bytes>>, Arc<UpstreamPool>)>,
}

impl Body for LeasedBody {
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

impl Drop for LeasedBody {
    fn drop(&mut self) {
        if let Some((connection, upstream)) = self.lease.take()
            && self.body.is_end_stream()
        {
            upstream.lock().push(connection);
        }
    }
}
