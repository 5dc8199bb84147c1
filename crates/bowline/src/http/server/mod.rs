//! `HttpService`, the HTTP server transport: a `tower` service that answers MCP requests of both eras.
//!
//! ```text
//! request ── admit_head ──▶ read body ── admit ──▶ modern: `running_request.rs`
//!                 │                        ├─────▶ legacy: `http/legacy/`
//!                 └────────────────────────┴─────▶ HttpRejection
//! ```
//!
//! In the modern era the handler's future is part of the response, and no task is spawned for a request. When the
//! client closes the response or the connection breaks, hyper drops the response, and that drops the handler.

mod keep_alive;
pub(crate) use keep_alive::KeepAlive;

pub(crate) mod body;
mod body_buffer;
pub use body::HttpBody;

mod connections;

mod cors;

mod health;
pub use health::HealthService;

mod http2_streams;

mod listen;

mod running_request;
pub(crate) use running_request::{PendingResponse, RunningRequest};

mod serve;
pub use serve::BoundServer;
#[cfg(feature = "testing")]
pub(crate) use serve::accept;

#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "tls")]
pub use tls::TlsConfig;
#[cfg(not(feature = "tls"))]
#[path = "tls_disabled.rs"]
mod tls;

mod write_timeout;

use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;

use ::http::request::Parts;
use ::http::{Method, Request, Response, StatusCode, Version};
use bowline_core::drain::continues_work;
use bowline_core::era::{CallerCache, Dialects};
use bowline_core::http::admission::{AdmittedHead, AdmittedPost, HttpRejection, admit, admit_head};
pub use bowline_core::http::admission::{AnyMethod, MethodCatalog, is_preflight};
pub use bowline_core::http::headers::ParamHeaders;
use bowline_core::http::media::AcceptedTypes;
use bowline_core::http::paths::EndpointPaths;
pub use bowline_core::http::source_policy::SourcePolicy;
use bowline_core::shortened;
use bowline_types::{Implementation, Json};
use bytes::Bytes;
use http_body::Body;
use tokio::time::Instant;

use super::legacy::{self, Legacy};
use crate::cluster::Cluster;
use crate::exchange::{
    BoxFuture, Caller, Notification, NotifiedContext, Params, Principal, Responder,
};
use crate::limits::{Account, Charge, ChargeKind, LimitReached, Limits, Usage};
use crate::shutdown::{DrainReport, Shutdown};
use crate::telemetry::{Configured, TransportKind, deliver_notification};

/// A `tower` service that answers MCP requests over HTTP, for axum or any other HTTP server. Clones share their state.
///
/// A layer that checks credentials adds a [`Principal`] to the extensions of a request; the handler runs on its behalf.
/// The extensions of the handler's context contain the head of the HTTP request (`http::request::Parts`), except for
/// stateful legacy clients.
///
/// Both eras are served on one URL. Requests of web pages from other origins, and with a `Host` of another machine, are
/// refused unless [`HttpService::source`] allows them.
///
/// # Cancel safety
///
/// When a client of the modern era closes its response or its connection, the handler's future is dropped. In the
/// legacy era a disconnect does not cancel; the client sends `notifications/cancelled`.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> bowline::Result<()> {
/// let server = bowline::Server::new("calculator", "1.0.0");
/// let bound = server.http().bind("127.0.0.1:0").await?;
/// eprintln!("listening on http://{}/mcp", bound.local_addr());
/// bound.serve().await
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a service does nothing until it is mounted or served"]
pub struct HttpService {
    pub(crate) state: Arc<ServiceState>,
}

