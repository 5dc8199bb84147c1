//! The connection pool of `HyperClient`.
//!
//! ```text
//! Pool ── one per scheme and authority ──▶ Origin ── idle_http1: idle HTTP/1.1 connections, one request at a time
//!                                                 └─ http2:      HTTP/2 connections, many requests at a time
//! ```
//!
//! A request takes the most recently used idle connection, or opens one. When the body of its response is dropped, the
//! connection becomes idle again; if the body was dropped while more of it was awaited, the connection is closed.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{self, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Request, Response, Uri};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::body::ResponseBody;
use super::connection::{
    BoxError, Connector, Http1Connection, HttpConnection, HttpVersionPolicy, SendFailed,
};
use super::http2::Http2Connection;
use super::liveness::Liveness;
use super::send::{RequestBody, Unprocessed};
use crate::Error;
use crate::http::RedactedUrl;
use crate::sync::Mutex;

/// A pool of connections, grouped by origin.
pub(super) struct Pool {
    version_policy: HttpVersionPolicy,
    connector: Box<dyn Connector>,
    connect_timeout: Duration,
    origins: Mutex<Vec<Arc<Origin>>>,
}

impl Pool {
    pub(super) fn new(
        connector: impl Connector,
        version_policy: HttpVersionPolicy,
        connect_timeout: Duration,
    ) -> Self {
        Self {
            version_policy,
            connect_timeout,
            connector: Box::new(connector),
            origins: Mutex::default(),
        }
    }

    /// Sends a request and waits for the head of its response.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future aborts the request, and the connection that was being opened for it.
    #[allow(
        clippy::manual_async_fn,
        reason = "an `async fn` stores its arguments twice, which would enlarge the future of every call"
    )]
    pub(super) fn send(
        self: Arc<Self>,
        mut request: Request<RequestBody>,
    ) -> impl Future<Output = crate::Result<Response<ResponseBody>>> + Send {
        async move {
            let uri = request.uri().clone();
            let unreachable = |source| Error::Transport {
                what: format!("failed to connect to {}", RedactedUrl::new(&uri)),
                source: Some(source),
            };
            let origin = self.origin(&uri).map_err(unreachable)?;
            loop {
                let (connection, is_fresh) = match origin.take() {
                    Some(pooled) => (pooled, false),
                    None => self.connect_in_time(&origin).await.map_err(unreachable)?,
                };
                let failed = match connection {
                    HttpConnection::Http1(mut one) => match one.send(request, &origin.host).await {
                        Ok(response) => return Ok(response.map(|body| origin.lease(one, body))),
                        Err(failed) => failed,
                    },
                    HttpConnection::Http2(one) => match one.send(request).await {
                        Ok(response) => return Ok(response.map(ResponseBody::new)),
                        Err(failed) => failed,
                    },
                };
                let source = match failed {
                    // The server closed the idle connection before any of the request was written.
                    SendFailed::Unsent(unsent, _) if !is_fresh => {
                        request = *unsent;
                        *request.uri_mut() = uri.clone();
                        continue;
                    }
                    SendFailed::Unprocessed(source) => Unprocessed::new(source).into(),
                    SendFailed::Unsent(_, source) | SendFailed::Failed(source) => source,
                };
                return Err(Error::Transport {
                    what: format!("failed to send the request to {}", RedactedUrl::new(&uri)),
                    source: Some(source),
                });
            }
        }
    }

    async fn connect_in_time(
        &self,
        origin: &Arc<Origin>,
    ) -> Result<(HttpConnection, bool), BoxError> {
        let limit = self.connect_timeout;
        let connecting = tokio::time::timeout(limit, self.connect(origin));
        connecting
            .await
            .unwrap_or_else(|_| Err(ConnectTimeout(limit).into()))
    }

    /// Returns a connection, and whether it was opened for this request.
    async fn connect(&self, origin: &Arc<Origin>) -> Result<(HttpConnection, bool), BoxError> {
        let _guard;
        if self.may_share(origin) {
            // Only one request opens a connection; the others wait, and share it. If that request is dropped, the lock
            // passes to the next one.
            let guard = origin.connect_lock.lock().await;
            if let Some(opened_meanwhile) = origin.take_decided().await {
                return Ok((opened_meanwhile, false));
            }
            // Otherwise the server has turned out to use HTTP/1.1: drop the lock and open connections in parallel.
            if self.may_share(origin) {
                _guard = guard;
            }
        }
        let made = match self.connector.connect(origin.uri.clone()).await {
            // Boxed, because it would enlarge the future of every request.
            Ok(stream) => Box::pin(HttpConnection::open(stream, self.version_policy)).await,
            Err(error) => Err(error),
        };
        origin.record_connect(made.as_ref().ok());
        Ok((made?, true))
    }

    fn may_share(&self, origin: &Origin) -> bool {
        match self.version_policy {
            HttpVersionPolicy::Http2Only => true,
            // Without TLS there is no ALPN, so the connection is HTTP/1.1.
            HttpVersionPolicy::Negotiated if origin.scheme == Scheme::HTTPS => {
                !origin.connections.lock().is_http1
            }
            HttpVersionPolicy::Negotiated => false,
        }
    }

    fn origin(&self, uri: &Uri) -> Result<Arc<Origin>, BoxError> {
        let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
            return Err("expected an absolute URL".into());
        };
        let mut origins = self.origins.lock();
        let mut known = origins.iter();
        if let Some(origin) = known.find(|it| it.scheme == *scheme && it.authority == *authority) {
            return Ok(origin.clone());
        }
        let origin = Arc::new(Origin::new(scheme, authority)?);
        origins.retain(|origin| !origin.is_unused());
        origins.push(origin.clone());
        Ok(origin)
    }
}

