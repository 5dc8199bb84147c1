//! Serving connections directly, without a web framework: HTTP/1.1 and HTTP/2 on one socket.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{self, Poll};
use std::time::Duration;

use ::http::{Request, Response};
use bowline_core::http::paths::Paths;
use bowline_core::http::source::SourcePolicy;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, ToSocketAddrs};
use tokio::task::JoinSet;
use tower_service::Service;

use super::connection::{Patient, Speaks};
use super::{HttpBody, HttpService, PeerAccount, Site};
use crate::limits::{Account, Gauge, Limit};
use crate::{Error, Result};

/// A service that has an address and is about to be served.
///
/// # Examples
///
/// ```
/// # async fn example() -> bowline::Result<()> {
/// let bound = bowline::Server::new("anywhere", "1.0.0").http().bind("127.0.0.1:0").await?;
/// println!("http://{}/mcp", bound.addr());
/// bound.serve().await
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing is answered until it is served"]
pub struct Bound {
    listener: TcpListener,
    addr: SocketAddr,
    service: HttpService,
}

impl HttpService {
    /// Takes an address; port 0 is any free one. Its [paths](Self::paths) are `/` and `/mcp`, unless others are chosen.
    ///
    /// # Errors
    ///
    /// [`Error::Transport`] if the address cannot be had, [`Error::Misuse`] if what is offered cannot be.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropping the future gives the address back.
    pub async fn bind(self, addr: impl ToSocketAddrs) -> Result<Bound> {
        self.site.responder.check()?;
        let cannot = |error: io::Error| Error::Transport {
            what: "the address cannot be had".into(),
            source: Some(error.into()),
        };
        let listener = TcpListener::bind(addr).await.map_err(cannot)?;
        let addr = listener.local_addr().map_err(cannot)?;
        let service = self.having(|site| {
            // Others can reach it by names that nobody here can know.
            if !site.is_source_chosen && !addr.ip().is_loopback() {
                site.source = SourcePolicy::public();
            }
            if site.paths.is_none() {
                let sse = site.legacy.has_http_sse().then_some("/sse");
                site.paths = Some(Paths::only(OWN_PATHS.into_iter().chain(sse)));
            }
        });
        Ok(Bound {
            listener,
            addr,
            service,
        })
    }

    /// Serves one connection, of whatever kind, until it is at its end or a shutdown is over.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection, and drops the handlers of its modern requests.
    pub async fn serve_connection(&self, io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        self.serve_connection_through(io, self.clone()).await;
    }

    /// Serves one connection by `service`, which is this one with layers around it.
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
        serve(&self.site, io, service).await;
    }
}

impl Bound {
    /// The address, with the port that was chosen.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The service, to shut it down or to ask whether it is ready.
    pub fn service(&self) -> HttpService {
        self.service.clone()
    }

    /// Serves until a shutdown was asked for and is over.
    ///
    /// # Errors
    ///
    /// None today: a connection that fails is the end of that connection, and is logged.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes every connection, and drops the handlers of their modern requests.
    pub async fn serve(self) -> Result<()> {
        let service = self.service();
        self.serve_through(service).await
    }

    /// Serves by `service`, which is [this one](Self::service) with layers around it, until a shutdown was
    /// asked for and is over.
    ///
    /// # Errors
    ///
    /// As [`serve`](Self::serve).
    ///
    /// # Cancel safety
    ///
    /// As [`serve`](Self::serve).
    pub async fn serve_through<S>(self, service: S) -> Result<()>
    where
        S: Service<Request<Incoming>, Response = Response<HttpBody>, Error = Infallible>,
        S: Clone + Send + 'static,
        S::Future: Send + 'static,
    {
        let site = self.service.site.clone();
        let (most, open) = (
            site.account.limits().connections,
            site.account.meters().gauge(Gauge::Connections),
        );
        let mut connections = JoinSet::new();
        loop {
            open.store(connections.len(), Ordering::Relaxed);
            // A shutdown comes first: there may always be one more connection.
            let accepted = tokio::select! {
                biased;
                _ = self.service.site.shutdown.asked() => break,
                Some(_) = connections.join_next() => continue,
                accepted = self.listener.accept(), if connections.len() < most => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    // Answers are small and somebody waits for each.
                    let _ = stream.set_nodelay(true);
                    let (site, service) = (site.clone(), service.clone());
                    connections.spawn(async move { serve(&site, stream, service).await });
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(AFTER_FAILURE).await;
                }
            }
        }
        drop(self.listener);
        while connections.join_next().await.is_some() {}
        open.store(0, Ordering::Relaxed);
        Ok(())
    }
}