/// The shared state and settings of a service.
#[derive(Clone)]
pub(crate) struct ServiceState {
    pub(crate) responder: Arc<dyn Responder>,
    pub(crate) catalog: Arc<dyn MethodCatalog + Send + Sync>,
    /// The server's `Implementation`, encoded.
    pub(crate) identity: Json,
    pub(crate) served: Dialects,
    /// Accounts for the memory held for all peers.
    pub(crate) account: Arc<Account>,
    pub(crate) shutdown: Shutdown,
    pub(crate) caller_cache: Arc<CallerCache>,
    pub(crate) source: SourcePolicy,
    pub(crate) is_source_chosen: bool,
    /// The origins of [`HttpService::cors`], kept for a later [`HttpService::source`].
    pub(crate) cors_origins: Vec<String>,
    /// The paths that are served; `None` until they are set or the service is bound.
    pub(crate) paths: Option<EndpointPaths>,
    pub(crate) stream_after: Duration,
    pub(crate) keep_alive: Duration,
    pub(crate) legacy: Legacy,
    /// The replicas that this service is one of.
    #[cfg_attr(
        not(feature = "legacy"),
        allow(dead_code, reason = "used for legacy clients only")
    )]
    pub(crate) cluster: Option<Cluster>,
}

impl HttpService {
    /// Creates a service from a responder, its catalog and its `serverInfo`. [`Server::http`](crate::Server::http)
    /// creates one from a server.
    ///
    /// Legacy clients can use `logging/setLevel` and `resources/subscribe` if the responder declares the capabilities in
    /// its result of `server/discover`: the first is answered here and becomes the log level of the
    /// [caller](crate::exchange::Request::caller); for the second the responder gets `subscriptions/listen`.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::exchange::{Outcome, Request};
    /// use bowline::http::HttpService;
    /// use bowline::http::server::AnyMethod;
    /// use bowline::types::Implementation;
    /// use bowline::{Context, Json};
    ///
    /// /// Answers every request with an empty result.
    /// async fn empty(_: Request, _: Context) -> Outcome {
    ///     Ok(Json::empty_object())
    /// }
    ///
    /// let service = HttpService::new(empty, AnyMethod, &Implementation::new("empty", "1.0.0"));
    /// ```
    pub fn new(
        responder: impl Responder,
        catalog: impl MethodCatalog + Send + Sync + 'static,
        identity: &Implementation,
    ) -> Self {
        let state = ServiceState {
            responder: Arc::new(responder),
            catalog: Arc::new(catalog),
            identity: Json::encode(identity).unwrap_or_else(|_| Json::empty_object()),
            served: Dialects::all(),
            account: Account::total(Limits::default()),
            shutdown: Shutdown::default(),
            caller_cache: Arc::default(),
            source: SourcePolicy::loopback(),
            is_source_chosen: false,
            cors_origins: Vec::new(),
            paths: None,
            stream_after: STREAM_AFTER,
            keep_alive: KEEP_ALIVE,
            legacy: Legacy::default(),
            cluster: None,
        };
        let service = Self {
            state: Arc::new(state),
        };
        service.observe_usage();
        service
    }

    /// Sets the protocol versions that are served.
    pub fn versions(self, served: Dialects) -> Self {
        self.modify(|state| state.served = served)
    }

    /// Sets which `Host` and `Origin` headers are accepted.
    ///
    /// By default only loopback hosts are accepted, or any host if the service is bound to an address that is not
    /// loopback. Other origins are refused in both cases, except those of [`cors`](Self::cors).
    pub fn source(self, policy: SourcePolicy) -> Self {
        self.modify(|state| {
            let origins = state.cors_origins.iter();
            state.source = origins.fold(policy, SourcePolicy::allow_origin);
            state.is_source_chosen = true;
        })
    }

    /// Accepts requests from web pages of these origins, in addition to those that [`source`](Self::source) accepts,
    /// and lets the pages read the responses (CORS). Pages of loopback origins are accepted by a loopback server
    /// without this.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::Server;
    ///
    /// let service = Server::new("calculator", "1.0.0").http().cors(["https://app.example"]);
    /// ```
    pub fn cors(self, origins: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        self.modify(|state| {
            for origin in origins {
                state.source = state.source.clone().allow_origin(&origin);
                state.cors_origins.push(origin.as_ref().to_owned());
            }
        })
    }