/// One origin and the connections to it.
struct Origin {
    scheme: Scheme,
    authority: Authority,
    uri: Uri,
    /// The value of the `Host` header.
    host: HeaderValue,
    /// Held while a connection is opened that other requests may share.
    connect_lock: tokio::sync::Mutex<()>,
    connections: Mutex<OriginConnections>,
}

#[derive(Default)]
struct OriginConnections {
    /// Idle HTTP/1.1 connections; the most recently used is last.
    idle_http1: Vec<PoolEntry<Http1Connection>>,
    /// HTTP/2 connections; more than one only if the first has reached the stream limit.
    http2: Vec<PoolEntry<Http2Connection>>,
    /// Whether the last attempt yielded no HTTP/2 connection, so that requests do not wait for each other's.
    is_http1: bool,
    sweeper: Option<Sweeper>,
}

struct PoolEntry<T> {
    connection: T,
    /// Whether it was idle already at the last sweep.
    was_idle: bool,
}

impl Origin {
    fn new(scheme: &Scheme, authority: &Authority) -> Result<Self, BoxError> {
        let uri = Uri::builder().scheme(scheme.clone());
        let uri = uri.authority(authority.clone()).path_and_query("/");
        Ok(Self {
            scheme: scheme.clone(),
            authority: authority.clone(),
            uri: uri.build()?,
            host: host(scheme, authority)?,
            connect_lock: tokio::sync::Mutex::default(),
            connections: Mutex::default(),
        })
    }

    /// Returns whether no request uses this origin and it has no connections.
    fn is_unused(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1 && self.connections.lock().is_empty()
    }

    /// Takes a connection that is ready for a request. Removes closed connections; leaves those that are still
    /// finishing their last request.
    fn take(&self) -> Option<HttpConnection> {
        // Declared before the guard, so that they are dropped after it: dropping a connection wakes tasks.
        let (mut _closed, mut ended) = (Vec::new(), Vec::new());
        let mut connections = self.connections.lock();
        let (http2, idle_http1) = connections.parts();
        _closed = http2
            .extract_if(.., |it| it.connection.is_closed())
            .collect();
        for entry in http2 {
            if let Some(slot) = entry.connection.take_slot() {
                entry.was_idle = false;
                return Some(HttpConnection::Http2(slot));
            }
        }
        let is_settled =
            |it: &PoolEntry<Http1Connection>| it.connection.is_ready() || it.connection.is_closed();
        while let Some(index) = idle_http1.iter().rposition(is_settled) {
            let connection = idle_http1.remove(index).connection;
            if connection.is_ready() {
                return Some(HttpConnection::Http1(connection));
            }
            ended.push(connection);
        }
        None
    }

    /// Like [`take`](Self::take), but first waits for HTTP/2 connections that may become ready: those whose SETTINGS
    /// have not arrived yet, and those with an unanswered ping.
    async fn take_decided(&self) -> Option<HttpConnection> {
        loop {
            if let Some(connection) = self.take() {
                return Some(connection);
            }
            let (liveness, until) = self.undecided()?;
            liveness.wait_until_decided(until).await;
        }
    }

    fn undecided(&self) -> Option<(Arc<Liveness>, Instant)> {
        let connections = self.connections.lock();
        let mut http2 = connections.http2.iter();
        http2.find_map(|it| it.connection.undecided())
    }

    /// Records the result of an attempt to connect, and adds an HTTP/2 connection to the shared ones.
    fn record_connect(self: &Arc<Self>, made: Option<&HttpConnection>) {
        let mut connections = self.connections.lock();
        connections.is_http1 = !matches!(made, Some(HttpConnection::Http2(_)));
        if let Some(HttpConnection::Http2(slot)) = made {
            let connection = slot.connection().clone();
            connections.http2.push(PoolEntry::new(connection));
            connections.ensure_sweeper(self);
        }
    }

