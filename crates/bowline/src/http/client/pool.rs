//! Connections that rest between requests.
//!
//! ```text
//! Pool ── one per scheme and authority ──▶ Origin ── resting: HTTP/1.1, each for one request at a time
//!                                                 └─ shared:  HTTP/2, for many at once
//! ```
//!
//! A request takes the connection that rested last, or makes one. When the body of its response is dropped, the
//! connection rests again; or hyper closes it, if somebody let go of a body that was still to come.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
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
use super::connection::{BoxError, Connection, Connector, Exclusive, SendFailed, Versions};
use super::http2::Shared;
use super::liveness::Liveness;
use super::send::{RequestBody, Unprocessed};
use crate::Error;
use crate::exchange::BoxFuture;

/// The connections to all servers that were asked.
pub(super) struct Pool {
    versions: Versions,
    connect: Box<Connect>,
    connect_timeout: Duration,
    origins: Mutex<Vec<Arc<Origin>>>,
}

type Connect = dyn Fn(Uri) -> BoxFuture<'static, Result<Connection, BoxError>> + Send + Sync;

impl Pool {
    pub(super) fn over(
        connector: impl Connector,
        versions: Versions,
        connect_timeout: Duration,
    ) -> Self {
        Self {
            versions,
            connect_timeout,
            connect: Box::new(move |uri| {
                Box::pin(Connection::make(connector.clone(), uri, versions))
            }),
            origins: Mutex::default(),
        }
    }

    /// Sends a request, and waits for the head of its response.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future abandons the request, and the connection that was being made for it.
    #[allow(
        clippy::manual_async_fn,
        reason = "an `async fn` keeps its arguments twice, and this is part of every call"
    )]
    pub(super) fn send(
        self: Arc<Self>,
        mut request: Request<RequestBody>,
    ) -> impl Future<Output = crate::Result<Response<ResponseBody>>> + Send {
        async move {
            let uri = request.uri().clone();
            let unreachable = |source| Error::Transport {
                what: format!("no connection to {uri}"),
                source: Some(source),
            };
            let origin = self.origin(&uri).map_err(unreachable)?;
            loop {
                let (connection, is_fresh) = match origin.take() {
                    Some(rested) => (rested, false),
                    None => self.connect_in_time(&origin).await.map_err(unreachable)?,
                };
                let failed = match connection {
                    Connection::Exclusive(mut one) => match one.send(request, &origin.host).await {
                        Ok(response) => return Ok(response.map(|body| origin.lease(one, body))),
                        Err(failed) => failed,
                    },
                    Connection::Shared(mut one) => match one.send(request).await {
                        Ok(response) => return Ok(response.map(ResponseBody::new)),
                        Err(failed) => failed,
                    },
                };
                let source = match failed {
                    // The server closed it while it rested, and nothing has left.
                    SendFailed::Unsent(unsent, _) if !is_fresh => {
                        request = *unsent;
                        *request.uri_mut() = uri.clone();
                        continue;
                    }
                    SendFailed::Unprocessed(source) => Unprocessed::new(source).into(),
                    SendFailed::Unsent(_, source) | SendFailed::Failed(source) => source,
                };
                return Err(Error::Transport {
                    what: format!("the request to {uri} failed"),
                    source: Some(source),
                });
            }
        }
    }

    async fn connect_in_time(&self, origin: &Arc<Origin>) -> Result<(Connection, bool), BoxError> {
        let limit = self.connect_timeout;
        let connecting = tokio::time::timeout(limit, self.connect(origin));
        connecting
            .await
            .unwrap_or_else(|_| Err(ConnectTimeout(limit).into()))
    }

    /// A connection, and whether it was made for this request.
    async fn connect(&self, origin: &Arc<Origin>) -> Result<(Connection, bool), BoxError> {
        let _turn;
        if self.may_share(origin) {
            // One is made at a time, and who waited for it shares it. If the request that it was made for is dropped,
            // it is the next one's turn.
            let turn = origin.making.lock().await;
            if let Some(made_meanwhile) = origin.take_decided().await {
                return Ok((made_meanwhile, false));
            }
            // Unless it is known by now that nothing is shared here.
            if self.may_share(origin) {
                _turn = turn;
            }
        }
        let made = (self.connect)(origin.uri.clone()).await;
        origin.learn(made.as_ref().ok());
        Ok((made?, true))
    }

    fn may_share(&self, origin: &Origin) -> bool {
        match self.versions {
            Versions::Http2Only => true,
            // Only TLS negotiates.
            Versions::Negotiated if origin.scheme == Scheme::HTTPS => !origin.lock().each_their_own,
            Versions::Negotiated => false,
        }
    }

    fn origin(&self, uri: &Uri) -> Result<Arc<Origin>, BoxError> {
        let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
            return Err("that is not an absolute URL".into());
        };
        // No code that could panic runs under this lock.
        let origins = self.origins.lock();
        let mut origins = origins.unwrap_or_else(PoisonError::into_inner);
        let mut known = origins.iter();
        if let Some(origin) = known.find(|it| it.scheme == *scheme && it.authority == *authority) {
            return Ok(origin.clone());
        }
        let origin = Arc::new(Origin::new(scheme, authority)?);
        origins.retain(|origin| !origin.is_deserted());
        origins.push(origin.clone());
        Ok(origin)
    }
}

