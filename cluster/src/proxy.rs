//! [`RoundRobinProxy`]: a load balancer that sends each request to the next replica.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::header::{CONNECTION, HeaderName, TRANSFER_ENCODING};
use http::{Request, Response, StatusCode, Uri, Version};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// Which requests go to the same replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stickiness {
    /// None: each request goes to the next replica, also within one connection.
    Never,
    /// Those of one connection. A client with several connections reaches several replicas.
    Connection,
}

/// A proxy for HTTP/1.1 and for HTTP/2 without TLS, as a load balancer without sessions is.
///
/// A replica that refuses the connection is skipped, for the request was not sent. Any other failure is a 502: the
/// request may have run. Dropping the proxy closes its connections.
#[derive(Debug)]
pub struct RoundRobinProxy {
    address: SocketAddr,
    backends: Arc<Backends>,
    accepting: JoinHandle<()>,
}

impl RoundRobinProxy {
    /// Listens on a free port of the loopback interface.
    ///
    /// # Errors
    ///
    /// If no port can be bound.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is left if it is dropped.
    pub async fn start(stickiness: Stickiness, replicas: Vec<SocketAddr>) -> std::io::Result<Self> {
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        Self::start_at(any_port, stickiness, replicas).await
    }

    /// Listens on this address, such as that of a proxy that was dropped.
    ///
    /// # Errors
    ///
    /// If it cannot be bound.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is left if it is dropped.
    pub async fn start_at(
        address: SocketAddr,
        stickiness: Stickiness,
        replicas: Vec<SocketAddr>,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let backends = Arc::new(Backends::new(stickiness, replicas));
        let accepting = tokio::spawn(accept(listener, backends.clone()));
        Ok(Self {
            address,
            backends,
            accepting,
        })
    }

    /// Returns the address that clients connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL of the endpoint.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Replaces the replicas, for requests that come afterwards.
    pub fn set_replicas(&self, replicas: Vec<SocketAddr>) {
        *self.backends.lock() = replicas;
    }

    /// Returns how many requests were passed on.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.backends.requests.load(Ordering::Relaxed)
    }

    /// Returns how many responses opened a session of a legacy client.
    #[must_use]
    pub fn opened_sessions(&self) -> u64 {
        self.backends.opened_sessions.load(Ordering::Relaxed)
    }

    /// Returns how many requests were answered with 404: their session does not exist.
    #[must_use]
    pub fn unknown_sessions(&self) -> u64 {
        self.backends.unknown_sessions.load(Ordering::Relaxed)
    }

    /// Returns how many requests were answered with 502.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.backends.failures.load(Ordering::Relaxed)
    }
}

impl Drop for RoundRobinProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// The replicas, and the connections to them.
#[derive(Debug)]
struct Backends {
    stickiness: Stickiness,
    replicas: Mutex<Vec<SocketAddr>>,
    next: AtomicUsize,
    http1: Client<HttpConnector, ProxyBody>,
    http2: Client<HttpConnector, ProxyBody>,
    requests: AtomicU64,
    failures: AtomicU64,
    opened_sessions: AtomicU64,
    unknown_sessions: AtomicU64,
}

type ProxyBody = BoxBody<Bytes, hyper::Error>;

impl Backends {
    fn new(stickiness: Stickiness, replicas: Vec<SocketAddr>) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = || Client::builder(TokioExecutor::new());
        Self {
            stickiness,
            replicas: Mutex::new(replicas),
            next: AtomicUsize::new(0),
            http1: client().build(connector.clone()),
            http2: client().http2_only(true).build(connector),
            requests: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            opened_sessions: AtomicU64::new(0),
            unknown_sessions: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<SocketAddr>> {
        self.replicas.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all replicas, the next one first.
    fn in_turn(&self) -> Vec<SocketAddr> {
        let mut replicas = self.lock().clone();
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        if !replicas.is_empty() {
            let first = turn % replicas.len();
            replicas.rotate_left(first);
        }
        replicas
    }

    async fn forward(
        &self,
        request: Request<Incoming>,
        candidates: &[SocketAddr],
    ) -> Response<ProxyBody> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let (head, body) = request.into_parts();
        // Requests are small. Collected, so that one can be sent to the next replica if this one refuses the connection.
        let Ok(body) = body.collect().await else {
            return plain(StatusCode::BAD_REQUEST);
        };
        let body = body.to_bytes();
        let client = match head.version {
            Version::HTTP_2 => &self.http2,
            _ => &self.http1,
        };
        for replica in candidates {
            let Ok(request) = rebuild(&head, *replica, body.clone()) else {
                return plain(StatusCode::BAD_REQUEST);
            };
            match client.request(request).await {
                Ok(mut response) => {
                    self.count(&response);
                    // They are about the connection to the replica.
                    for header in HOP_BY_HOP {
                        response.headers_mut().remove(header);
                    }
                    return response.map(BodyExt::boxed);
                }
                Err(error) if error.is_connect() => {}
                Err(_) => break,
            }
        }
        self.failures.fetch_add(1, Ordering::Relaxed);
        plain(StatusCode::BAD_GATEWAY)
    }

    fn count(&self, response: &Response<Incoming>) {
        if response.headers().contains_key(SESSION_ID) {
            self.opened_sessions.fetch_add(1, Ordering::Relaxed);
        }
        if response.status() == StatusCode::NOT_FOUND {
            self.unknown_sessions.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Returns the request with the address of a replica, and the `Host` of the client.
fn rebuild(
    head: &http::request::Parts,
    replica: SocketAddr,
    body: Bytes,
) -> Result<Request<ProxyBody>, http::Error> {
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    let uri: Uri = format!("http://{replica}{path}").parse()?;
    let mut request = Request::new(Full::new(body).map_err(|never| match never {}).boxed());
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = uri;
    *request.version_mut() = head.version;
    *request.headers_mut() = head.headers.clone();
    for header in HOP_BY_HOP {
        request.headers_mut().remove(header);
    }
    Ok(request)
}

fn plain(status: StatusCode) -> Response<ProxyBody> {
    let mut response = Response::new(Empty::new().map_err(|never| match never {}).boxed());
    *response.status_mut() = status;
    response
}

async fn accept(listener: TcpListener, backends: Arc<Backends>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        connections.spawn(serve(stream, backends.clone()));
    }
}

async fn serve(stream: TcpStream, backends: Arc<Backends>) {
    // An error ends the connection, as it would without the proxy.
    let _ = stream.set_nodelay(true);
    let of_connection = match backends.stickiness {
        Stickiness::Never => None,
        Stickiness::Connection => Some(backends.in_turn()),
    };
    let service = service_fn(move |request| {
        let (backends, of_connection) = (backends.clone(), of_connection.clone());
        async move {
            let candidates = of_connection.unwrap_or_else(|| backends.in_turn());
            Ok::<_, Infallible>(backends.forward(request, &candidates).await)
        }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    let _ = builder
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

const HOP_BY_HOP: [HeaderName; 3] = [
    CONNECTION,
    TRANSFER_ENCODING,
    HeaderName::from_static("keep-alive"),
];
const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