    /// Sets the paths that are served; all others get status 404. A trailing slash is ignored.
    ///
    /// Defaults to `/mcp` for a service that is [bound](Self::bind) to an address, and `/sse` if it serves HTTP+SSE. A
    /// service mounted in a router serves every path that the router passes to it, except those below `/.well-known/`.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::Server;
    ///
    /// let service = Server::new("calculator", "1.0.0").http().paths(["/calculator"]);
    /// ```
    pub fn paths(self, paths: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.modify(|state| state.paths = Some(EndpointPaths::only(paths)))
    }

    /// Sets the limits of this service, counted separately from the other transports of its server.
    /// [`Server::limits`](crate::Server::limits) sets common limits.
    pub fn limits(self, limits: Limits) -> Self {
        self.modify(|state| state.account = Account::total(limits))
    }

    /// Sets how long to wait for a handler's outcome before the response becomes an SSE stream. Defaults to 250 ms.
    ///
    /// An outcome within that time is sent as JSON, with the matching HTTP status. If the handler sends a notification,
    /// or the request has a progress token, the response becomes a stream immediately.
    pub fn stream_after(self, delay: Duration) -> Self {
        self.modify(|state| state.stream_after = delay)
    }

    /// Sets the idle interval after which an SSE comment is sent to keep the stream open. Defaults to 15 s.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use bowline::Server;
    ///
    /// // Behind a proxy that closes connections after one idle second.
    /// let service = Server::new("calculator", "1.0.0").http().keep_alive(Duration::from_millis(300));
    /// ```
    pub fn keep_alive(self, interval: Duration) -> Self {
        self.modify(|state| state.keep_alive = interval)
    }

    /// Makes this service one of several replicas, so that each serves the clients of the others.
    /// [`Server::http`](crate::Server::http) sets the [cluster of its server](crate::Server::cluster).
    ///
    /// Only legacy clients need it here: cancels, the answers to requests of the server, subscriptions and interrupted
    /// streams reach the replica that they concern.
    pub fn cluster(self, cluster: impl Into<Cluster>) -> Self {
        let cluster = cluster.into();
        self.modify(|state| state.cluster = Some(cluster))
    }

    /// Sets for how long a [drain](Self::drain) still takes new requests; see
    /// [`Server::drain_delay`](crate::Server::drain_delay). Defaults to 5 s. A service of a server changes the server's.
    pub fn drain_delay(self, delay: Duration) -> Self {
        let shutdown = &self.state.shutdown;
        shutdown.change_settings(|settings| settings.delay = delay);
        self
    }

    /// Sets for how long running requests may go on after new ones are refused; see
    /// [`Server::grace`](crate::Server::grace). Defaults to 20 s. A service of a server changes the server's.
    pub fn grace(self, grace: Duration) -> Self {
        let shutdown = &self.state.shutdown;
        shutdown.change_settings(|settings| settings.grace = grace);
        self
    }

