//! `BoundServer`, a standalone HTTP server without a web framework: HTTP/1.1 and HTTP/2 on one socket.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::iter;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ::http::{Request, Response};
use bowline_core::http::paths::EndpointPaths;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, ToSocketAddrs};
use tokio::task::JoinSet;
use tower_layer::Layer;
use tower_service::Service;

use super::connections::{Connection, Connections};
use super::health::{HEALTH_PATH, HealthPaths, LIVENESS_PATH, Probe, READINESS_PATH, with_health};
use super::http2_streams::Http2Streams;
use super::listen::listen;
use super::tls::TlsConfig;
use super::write_timeout::{HttpVersion, WriteTimeout};
use super::{HttpBody, HttpService, ServiceState};
use crate::exit_signals::{SignalHandling, serve_until_signal};
use crate::limits::{Gauge, Limit};
use crate::shutdown::DrainPhase;
use crate::signal::Signal;
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
    health_paths: Arc<HealthPaths>,
    pub(super) tls: Option<TlsConfig>,
}

impl HttpService {
    /// Binds a TCP address; port 0 selects a free port. The [paths](Self::paths) default to `/mcp`.
    ///
    /// The paths `/livez`, `/readyz` and `/healthz` are for probes, which do not pass the layers; see
    /// [`BoundServer::readiness_path`].
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
        let listener = listen(addr).await.map_err(cannot)?;
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
        let mut health_paths = HealthPaths::defaults();
        for (path, probe) in [
            (LIVENESS_PATH, Probe::Liveness),
            (READINESS_PATH, Probe::Readiness),
            (HEALTH_PATH, Probe::Readiness),
        ] {
            health_paths.set(path, path.to_owned(), probe, http.state.paths.as_ref());
        }
        Ok(BoundServer {
            listener,
            addr,
            service: http.clone(),
            http,
            health_paths: Arc::new(health_paths),
            tls: None,
        })
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
        let ending = ConnectionEnding::new(&self.state, None);
        let connection = Connections::new(usize::MAX, self.state.account.counters()).open();
        serve(&self.state, None, &ending, connection, io, service).await;
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
            health_paths: self.health_paths,
            tls: self.tls,
        }
    }

    /// Sets the path of liveness probes, which starts with a slash. Defaults to `/livez`. Of the same
    /// [path](HttpService::paths) for both, MCP requests take precedence.
    ///
    /// `GET` and `HEAD` get status 200 until the server has ended, also while it drains: a probe that fails makes
    /// Kubernetes restart the process, which would end the calls that the drain waits for.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example() -> bowline::Result<()> {
    /// let bound = bowline::Server::new("calculator", "1.0.0").http().bind("127.0.0.1:0").await?;
    /// bound.liveness_path("/health/live").readiness_path("/health/ready").serve().await
    /// # }
    /// ```
    pub fn liveness_path(self, path: impl Into<String>) -> Self {
        self.with_health_path(LIVENESS_PATH, path.into(), Probe::Liveness)
    }

    /// Sets the path of readiness probes, which starts with a slash. Defaults to `/readyz`, and `/healthz` is another
    /// one ([`health_path`](Self::health_path)).
    ///
    /// `GET` and `HEAD` get status 200, without passing the layers and without a check of `Host`. As soon as a
    /// [drain](HttpService::drain) begins they get 503, so that new connections go elsewhere.
    pub fn readiness_path(self, path: impl Into<String>) -> Self {
        self.with_health_path(READINESS_PATH, path.into(), Probe::Readiness)
    }

    /// Sets another path of readiness probes, in place of `/healthz`.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example() -> bowline::Result<()> {
    /// let bound = bowline::Server::new("calculator", "1.0.0").http().bind("127.0.0.1:0").await?;
    /// bound.health_path("/status").serve().await
    /// # }
    /// ```
    pub fn health_path(self, path: impl Into<String>) -> Self {
        self.with_health_path(HEALTH_PATH, path.into(), Probe::Readiness)
    }

    /// Removes all paths of probes.
    pub fn no_health_path(mut self) -> Self {
        self.health_paths = Arc::default();
        self
    }

    fn with_health_path(mut self, default: &str, path: String, probe: Probe) -> Self {
        let endpoints = self.http.state.paths.as_ref();
        Arc::make_mut(&mut self.health_paths).set(default, path, probe, endpoints);
        self
    }

    /// Serves until a drain is complete. On SIGTERM it [drains](HttpService::drain); on SIGINT (Ctrl-C), which a person
    /// sends, it does so without the delay; on a second signal it returns immediately. The default handling of both
    /// signals is replaced for the whole process.
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
        let state = self.http.state.clone();
        let handling = SignalHandling::new(&state.shutdown);
        serve_until_signal(self.serve(), handling, || state.account.requests()).await
    }

    /// Serves until a drain is complete.
    ///
    /// The listener stays open until then, so that probes and late requests get an answer. HTTP/1.1 connections end with
    /// the next response (`Connection: close`), those of HTTP/2 with GOAWAY.
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
        let (max, counters) = (state.account.limits().connections, state.account.counters());
        let connections = Connections::new(max, counters);
        let open = counters.gauge(Gauge::Connections);
        let ended = Arc::new(Signal::default());
        let mut tasks = JoinSet::new();
        let mut drained = std::pin::pin!(state.drained(true));
        loop {
            open.store(connections.len(), Ordering::Relaxed);
            // The drain first, because new connections could starve it.
            let stream = tokio::select! {
                biased;
                () = &mut drained => break,
                // Before new ones, because a connection that was closed for another has a socket until its task ends.
                Some(_) = tasks.join_next() => continue,
                stream = accept(&self.listener), if tasks.len() <= max.saturating_add(MAX_CLOSING) => stream,
            };
            let (state, service) = (state.clone(), self.service.clone());
            let (health, ended) = (Some(self.health_paths.clone()), ended.clone());
            let connection = connections.open();
            let served = connection.clone();
            let task = match self.tls.clone() {
                None => tasks.spawn(async move {
                    let ending = ConnectionEnding::new(&state, Some(ended));
                    serve(&state, health, &ending, served, stream, service).await;
                }),
                // In the task of the connection: a slow handshake delays no other.
                Some(tls) => tasks.spawn(async move {
                    if let Some(stream) = tls.accept(&ended, stream).await {
                        let ending = ConnectionEnding::new(&state, Some(ended));
                        serve(&state, health, &ending, served, stream, service).await;
                    }
                }),
            };
            connection.set_task(task);
        }
        drop(self.listener);
        ended.raise();
        if state.shutdown.phase() == DrainPhase::Closed {
            // Requests count themselves; calls that waited for a retry have none.
            let waiting = state.responder.open_calls();
            let waiting = waiting.saturating_sub(state.account.requests());
            state.shutdown.count_cancelled(waiting);
        }
        while tasks.join_next().await.is_some() {}
        open.store(0, Ordering::Relaxed);
        Ok(())
    }
}

