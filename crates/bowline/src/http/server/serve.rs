//! `BoundServer`, a standalone HTTP server without a web framework: HTTP/1.1 and HTTP/2 on one socket.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::iter;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ::http::{Request, Response};
use bowline_core::http::paths::EndpointPaths;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, ToSocketAddrs};
use tokio::task::JoinSet;
use tower_layer::Layer;
use tower_service::Service;

use super::health::{HEALTH_PATH, with_health};
use super::tls::TlsConfig;
use super::write_timeout::{HttpVersion, WriteTimeout};
use super::{ConnectionAccount, HttpBody, HttpService, ServiceState};
use crate::exit_signals::serve_until_signal;
use crate::limits::{Account, Gauge, Limit};
use crate::{Error, Result};

/// A service bound to an address, ready to be served.
///
/// # Examples
///
/// ```
/// # async fn example() -> bowline::Result<()> {
/// let bound = bowline::Server::new("calculator", "1.0.0").http().bind("127.0.0.1:0").await?;
/// println!("http://{}/mcp", bound.local_addr());
/// bound.serve().await
/// # }
/// ```
#[derive(Debug)]
#[must_use = "it accepts no connections until it is served"]
pub struct BoundServer<S = HttpService> {
    listener: TcpListener,
    addr: SocketAddr,
    http: HttpService,
    /// `http` inside its layers.
    service: S,
    health_path: Option<Arc<str>>,
    pub(super) tls: Option<TlsConfig>,
}

impl HttpService {
    /// Binds a TCP address; port 0 selects a free port. The [paths](Self::paths) default to `/mcp`.
    ///
    /// The path `/healthz` gets status 200, without passing the layers; see [`BoundServer::health_path`].
    ///
    /// # Errors
    ///
    /// [`Error::Transport`] if binding fails, [`Error::Misuse`] if the server is misconfigured.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropping the future closes the socket.
    pub async fn bind(self, addr: impl ToSocketAddrs) -> Result<BoundServer> {
        self.state.responder.check()?;
        let cannot = |error: io::Error| Error::Transport {
            what: "failed to bind the address".into(),
            source: Some(error.into()),
        };
        let listener = TcpListener::bind(addr).await.map_err(cannot)?;
        let addr = listener.local_addr().map_err(cannot)?;
        let http = self.modify(|state| {
            // The names by which other machines reach this address are unknown here, so any `Host` is accepted.
            if !state.is_source_chosen && !addr.ip().is_loopback() {
                state.source = state.source.clone().allow_any_host();
            }
            if state.paths.is_none() {
                let sse = state.legacy.has_http_sse().then_some("/sse");
                state.paths = Some(EndpointPaths::only(iter::once(DEFAULT_PATH).chain(sse)));
            }
        });
        let bound = BoundServer {
            listener,
            addr,
            service: http.clone(),
            http,
            health_path: None,
            tls: None,
        };
        Ok(bound.health_path(HEALTH_PATH))
    }

    /// Serves one connection over any I/O until it ends or a shutdown is complete.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection, and drops the handlers of its modern requests.
    pub async fn serve_connection(&self, io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        self.serve_connection_through(io, self.clone()).await;
    }

    /// Serves one connection with `service`, which is this one wrapped in layers.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection, and drops the handlers of its modern requests.
    pub async fn serve_connection_through<S>(
        &self,
        io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        service: S,
    ) where
        S: Service<Request<Incoming>, Response = Response<HttpBody>, Error = Infallible>,
        S: Clone + Send + 'static,
        S::Future: Send + 'static,
    {
        serve(&self.state, None, io, service).await;
    }
}

impl<S> BoundServer<S> {
    /// Returns the bound address, with the actual port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the service, for [`HttpService::shut_down`] and [`HttpService::is_ready`].
    pub fn service(&self) -> HttpService {
        self.http.clone()
    }