    /// Returns whether the service wants new requests, which ends when a [drain](Self::drain) begins. For readiness
    /// probes; [`readiness`](Self::readiness) answers them.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        !self.state.shutdown.is_draining()
    }

    /// Drains the service; see [`Server::drain`](crate::Server::drain). A service of a server drains the whole server.
    pub fn drain(&self) {
        self.state.shutdown.drain();
    }

    /// Drains the service without a delay: refuses new requests, ends subscriptions, and cancels running requests after
    /// `grace`.
    pub fn shut_down(&self, grace: Duration) {
        self.state.shutdown.request(grace);
    }

    /// Waits until a drain has ended: new requests are refused, and none is running or the grace period is over. Returns
    /// what the drain did. For a service that is mounted in another HTTP server, which must not end before.
    ///
    /// # Cancel safety
    ///
    /// Safe: the state is not consumed.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(listener: tokio::net::TcpListener) -> std::io::Result<()> {
    /// # async fn stop_signal() {}
    /// let mcp = bowline::Server::new("calculator", "1.0.0").http();
    /// let stopped = {
    ///     let mcp = mcp.clone();
    ///     async move {
    ///         stop_signal().await;
    ///         mcp.drain();
    ///         mcp.drained().await;
    ///     }
    /// };
    /// // axum::serve(listener, router).with_graceful_shutdown(stopped).await
    /// # Ok(()) }
    /// ```
    pub async fn drained(&self) -> DrainReport {
        self.state.drained(false).await;
        self.state.shutdown.report()
    }

    /// Returns what a drain did so far.
    #[must_use]
    pub fn drain_report(&self) -> DrainReport {
        self.state.shutdown.report()
    }

    /// Returns the number of requests in flight, including handlers that still run after their caller disconnected.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.state.account.requests()
    }

    /// Returns the current resource usage, and the number of refusals so far.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.state.account.usage()
    }

    pub(crate) fn modify(mut self, change: impl FnOnce(&mut ServiceState)) -> Self {
        change(Arc::make_mut(&mut self.state));
        self.observe_usage();
        self
    }

    /// Adds the usage of the current account, the drain and the cluster to the metrics.
    fn observe_usage(&self) {
        let state = &*self.state;
        let telemetry = Configured::of(&*state.responder);
        telemetry.watch(&state.account, &state.shutdown);
        if let Some(cluster) = &state.cluster {
            telemetry.watch_cluster(cluster);
        }
    }
}

impl<B> tower_service::Service<Request<B>> for HttpService
where
    B: Body + Send + 'static,
    B::Data: Send,
{
    type Response = Response<HttpBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<HttpBody>, Infallible>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let state = self.state.clone();
        let (head, body) = request.into_parts();
        let (ends_at, version) = (stream_end(&head), head.version);
        // One flat block, because its future is allocated for each request: nested `async fn`s would store their
        // arguments twice.
        Box::pin(async move {
            let checked = state.check_head(&head);
            let origin = cors::accepted_origin(&head, &checked);
            let admitted = match checked {
                // Charged before the body is read, so that endless bodies count against the request limit.
                Ok(AdmittedHead::Post(accepts)) => match state.charge(&head) {
                    Ok(mut charge) => match body::read(head.version, pin!(body), &mut charge).await
                    {
                        Ok(body) if head.version == Version::HTTP_2 => {
                            state.admit_post(head, accepts, &body::copy_if_short(body), charge)
                        }
                        Ok(body) => state.admit_post(head, accepts, &body, charge),
                        Err(refused) => Err(refused),
                    },
                    Err(refused) => Err(refused),
                },
                Ok(AdmittedHead::LegacyMethod) => legacy::answer_verb(&state, head),
                Ok(AdmittedHead::Preflight) => Ok(ResponseFuture::Ready(cors::preflight(&head))),
                Err(refused) => Err(refused),
            };
            // By reference: awaiting by value would store the future twice.
            let mut answering =
                admitted.unwrap_or_else(|refused| ResponseFuture::Ready(refusal(refused)));
            let mut answered = (&mut answering).await.unwrap_or_else(refusal);
            if let Some(origin) = origin {
                cors::allow(&mut answered, origin);
            }
            if state.shutdown.is_draining() {
                health::close_connection(version, &mut answered);
            }
            Ok(match ends_at {
                None => answered,
                Some(ends_at) => answered.map(|body| body.with_expiry(ends_at)),
            })
        })
    }
}

/// Logs a rejection and returns its response.
fn refusal(rejection: HttpRejection) -> Response<HttpBody> {
    let rejected = shortened(&rejection);
    tracing::debug!(rejection = %rejected, "rejected an HTTP request");
    body::rejection(rejection)
}

/// Returns when the credential of a listening request expires, which ends its stream. Other requests continue: they
/// were authorized when they were made, and end by themselves.
fn stream_end(head: &Parts) -> Option<Instant> {
    let ends_at = head.extensions.get::<Principal>()?.expires_at()?;
    let method = head.headers.get("mcp-method");
    let listens = method.is_some_and(|method| method == "subscriptions/listen");
    (listens || head.method == Method::GET).then(|| ends_at.into())
}