/// When a connection begins to end because of a drain.
struct ConnectionEnding {
    opened_in: DrainPhase,
    /// Raised when the bound server ends; `None` if the listener is not ours.
    server_ended: Option<Arc<Signal>>,
}

impl ConnectionEnding {
    fn new(state: &ServiceState, server_ended: Option<Arc<Signal>>) -> Self {
        Self {
            opened_in: state.shutdown.phase(),
            server_ended,
        }
    }

    /// Waits until the connection should end.
    ///
    /// An HTTP/1.1 connection of a bound server ends with the server: an idle one that is closed earlier may have a
    /// request on its way, which a proxy does not send again. Responses contain `Connection: close`.
    ///
    /// GOAWAY has no such race, so an HTTP/2 connection gets it when the next phase begins, and the client opens another
    /// connection. One that was opened while the server drains, by a client that has not noticed, is served.
    async fn reached(&self, state: &ServiceState, version: HttpVersion) {
        let shutdown = &state.shutdown;
        match (&self.server_ended, self.opened_in) {
            (Some(_), DrainPhase::Serving) if version == HttpVersion::Http2 => {
                shutdown.draining().await;
            }
            (Some(_), DrainPhase::Draining) if version == HttpVersion::Http2 => {
                shutdown.refusing().await;
            }
            (Some(server_ended), _) => server_ended.wait().await,
            (None, DrainPhase::Serving | DrainPhase::Draining) => shutdown.refusing().await,
            // Its requests are answered, with a refusal.
            (None, _) => shutdown.closed().await,
        }
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
    health_paths: Option<Arc<HealthPaths>>,
    ending: &ConnectionEnding,
    connection: Arc<Connection>,
    io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    service: S,
) where
    S: Service<Request<Incoming>, Response = Response<HttpBody>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send + 'static,
{
    let mut io = WriteTimeout::new(io, WRITE_STALL_TIMEOUT).recorded_for(connection.clone());
    let version = tokio::select! {
        biased;
        version = tokio::time::timeout(HEAD_TIMEOUT, io.detect_version()) => version,
        () = ending.reached(state, HttpVersion::Http1) => return,
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
            let service = with_health(state, health_paths, &connection, None, service);
            let mut driven = http1(state).serve_connection(io, service);
            let pinned = Pin::new(&mut driven);
            // `header_read_timeout` ends an idle connection.
            let idle = std::future::pending();
            let end = ending.reached(state, version);
            drive(state, end, idle, &connection, pinned, |it| {
                it.graceful_shutdown()
            })
            .await;
            // `into_parts` drops the handler of a client that has disconnected. Dropping the connection would close the
            // socket first, and delay the drop of the handler by those system calls.
            let closed_last = driven.into_parts();
            drop(closed_last);
        }
        // Boxed, because it is much larger than the HTTP/1.1 future.
        HttpVersion::Http2 => {
            let streams = Http2Streams::new(&state.account, &connection);
            let executor = streams.clone();
            let service = with_health(state, health_paths, &connection, Some(streams), service);
            let mut driven = Box::pin(http2(state, executor).serve_connection(io, service));
            let pinned = driven.as_mut();
            let idle = wait_until_idle(&connection, HTTP2_IDLE);
            let end = ending.reached(state, version);
            drive(state, end, idle, &connection, pinned, |it| {
                it.graceful_shutdown()
            })
            .await;
        }
    }
}