    /// Adds a `tower` layer around the service and its existing layers. It handles HTTP requests, also invalid ones;
    /// [`Server::layer`](crate::Server::layer) adds layers that handle MCP requests.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example() -> bowline::Result<()> {
    /// use bowline::Server;
    /// use tower_layer::layer_fn;
    ///
    /// let bound = Server::new("calculator", "1.0.0").http().bind("127.0.0.1:0").await?;
    /// bound.layer(layer_fn(|service| service)).serve().await
    /// # }
    /// ```
    pub fn layer<L: Layer<S>>(self, layer: L) -> BoundServer<L::Service> {
        BoundServer {
            listener: self.listener,
            addr: self.addr,
            http: self.http,
            service: layer.layer(self.service),
            health_path: self.health_path,
            tls: self.tls,
        }
    }

    /// Sets the path for the probes of a load balancer, which starts with a slash. Defaults to `/healthz`. Of the same
    /// [path](HttpService::paths) for both, MCP requests take precedence.
    ///
    /// `GET` and `HEAD` get status 200, without passing the layers and without a check of `Host`. After a shutdown was
    /// requested, connections that are still open get 503 and new ones are refused.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example() -> bowline::Result<()> {
    /// let bound = bowline::Server::new("calculator", "1.0.0").http().bind("127.0.0.1:0").await?;
    /// bound.health_path("/livez").serve().await
    /// # }
    /// ```
    pub fn health_path(mut self, path: impl Into<String>) -> Self {
        let path = path.into();
        let endpoints = &self.http.state.paths;
        let is_endpoint = endpoints.as_ref().is_some_and(|it| it.matches(&path));
        self.health_path = (!is_endpoint).then(|| path.into());
        self
    }

    /// Removes the [health path](Self::health_path).
    pub fn no_health_path(mut self) -> Self {
        self.health_path = None;
        self
    }

    /// Serves until a shutdown is complete. On SIGTERM or SIGINT (Ctrl-C outside Unix) it shuts down, with two seconds
    /// for running handlers; on a second signal it returns immediately. The default handling of both signals is
    /// replaced for the whole process.
    ///
    /// # Errors
    ///
    /// [`Error::Transport`] if the signals are not available.
    ///
    /// # Cancel safety
    ///
    /// As [`serve`](Self::serve).
    pub async fn serve_until_signal(self) -> Result<()>
    where
        S: Service<Request<Incoming>, Response = Response<HttpBody>, Error = Infallible>,
        S: Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
    {
        let service = self.service();
        serve_until_signal(self.serve(), |grace| service.shut_down(grace)).await
    }

    /// Serves until a shutdown is complete.
    ///
    /// # Errors
    ///
    /// None today: a failed connection is logged and does not affect the others.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes every connection, and drops the handlers of their modern requests.
    pub async fn serve(self) -> Result<()>
    where
        S: Service<Request<Incoming>, Response = Response<HttpBody>, Error = Infallible>,
        S: Clone + Send + 'static,
        S::Future: Send + 'static,
    {
        let state = self.http.state.clone();
        let (max, open) = (
            state.account.limits().connections,
            state.account.counters().gauge(Gauge::Connections),
        );
        let mut connections = JoinSet::new();
        loop {
            open.store(connections.len(), Ordering::Relaxed);
            // The shutdown first, because new connections could starve it.
            let stream = tokio::select! {
                biased;
                _ = state.shutdown.requested() => break,
                Some(_) = connections.join_next() => continue,
                stream = accept(&self.listener), if connections.len() < max => stream,
            };
            let (state, service) = (state.clone(), self.service.clone());
            let health = self.health_path.clone();
            match self.tls.clone() {
                None => {
                    connections.spawn(async move { serve(&state, health, stream, service).await })
                }
                // In the task of the connection: a slow handshake delays no other.
                Some(tls) => connections.spawn(async move {
                    if let Some(stream) = tls.accept(&state.shutdown, stream).await {
                        serve(&state, health, stream, service).await;
                    }
                }),
            };
        }
        drop(self.listener);
        while connections.join_next().await.is_some() {}
        open.store(0, Ordering::Relaxed);
        Ok(())
    }
}