/// The response to an admitted request, or its future.
pub(crate) enum ResponseFuture {
    Ready(Response<HttpBody>),
    /// The handler runs inside the response.
    Running(PendingResponse),
    /// The response of a legacy POST that has to be awaited.
    Awaited(BoxFuture<'static, Result<Response<HttpBody>, HttpRejection>>),
}

impl Future for ResponseFuture {
    type Output = Result<Response<HttpBody>, HttpRejection>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Ready(response) => {
                let taken = Response::new(HttpBody::from(Bytes::new()));
                Poll::Ready(Ok(std::mem::replace(response, taken)))
            }
            Self::Running(pending) => Pin::new(pending).poll(cx).map(Ok),
            Self::Awaited(answer) => answer.as_mut().poll(cx),
        }
    }
}

impl ServiceState {
    fn check_head(&self, head: &Parts) -> Result<AdmittedHead, HttpRejection> {
        let paths = self.paths.as_ref().unwrap_or(&ANY_PATH);
        admit_head(head, &self.source, paths, &self.served)
    }

    /// Admits a POST and starts its response.
    fn admit_post(
        self: &Arc<Self>,
        head: Parts,
        accepts: AcceptedTypes,
        body: &Bytes,
        charge: Charge,
    ) -> Result<ResponseFuture, HttpRejection> {
        // Before `admit`: all POSTs to the message endpoint of HTTP+SSE are legacy, even a modern probe.
        if let Some(endpoint) = legacy::message_endpoint(self, &head) {
            return legacy::answer_message_endpoint(self, endpoint, head, accepts, body, charge);
        }
        let (headers, catalog) = (&head.headers, &*self.catalog);
        match admit(headers, body, &self.served, &self.caller_cache, catalog)? {
            AdmittedPost::Modern { id, request, seal } => {
                if self.refuses(&request.method, Some(&request.params)) {
                    return Err(self.refusal().with_id(id));
                }
                let running = RunningRequest::new(self, id, request, seal, Arc::new(head), charge);
                Ok(ResponseFuture::Running(running.respond(accepts)))
            }
            AdmittedPost::Notification(notification) => {
                if let Some(caller) = self.caller_cache.notifier(&notification, &self.served) {
                    self.notified(&head, &notification, caller);
                }
                Ok(ResponseFuture::Ready(body::empty(StatusCode::ACCEPTED)))
            }
            AdmittedPost::Legacy(post) => legacy::answer(self, head, accepts, body, post, charge),
        }
    }

    /// Passes a notification that belongs to no connection to the responder.
    pub(crate) fn notified(&self, head: &Parts, notification: &Notification, caller: Arc<Caller>) {
        let principal = head.extensions.get::<Principal>().cloned();
        let cx = NotifiedContext::new(caller).with_principal(principal.unwrap_or_default());
        deliver_notification(&*self.responder, notification, &cx, TransportKind::Http);
    }

    /// Returns whether a request is new work that the drain refuses.
    pub(crate) fn refuses(&self, method: &str, params: Option<&Params>) -> bool {
        self.shutdown.is_refusing() && !continues_work(method, params)
    }

    /// Counts a request that the drain refuses, and returns its rejection.
    pub(crate) fn refusal(&self) -> HttpRejection {
        self.shutdown.count_refused();
        HttpRejection::draining()
    }

    /// Returns whether another replica may still read streams of this one.
    fn has_unread_streams(&self) -> bool {
        self.cluster.is_some() && self.legacy.has_unread_streams()
    }