/// Waits until a connection has been idle for this long. Otherwise a client could keep it open forever by answering
/// pings.
async fn wait_until_idle(connection: &Connection, limit: Duration) {
    loop {
        let wait = match connection.idle_since() {
            Some(since) => limit.saturating_sub(since.elapsed()),
            None => limit,
        };
        if wait.is_zero() {
            return;
        }
        tokio::time::sleep(wait).await;
    }
}

/// Drives a connection to its end. When it is idle, or should `end` because of a drain, calls `begin_shutdown` and limits
/// the rest.
async fn drive<C: Future<Output = hyper::Result<()>>>(
    state: &ServiceState,
    end: impl Future<Output = ()>,
    idle: impl Future<Output = ()>,
    activity: &Connection,
    mut connection: Pin<&mut C>,
    begin_shutdown: fn(Pin<&mut C>),
) {
    // The connection first: one that has ended needs no shutdown.
    let is_drain = tokio::select! {
        biased;
        served = connection.as_mut() => return log_result(state, served),
        () = end => true,
        () = idle => false,
    };
    begin_shutdown(connection.as_mut());
    if !is_drain {
        // No request is left, but a slow client may still be reading a response.
        tokio::select! {
            biased;
            served = tokio::time::timeout(DRAIN_TIMEOUT, connection.as_mut()) => {
                return served.map_or((), |served| log_result(state, served));
            }
            () = state.shutdown.refusing() => {}
            () = async {
                tokio::time::sleep(DRAIN_STALL_TIMEOUT).await;
                wait_until_idle(activity, DRAIN_STALL_TIMEOUT).await;
            } => return tracing::debug!("no bytes of a response were taken; closing the connection"),
        }
    }
    // The handlers end within the grace period; a client that does not read could delay the end further.
    tokio::select! {
        biased;
        served = connection => log_result(state, served),
        () = async {
            state.shutdown.closed().await;
            tokio::time::sleep(WRITE_GRACE).await;
        } => {}
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

fn http2(state: &ServiceState, streams: Http2Streams) -> http2::Builder<Http2Streams> {
    let mut builder = http2::Builder::new(streams);
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
/// The least that RFC 9113 recommends. A connection keeps some 1 KiB for each stream that it once had at the same time,
/// which is not charged.
pub(super) const MAX_STREAMS: u32 = 100;
/// Maximum number of streams of one HTTP/2 connection that the client reset before they were accepted.
const MAX_RESETS: usize = 4096;
/// An HTTP/2 connection is closed after one to two of these intervals without a request, and without bytes of a response
/// that its client takes.
const HTTP2_IDLE: Duration = Duration::from_secs(60);
/// How long an idle connection may take to send the rest of its responses.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// How long such a connection may take no bytes of them.
const DRAIN_STALL_TIMEOUT: Duration = Duration::from_secs(30);
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// How long a write may stall before the connection is closed.
const WRITE_STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a connection may take to write its responses after the grace period.
const WRITE_GRACE: Duration = Duration::from_secs(1);
/// How many connections that are being closed may hold a socket in addition to [`Limits::connections`](crate::Limits).
const MAX_CLOSING: usize = 64;
/// The pause after a failed accept, for example when no file descriptors are left.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use http_body_util::Empty;
    use hyper::client::conn::http2;
    use hyper_util::rt::TokioExecutor;

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
            let health_paths = Some(Arc::new(HealthPaths::defaults()));
            let ending = ConnectionEnding::new(&service.state, None);
            let connections = Connections::new(usize::MAX, service.state.account.counters());
            let connection = connections.open();
            serve(
                &service.state,
                health_paths,
                &ending,
                connection,
                far,
                service.clone(),
            )
            .await;
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