/// Accepts the next connection. A failure is logged, and accepting is tried again.
pub(crate) async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Responses are small, and Nagle's algorithm would delay them.
                let _ = stream.set_nodelay(true);
                return stream;
            }
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

/// Serves one connection.
async fn serve<S>(
    state: &Arc<ServiceState>,
    health_path: Option<Arc<str>>,
    io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    service: S,
) where
    S: Service<Request<Incoming>, Response = Response<HttpBody>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send + 'static,
{
    let mut io = WriteTimeout::new(io, WRITE_STALL_TIMEOUT);
    let version = tokio::select! {
        biased;
        version = tokio::time::timeout(HEAD_TIMEOUT, io.detect_version()) => version,
        _ = state.shutdown.requested() => return,
    };
    let version = match version {
        Ok(Ok(version)) => version,
        Ok(Err(error)) => return tracing::debug!(%error, "connection failed"),
        Err(_) => {
            return tracing::debug!("no request within {HEAD_TIMEOUT:?}; closing the connection");
        }
    };
    let io = TokioIo::new(io);
    match version {
        // One request at a time, so it needs no account of its own.
        HttpVersion::Http1 => {
            let service = with_health(state, health_path, |_| {}, service);
            let mut connection = http1(state).serve_connection(io, service);
            let driven = Pin::new(&mut connection);
            // `header_read_timeout` ends an idle connection.
            let idle = std::future::pending();
            drive(state, idle, driven, |it| it.graceful_shutdown()).await;
            // `into_parts` drops the handler of a client that has disconnected. Dropping the connection would close the
            // socket first, and delay the drop of the handler by those system calls.
            let closed_last = connection.into_parts();
            drop(closed_last);
        }
        // Boxed, because it is much larger than the HTTP/1.1 future.
        HttpVersion::Http2 => {
            let account = state.account.peer();
            let served = Arc::new(AtomicUsize::new(0));
            let on_request = {
                let (account, served) = (account.clone(), served.clone());
                move |request: &mut Request<Incoming>| {
                    served.fetch_add(1, Ordering::Relaxed);
                    // Charges the request to the account of the connection.
                    let account = ConnectionAccount(account.clone());
                    request.extensions_mut().insert(account);
                }
            };
            let service = with_health(state, health_path, on_request, service);
            let mut connection = Box::pin(http2(state).serve_connection(io, service));
            let driven = connection.as_mut();
            let idle = wait_until_idle(&account, &served);
            drive(state, idle, driven, |it| it.graceful_shutdown()).await;
        }
    }
}

/// Waits until a connection, on which `served` requests have begun so far, has been idle for `HTTP2_IDLE`. Otherwise a client could keep it open forever by answering
/// pings, and the number of connections is limited.
///
/// Each request holds a clone of the account until its response is over, so the strong count shows whether it is idle.
fn wait_until_idle(account: &Arc<Account>, served: &AtomicUsize) -> impl Future<Output = ()> {
    // Read before the future is first polled, when there may be requests already.
    let unused = Arc::strong_count(account);
    async move {
        loop {
            let before = served.load(Ordering::Relaxed);
            tokio::time::sleep(HTTP2_IDLE).await;
            let is_unused = Arc::strong_count(account) <= unused;
            if is_unused && served.load(Ordering::Relaxed) == before {
                return;
            }
        }
    }
}

/// Drives a connection to its end. When it is idle, or a shutdown was requested, calls `begin_shutdown` and limits the
/// rest.
async fn drive<C: Future<Output = hyper::Result<()>>>(
    state: &ServiceState,
    idle: impl Future<Output = ()>,
    mut connection: Pin<&mut C>,
    begin_shutdown: fn(Pin<&mut C>),
) {
    // The connection first: one that has ended needs no shutdown.
    let grace = tokio::select! {
        biased;
        served = connection.as_mut() => return log_result(state, served),
        grace = state.shutdown.requested() => Some(grace),
        () = idle => None,
    };
    begin_shutdown(connection.as_mut());
    let grace = match grace {
        Some(grace) => grace,
        // No request is left, but a slow client may still be reading a response.
        None => tokio::select! {
            biased;
            served = tokio::time::timeout(DRAIN_TIMEOUT, connection.as_mut()) => {
                return served.map_or((), |served| log_result(state, served));
            }
            grace = state.shutdown.requested() => grace,
        },
    };
    // The handlers end within `grace`; a client that does not read could delay the end further.
    if let Ok(served) = tokio::time::timeout(grace.saturating_add(WRITE_GRACE), connection).await {
        log_result(state, served);
    }
}