    /// Waits until new requests are refused, and none is running or the grace period is over. One that `listens` also
    /// waits for requests that were sent to it before it refused any.
    pub(crate) async fn drained(&self, listens: bool) {
        // Looked at again and again: each request that ends would otherwise have to check for a drain.
        let without_requests = async || {
            while self.account.requests() > 0 {
                tokio::time::sleep(IDLE_CHECK).await;
            }
        };
        let idle = async {
            let mut refused = (!listens).then_some(0);
            loop {
                without_requests().await;
                let now_refused = Some(self.shutdown.report().refused);
                if now_refused > refused {
                    // Requests may still arrive. They are answered as long as they do: a connection that is closed with
                    // a request on its way loses it.
                    refused = now_refused;
                    tokio::time::sleep(QUIET_TIME).await;
                } else if self.responder.open_calls() > 0 || self.has_unread_streams() {
                    tokio::time::sleep(IDLE_CHECK).await;
                } else {
                    return;
                }
            }
        };
        self.shutdown.refusing().await;
        tokio::select! {
            biased; // an end in time counts
            () = idle => {}
            () = self.shutdown.closed() => {
                // The requests that it cancels now still have to be counted.
                let _ = tokio::time::timeout(CANCEL_TIME, without_requests()).await;
            }
        }
    }

    /// Charges a request for its head; the body is charged as it is read. A drain refuses it later: the body shows
    /// whether it is new work.
    pub(crate) fn charge(&self, head: &Parts) -> Result<Charge, HttpRejection> {
        let account = self.account_of(head);
        account
            .charge_request(size_of_head(head))
            .map_err(overloaded)
    }

    /// Charges a GET stream, which does not count as a request.
    #[cfg_attr(
        not(feature = "legacy"),
        allow(dead_code, reason = "used by legacy GET streams only")
    )]
    pub(crate) fn charge_stream(&self, head: &Parts) -> Result<Charge, HttpRejection> {
        let account = self.account_of(head);
        let charged = account.charge(ChargeKind::Request, size_of_head(head));
        charged.map_err(overloaded)
    }

    fn account_of(&self, head: &Parts) -> Arc<Account> {
        match head.extensions.get::<Principal>().and_then(Principal::name) {
            Some(name) => self.account.principal(Some(name)),
            None => match head.extensions.get::<ConnectionAccount>() {
                Some(ConnectionAccount(connection)) => connection.clone(),
                None => self.account.clone(),
            },
        }
    }
}

/// The account of a connection, in the extensions of its requests. Only HTTP/2 connections, which carry concurrent
/// requests, have one.
#[derive(Clone)]
pub(crate) struct ConnectionAccount(pub(crate) Arc<Account>);

/// Estimates the memory of a request without its body.
fn size_of_head(head: &Parts) -> usize {
    let headers = head.headers.iter();
    let headers = headers.map(|(name, value)| name.as_str().len() + value.len() + PER_HEADER);
    PER_REQUEST + head.uri.path().len() + headers.sum::<usize>()
}

/// Returns the rejection of a request that reached a limit.
pub(crate) fn overloaded(reached: LimitReached) -> HttpRejection {
    HttpRejection::overloaded(reached.into())
}

/// Returns a rejection with status 503.
#[cfg_attr(
    not(feature = "legacy"),
    allow(dead_code, reason = "used by the legacy era only")
)]
pub(crate) fn unavailable(why: &str) -> HttpRejection {
    HttpRejection::new(StatusCode::SERVICE_UNAVAILABLE, why)
}

impl std::fmt::Debug for HttpService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpService")
            .field("served", &self.state.served)
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}

static ANY_PATH: EndpointPaths = EndpointPaths::any();
const STREAM_AFTER: Duration = Duration::from_millis(250);
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long requests may take to end after the grace period; some are only signalled.
const CANCEL_TIME: Duration = Duration::from_secs(1);
/// How long no request must have been refused before a server that drains ends.
const QUIET_TIME: Duration = Duration::from_millis(250);
/// How often a server that drains looks whether requests are running.
const IDLE_CHECK: Duration = Duration::from_millis(10);
/// Estimated memory of a request: its futures, its context, its table entries.
const PER_REQUEST: usize = 2048;
/// Estimated memory of a header besides its text.
const PER_HEADER: usize = 64;