    fn lease(self: &Arc<Self>, connection: Http1Connection, body: Incoming) -> ResponseBody {
        let lease = ConnectionLease {
            connection: Some(connection),
            origin: Arc::downgrade(self),
            is_awaited: false,
        };
        ResponseBody::new(LeasedBody { body, lease })
    }

    fn put_idle(self: &Arc<Self>, connection: Http1Connection) {
        let mut connections = self.connections.lock();
        connections.idle_http1.push(PoolEntry::new(connection));
        connections.ensure_sweeper(self);
    }

    /// Closes the connections that have been idle since the last sweep. Returns whether to sweep again.
    fn sweep(&self) -> bool {
        let mut connections = self.connections.lock();
        let (http2, idle_http1) = connections.parts();
        // Dropping a connection wakes tasks, so these live until after `drop(connections)`.
        let _idle: Vec<_> = idle_http1
            .extract_if(.., |it| it.connection.is_closed() || it.mark_idle())
            .collect();
        let _idle_http2: Vec<_> = http2
            .extract_if(.., |it| {
                let is_expired = it.connection.is_idle() && it.mark_idle();
                it.connection.is_closed() || is_expired
            })
            .collect();
        if connections.is_empty() {
            connections.sweeper = None;
        }
        let is_swept = connections.sweeper.is_some();
        drop(connections);
        is_swept
    }
}

fn host(scheme: &Scheme, authority: &Authority) -> Result<HeaderValue, BoxError> {
    let usual = match *scheme == Scheme::HTTPS {
        true => 443,
        false => 80,
    };
    let host = match authority.port_u16().filter(|port| *port != usual) {
        Some(port) => format!("{}:{port}", authority.host()),
        None => authority.host().to_owned(),
    };
    Ok(HeaderValue::from_maybe_shared(Bytes::from(host))?)
}

impl OriginConnections {
    fn parts(
        &mut self,
    ) -> (
        &mut Vec<PoolEntry<Http2Connection>>,
        &mut Vec<PoolEntry<Http1Connection>>,
    ) {
        (&mut self.http2, &mut self.idle_http1)
    }

    fn is_empty(&self) -> bool {
        self.idle_http1.is_empty() && self.http2.is_empty()
    }

    /// Starts the sweeper if it is not running. Without a runtime, idle connections stay open until the next request.
    fn ensure_sweeper(&mut self, origin: &Arc<Origin>) {
        if self.sweeper.as_ref().is_none_or(Sweeper::is_finished)
            && let Ok(runtime) = Handle::try_current()
        {
            self.sweeper = Some(Sweeper::spawn(origin, &runtime));
        }
    }
}

impl<T> PoolEntry<T> {
    fn new(connection: T) -> Self {
        Self {
            connection,
            was_idle: false,
        }
    }

    fn mark_idle(&mut self) -> bool {
        std::mem::replace(&mut self.was_idle, true)
    }
}

/// The body of a response, and the lease of its connection.
struct LeasedBody {
    body: Incoming,
    // Dropped after the body, so that hyper has seen whether the body was read to its end.
    lease: ConnectionLease,
}

/// Returns a connection to the pool when it is dropped, or closes it.
struct ConnectionLease {
    connection: Option<Http1Connection>,
    origin: Weak<Origin>,
    /// Whether the last poll of the body was pending. Dropping the body then aborts the request. Otherwise the reader
    /// is done, and hyper keeps the connection if the end of the body has arrived.
    is_awaited: bool,
}

impl Drop for ConnectionLease {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        if self.is_awaited {
            connection.close();
        } else if let Some(origin) = self.origin.upgrade() {
            origin.put_idle(connection);
        }
    }
}

impl Body for LeasedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        self.lease.is_awaited = polled.is_pending();
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The task that closes idle connections. It ends when none is left, or when the pool is dropped.
struct Sweeper(AbortHandle);

impl Sweeper {
    fn spawn(origin: &Arc<Origin>, runtime: &Handle) -> Self {
        let origin = Arc::downgrade(origin);
        let sweeping = runtime.spawn(async move {
            loop {
                tokio::time::sleep(SWEEP_INTERVAL).await;
                if !origin.upgrade().is_some_and(|origin| origin.sweep()) {
                    return;
                }
            }
        });
        Self(sweeping.abort_handle())
    }

    fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The connect timeout has elapsed.
#[derive(Debug, thiserror::Error)]
#[error("connecting timed out after {0:?}")]
struct ConnectTimeout(Duration);

/// The interval of the sweeps: a connection is closed after being idle for one to two intervals.
const SWEEP_INTERVAL: Duration = Duration::from_secs(45);