/// Serves one connection.
async fn serve<S>(site: &Site, io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, service: S)
where
    S: Service<Request<Incoming>, Response = Response<HttpBody>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send + 'static,
{
    let mut io = Patient::new(io, STALLED_FOR);
    let speaks = tokio::select! {
        biased;
        speaks = tokio::time::timeout(HEAD_WITHIN, io.speaks()) => speaks,
        _ = site.shutdown.asked() => return,
    };
    let speaks = match speaks {
        Ok(Ok(speaks)) => speaks,
        Ok(Err(error)) => return tracing::debug!(%error, "a connection ended badly"),
        Err(_) => {
            return tracing::debug!(
                "a client did not begin within {HEAD_WITHIN:?} and was cut off"
            );
        }
    };
    let io = TokioIo::new(io);
    match speaks {
        // It carries one request at a time, so that it needs no account of its own.
        Speaks::Http1 => {
            let service = TowerToHyperService::new(service);
            let mut connection = http1(site).serve_connection(io, service);
            let driven = Pin::new(&mut connection);
            // An idle one is ended by the time that it has for its next head.
            let idle = std::future::pending();
            drive(site, idle, driven, |it| it.graceful_shutdown()).await;
            // The handler of a client that has gone is dropped here. Dropping the connection would close the socket first,
            // and the handler would wait for those system calls.
            let closed_last = connection.into_parts();
            drop(closed_last);
        }
        // Larger by far, and should not make all connections so.
        Speaks::Http2 => {
            let account = site.account.peer();
            let served = Arc::new(AtomicUsize::new(0));
            let service = TowerToHyperService::new(WithAccount {
                service,
                account: account.clone(),
                served: served.clone(),
            });
            let mut connection = Box::pin(http2(site).serve_connection(io, service));
            let driven = connection.as_mut();
            let idle = idle(&account, &served);
            drive(site, idle, driven, |it| it.graceful_shutdown()).await;
        }
    }
}

/// Has every request of a connection charged to the account of that connection.
#[derive(Clone)]
struct WithAccount<S> {
    service: S,
    account: Arc<Account>,
    /// How many requests have come.
    served: Arc<AtomicUsize>,
}

/// Waits until a connection has carried no request for a while. Pings keep it open for as long as its client likes,
/// and there is room for only so many connections.
///
/// Each request holds the account of its connection until its response is over.
fn idle(account: &Arc<Account>, served: &AtomicUsize) -> impl Future<Output = ()> {
    // Counted now: when the future is polled there may be requests already.
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

impl<S: Service<Request<Incoming>>> Service<Request<Incoming>> for WithAccount<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Incoming>) -> S::Future {
        self.served.fetch_add(1, Ordering::Relaxed);
        let account = PeerAccount(self.account.clone());
        request.extensions_mut().insert(account);
        self.service.call(request)
    }
}

/// Drives a connection to its end. A shutdown, or the end of an idle one, begins by `farewell`, and is over in time.
async fn drive<C: Future<Output = hyper::Result<()>>>(
    site: &Site,
    idle: impl Future<Output = ()>,
    mut connection: Pin<&mut C>,
    farewell: fn(Pin<&mut C>),
) {
    // A connection that is at its end needs no shutdown any more.
    let grace = tokio::select! {
        biased;
        served = connection.as_mut() => return log(site, served),
        grace = site.shutdown.asked() => Some(grace),
        () = idle => None,
    };
    farewell(connection.as_mut());
    let grace = match grace {
        Some(grace) => grace,
        // It has no requests, but perhaps something of a response is still on its way to a slow client.
        None => tokio::select! {
            biased;
            served = tokio::time::timeout(DRAINED_WITHIN, connection.as_mut()) => {
                return served.map_or((), |served| log(site, served));
            }
            grace = site.shutdown.asked() => grace,
        },
    };
    // The responses end by themselves in time, unless their client does not take them in.
    if let Ok(served) = tokio::time::timeout(grace.saturating_add(FAREWELL), connection).await {
        log(site, served);
    }
}

fn http1(site: &Site) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        // A client that closes its half has gone: nothing else tells us that it gave up.
        .half_close(false)
        // Bodies are read through the same buffer, so that it is also what a connection may have read and not charged.
        .max_buf_size(max_head(site));
    builder
}

fn http2(site: &Site) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .max_header_list_size(u32::try_from(max_head(site)).unwrap_or(u32::MAX))
        .initial_connection_window_size(WINDOW)
        .initial_stream_window_size(WINDOW)
        .max_concurrent_streams(MOST_STREAMS)
        // Letting go of a call that has just left is no attack here, and must not cost the connection
        // with every other call on it, as it would after twenty by default.
        .max_pending_accept_reset_streams(MOST_RESETS);
    builder
}

/// How long the head of a request may be.
fn max_head(site: &Site) -> usize {
    site.account.limits().head_bytes.max(LEAST_BUFFER)
}

fn log(site: &Site, served: hyper::Result<()>) {
    if let Err(error) = served {
        if error.is_parse_too_large() {
            let meters = site.account.meters();
            meters.refuse(Limit::HeadBytes, max_head(site));
        }
        tracing::debug!(%error, "a connection ended badly");
    }
}

/// What is answered where nothing else decides about paths.
const OWN_PATHS: [&str; 2] = ["/", "/mcp"];
/// How long a client may take to say what it wants.
const HEAD_WITHIN: Duration = Duration::from_secs(30);
/// The smallest buffer that hyper reads into.
const LEAST_BUFFER: usize = 8 * 1024;
/// What an HTTP/2 connection may have received of bodies that are not read, and so not charged.
const WINDOW: u32 = 256 * 1024;
const MOST_STREAMS: u32 = 256;
/// How many requests on one HTTP/2 connection may have been let go of before anybody looked at them.
const MOST_RESETS: usize = 4096;
/// After how long without a request an HTTP/2 connection is ended: once, or nearly twice.
const HTTP2_IDLE: Duration = Duration::from_secs(60);
/// How long an idle connection may take to end.
const DRAINED_WITHIN: Duration = Duration::from_secs(5 * 60);
const PING_EVERY: Duration = Duration::from_secs(20);
/// How long a client may take nothing in before it is cut off.
const STALLED_FOR: Duration = Duration::from_secs(30);
/// How long a response may take to leave once its handler is done.
const FAREWELL: Duration = Duration::from_secs(1);
/// How long to wait when no connection can be accepted, for want of descriptors for example.
const AFTER_FAILURE: Duration = Duration::from_millis(100);