fn http1(state: &ServiceState) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        // Treat a half-close as a disconnect: it is the only signal that the client has cancelled.
        .half_close(false)
        // Bodies pass through the same buffer, so this also bounds what a connection has read and not charged.
        .max_buf_size(max_head(state));
    builder
}

fn http2(state: &ServiceState) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .max_header_list_size(u32::try_from(max_head(state)).unwrap_or(u32::MAX))
        .initial_connection_window_size(FLOW_WINDOW)
        .initial_stream_window_size(FLOW_WINDOW)
        .max_concurrent_streams(MAX_STREAMS)
        // Clients drop calls right after sending them. hyper's default of 20 takes that for an attack and closes the
        // connection with every other call on it.
        .max_pending_accept_reset_streams(MAX_RESETS);
    builder
}

/// Returns the maximum size of a request head.
fn max_head(state: &ServiceState) -> usize {
    state.account.limits().head_bytes.max(MIN_BUFFER)
}

fn log_result(state: &ServiceState, served: hyper::Result<()>) {
    if let Err(error) = served {
        if error.is_parse_too_large() {
            let counters = state.account.counters();
            counters.refuse(Limit::HeadBytes, max_head(state));
        }
        tracing::debug!(%error, "connection failed");
    }
}

/// The default path of a bound service.
const DEFAULT_PATH: &str = "/mcp";
/// How long a client may take to send a request head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// The smallest read buffer that hyper accepts.
const MIN_BUFFER: usize = 8 * 1024;
/// The flow-control window of an HTTP/2 connection: bounds the body bytes received and not yet read, hence not charged.
const FLOW_WINDOW: u32 = 256 * 1024;
const MAX_STREAMS: u32 = 256;
/// Maximum number of streams of one HTTP/2 connection that the client reset before they were accepted.
const MAX_RESETS: usize = 4096;
/// An HTTP/2 connection is closed after one to two of these intervals without a request.
const HTTP2_IDLE: Duration = Duration::from_secs(60);
/// How long an idle connection may take to send the rest of its responses.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5 * 60);
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// How long a write may stall before the connection is closed.
const WRITE_STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a connection may take to write its responses after the grace period.
const WRITE_GRACE: Duration = Duration::from_secs(1);
/// The pause after a failed accept, for example when no file descriptors are left.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use http_body_util::Empty;
    use hyper::client::conn::http2;

    use super::*;
    use crate::Server;

    #[tokio::test]
    async fn connections_have_no_delay() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();

        let (accepted, _near) = tokio::join!(accept(&listener), TcpStream::connect(address));

        assert!(accepted.nodelay().unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn health_requests_keep_an_http2_connection_open() {
        let service = Server::new("health", "1").http();
        let (near, far) = tokio::io::duplex(64 * 1024);
        let serving = tokio::spawn(async move {
            let health_path = Some(HEALTH_PATH.into());
            serve(&service.state, health_path, far, service.clone()).await;
        });
        let io = TokioIo::new(near);
        let (mut client, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        let connection = tokio::spawn(connection);
        let mut probes = tokio::time::interval(HTTP2_IDLE / 2);

        for _ in 0..20 {
            probes.tick().await;
            let request = Request::get(format!("http://health{HEALTH_PATH}"));
            let request = request.body(Empty::<bytes::Bytes>::new()).unwrap();
            client.ready().await.unwrap();
            let response = client.send_request(request).await.unwrap();
            assert_eq!(response.status(), 200);
        }

        drop(client);
        serving.await.unwrap();
        connection.await.unwrap().unwrap();
    }
}