/// A server, and the connections to it.
struct Origin {
    scheme: Scheme,
    authority: Authority,
    uri: Uri,
    /// What the header of that name says.
    host: HeaderValue,
    /// Held while a connection is made that others may share.
    making: tokio::sync::Mutex<()>,
    connections: Mutex<Connections>,
}

#[derive(Default)]
struct Connections {
    /// What was used last is last.
    resting: Vec<Resting<Exclusive>>,
    /// One, unless it has as many requests as the server takes.
    shared: Vec<Resting<Shared>>,
    /// Whether the last attempt brought none that could be shared, so that nobody waits for another's.
    each_their_own: bool,
    sweeper: Option<Sweeper>,
}

struct Resting<T> {
    connection: T,
    /// Whether it rested already when the sweeper last came by.
    was_seen: bool,
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
            making: tokio::sync::Mutex::default(),
            connections: Mutex::default(),
        })
    }

    /// Whether nobody is here, and nothing rests.
    fn is_deserted(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1 && self.lock().is_empty()
    }

    /// A connection that takes a request at once. Those that were closed meanwhile are forgotten; those that have yet
    /// to finish with their last request are left.
    fn take(&self) -> Option<Connection> {
        // What is closed wakes tasks when it is dropped, and so is dropped after the lock: these are declared before it.
        let (mut _closed, mut ended) = (Vec::new(), Vec::new());
        let mut connections = self.lock();
        let (shared, resting) = connections.parts();
        _closed = shared
            .extract_if(.., |it| it.connection.is_closed())
            .collect();
        if let Some(shared) = shared.iter_mut().find(|it| it.connection.has_room()) {
            shared.was_seen = false;
            return Some(Connection::Shared(shared.connection.clone()));
        }
        let is_settled =
            |it: &Resting<Exclusive>| it.connection.is_ready() || it.connection.is_closed();
        while let Some(index) = resting.iter().rposition(is_settled) {
            let connection = resting.remove(index).connection;
            if connection.is_ready() {
                return Some(Connection::Exclusive(connection));
            }
            ended.push(connection);
        }
        None
    }

    /// As [`take`](Self::take), but first waits for connections of which it is about to be decided whether they take a
    /// request: the server's stream limit is not known yet, or a ping is unanswered.
    async fn take_decided(&self) -> Option<Connection> {
        loop {
            if let Some(connection) = self.take() {
                return Some(connection);
            }
            let (liveness, until) = self.undecided()?;
            liveness.decided(until).await;
        }
    }

    fn undecided(&self) -> Option<(Arc<Liveness>, Instant)> {
        let connections = self.lock();
        let mut shared = connections.shared.iter();
        shared.find_map(|it| it.connection.undecided())
    }

    /// Takes note of what came of an attempt to make a connection, and shares what can be shared.
    fn learn(self: &Arc<Self>, made: Option<&Connection>) {
        let mut connections = self.lock();
        connections.each_their_own = !matches!(made, Some(Connection::Shared(_)));
        if let Some(Connection::Shared(connection)) = made {
            connections.shared.push(Resting::new(connection.clone()));
            connections.have_swept(self);
        }
    }

    fn lease(self: &Arc<Self>, connection: Exclusive, body: Incoming) -> ResponseBody {
        let lease = Lease {
            connection: Some(connection),
            origin: Arc::downgrade(self),
            is_awaited: false,
        };
        ResponseBody::new(Leased { body, lease })
    }

    fn rest(self: &Arc<Self>, connection: Exclusive) {
        let mut connections = self.lock();
        connections.resting.push(Resting::new(connection));
        connections.have_swept(self);
    }

    /// Closes what has rested since the last time. Whether anything is left.
    fn sweep(&self) -> bool {
        let mut connections = self.lock();
        let (shared, resting) = connections.parts();
        // What is removed wakes tasks when it is dropped, and so is dropped after the lock.
        let _rested: Vec<_> = resting
            .extract_if(.., |it| it.connection.is_closed() || it.is_seen_again())
            .collect();
        let _unshared: Vec<_> = shared
            .extract_if(.., |it| {
                let is_left = it.connection.is_idle() && it.is_seen_again();
                it.connection.is_closed() || is_left
            })
            .collect();
        if connections.is_empty() {
            connections.sweeper = None;
        }
        let is_swept = connections.sweeper.is_some();
        drop(connections);
        is_swept
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        // No code that could panic runs under this lock.
        let connections = self.connections.lock();
        connections.unwrap_or_else(PoisonError::into_inner)
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

impl Connections {
    fn parts(&mut self) -> (&mut Vec<Resting<Shared>>, &mut Vec<Resting<Exclusive>>) {
        (&mut self.shared, &mut self.resting)
    }

    fn is_empty(&self) -> bool {
        self.resting.is_empty() && self.shared.is_empty()
    }

    /// Has somebody come by now and then. Where there is no runtime, what rests does so until the next request.
    fn have_swept(&mut self, origin: &Arc<Origin>) {
        if self.sweeper.as_ref().is_none_or(Sweeper::has_left)
            && let Ok(runtime) = Handle::try_current()
        {
            self.sweeper = Some(Sweeper::of(origin, &runtime));
        }
    }
}

impl<T> Resting<T> {
    fn new(connection: T) -> Self {
        Self {
            connection,
            was_seen: false,
        }
    }

    fn is_seen_again(&mut self) -> bool {
        std::mem::replace(&mut self.was_seen, true)
    }
}

/// The body of a response, and the connection it comes by.
struct Leased {
    body: Incoming,
    // After the body, so that the connection knows by then whether somebody let go of it.
    lease: Lease,
}

/// A connection, until it can rest.
struct Lease {
    connection: Option<Exclusive>,
    origin: Weak<Origin>,
    /// Whether the next piece of the body is being waited for. To drop the body then is to abandon the request. Otherwise
    /// the reader has what it wants, and hyper keeps the connection if the end of the body is there already.
    is_awaited: bool,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        if self.is_awaited {
            connection.close();
        } else if let Some(origin) = self.origin.upgrade() {
            origin.rest(connection);
        }
    }
}

impl Body for Leased {
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

/// The task that closes connections which have rested for long. It leaves when nothing rests, or nobody is there.
struct Sweeper(AbortHandle);

impl Sweeper {
    fn of(origin: &Arc<Origin>, runtime: &Handle) -> Self {
        let origin = Arc::downgrade(origin);
        let sweeping = runtime.spawn(async move {
            loop {
                tokio::time::sleep(A_WHILE).await;
                if !origin.upgrade().is_some_and(|origin| origin.sweep()) {
                    return;
                }
            }
        });
        Self(sweeping.abort_handle())
    }

    fn has_left(&self) -> bool {
        self.0.is_finished()
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A connection did not come about in time.
#[derive(Debug, thiserror::Error)]
#[error("connecting timed out after {0:?}")]
struct ConnectTimeout(Duration);

/// What rests for this long is closed before it has rested for twice as long.
const A_WHILE: Duration = Duration::from_secs(45);
