//! The server's side: a `tower` service that answers HTTP requests.
//!
//! ```text
//! request ── admit_head ──▶ read body ── admit ──▶ modern: the handler runs inside the response
//!                 │                        │
//!                 └── Rejection ───────────┴─────▶ legacy: a handler of its own
//! ```
//!
//! In the modern era the handler's future is part of the response. Whoever drops the response, because the
//! client closed it or the connection broke, drops the handler; no task is spawned for a request.

mod answer;
pub(crate) use answer::{Handling, Responding};

mod keep_alive;
pub(crate) use keep_alive::KeepAlive;

pub(crate) mod body;
pub use body::HttpBody;

mod connection;

mod serve;
pub use serve::Bound;

use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;

use ::http::request::Parts;
use ::http::{Method, Request, Response, StatusCode, Version};
use bowline_core::era::{Callers, Dialects, Offers};
use bowline_core::http::admission::{Admitted, Arrival, Catalog, Rejection, admit, admit_head};
use bowline_core::http::media::Accepts;
use bowline_core::http::paths::Paths;
pub use bowline_core::http::source::SourcePolicy;
use bowline_core::shortened;
use bowline_types::{Implementation, Json};
use bytes::Bytes;
use http_body::Body;
use tokio::time::Instant;

use super::legacy::{self, Legacy};
use crate::exchange::{BoxFuture, Principal, Responder};
use crate::limits::{Account, Charge, Held, LimitReached, Limits, Usage};
use crate::shutdown::Shutdown;

/// Answers HTTP requests: a `tower` service for any HTTP server, axum's included. Cheap to clone; clones
/// are the same service.
///
/// A [`Principal`] among the extensions of a request, put there by a layer that
/// checked a credential, is the one on whose behalf its handler runs. A handler finds the whole head of its
/// request, an `http::request::Parts`, among the extensions of its context, unless its client is
/// one that the server remembers.
///
/// Both eras are served on one URL. Web pages and names of other machines are kept out until
/// [`HttpService::source`] lets them in.
///
/// # Cancel safety
///
/// A client of the modern era that closes its response, or its connection, has cancelled that request: the
/// handler's future is dropped. In the legacy era a disconnect means nothing; the client says what it
/// cancels.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> bowline::Result<()> {
/// let server = bowline::Server::new("calculator", "1.0.0");
/// let bound = server.http().bind("127.0.0.1:0").await?;
/// eprintln!("listening on http://{}/mcp", bound.addr());
/// bound.serve().await
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a service does nothing until it is mounted or served"]
pub struct HttpService {
    pub(crate) site: Arc<Site>,
}

/// What is served, and how.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) responder: Arc<dyn Responder>,
    pub(crate) catalog: Arc<dyn Catalog + Send + Sync>,
    /// The server's `Implementation`, encoded.
    pub(crate) identity: Json,
    pub(crate) served: Dialects,
    /// What the door of a legacy wire answers by itself.
    pub(crate) offers: Offers,
    /// What is held for all peers.
    pub(crate) account: Arc<Account>,
    pub(crate) shutdown: Shutdown,
    pub(crate) callers: Arc<Callers>,
    pub(crate) source: SourcePolicy,
    pub(crate) is_source_chosen: bool,
    /// The paths that are answered; `None` until they are chosen, or the service is bound.
    pub(crate) paths: Option<Paths>,
    pub(crate) commit_after: Duration,
    pub(crate) keep_alive: Duration,
    pub(crate) legacy: Legacy,
}

impl HttpService {
    /// A service that answers with `responder`, which calls itself `identity` and knows its methods by
    /// `catalog`. [`Server::http`](crate::Server::http) makes one of a server.
    pub fn new(
        responder: impl Responder,
        catalog: impl Catalog + Send + Sync + 'static,
        identity: &Implementation,
    ) -> Self {
        let site = Site {
            responder: Arc::new(responder),
            catalog: Arc::new(catalog),
            identity: Json::encode(identity).unwrap_or_else(|_| Json::empty_object()),
            served: Dialects::all(),
            offers: Offers::default(),
            account: Account::total(Limits::default()),
            shutdown: Shutdown::default(),
            callers: Arc::default(),
            source: SourcePolicy::loopback(),
            is_source_chosen: false,
            paths: None,
            commit_after: COMMIT_AFTER,
            keep_alive: KEEP_ALIVE,
            legacy: Legacy::default(),
        };
        Self {
            site: Arc::new(site),
        }
    }

    /// Answers with `responder` in the place of the server's own: the server with layers around it.
    pub fn answered_by(self, responder: impl Responder) -> Self {
        self.having(|site| site.responder = Arc::new(responder))
    }

    /// Serves these protocol versions only.
    pub fn versions(self, served: Dialects) -> Self {
        self.having(|site| site.served = served)
    }

    /// Decides which hosts the service answers to and which web pages may talk to it.
    ///
    /// Without it the service answers to names of this machine only; bound to an address that others can
    /// reach, to any name. Pages of other origins are refused in both cases.
    pub fn source(self, policy: SourcePolicy) -> Self {
        self.having(|site| {
            site.source = policy;
            site.is_source_chosen = true;
        })
    }

    /// Answers these paths, and every other with status 404. A slash at the end makes no difference.
    ///
    /// Without it a service that is [bound](Self::bind) to an address answers `/` and `/mcp`, and `/sse` if it serves
    /// HTTP+SSE. One that is mounted elsewhere answers every path that its router gives it, except those below
    /// `/.well-known/`.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::Server;
    ///
    /// let service = Server::new("calculator", "1.0.0").http().paths(["/calculator"]);
    /// ```
    pub fn paths(self, paths: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.having(|site| site.paths = Some(Paths::only(paths)))
    }

    /// Sets how much peers can make this service hold and do, apart from what its server holds over other transports.
    /// [`Server::limits`](crate::Server::limits) sets it for both together.
    pub fn limits(self, limits: Limits) -> Self {
        self.having(|site| site.account = Account::total(limits))
    }

    /// Waits this long for a handler's outcome before the answer becomes a stream; 250 ms unless told
    /// otherwise.
    ///
    /// An outcome within that time is answered as plain JSON, with the status that fits it. A handler that
    /// says something, or whose caller wants to know its progress, is not waited for.
    pub fn commit_after(self, delay: Duration) -> Self {
        self.having(|site| site.commit_after = delay)
    }

    /// Says something meaningless on a stream that was silent for this long, so that nothing on the way
    /// takes it for dead; 15 s unless told otherwise.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use bowline::Server;
    ///
    /// // Behind a proxy that cuts connections which are silent for a second.
    /// let service = Server::new("calculator", "1.0.0").http().keep_alive(Duration::from_millis(300));
    /// ```
    pub fn keep_alive(self, interval: Duration) -> Self {
        self.having(|site| site.keep_alive = interval)
    }

    /// Whether new requests are taken: until a shutdown was asked for. For readiness probes.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        !self.site.shutdown.is_asked()
    }

    /// Ends the service in good order: new requests are refused, subscriptions come to their end, and
    /// running handlers get `grace` before they are dropped.
    pub fn shut_down(&self, grace: Duration) {
        self.site.shutdown.ask(grace);
    }

    /// Returns the number of requests that are being read or answered, including handlers that run on after their
    /// caller gave up.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.site.account.requests()
    }

    /// Returns what is held for peers at the moment, and what was refused so far.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.site.account.usage()
    }

    pub(crate) fn having(mut self, change: impl FnOnce(&mut Site)) -> Self {
        change(Arc::make_mut(&mut self.site));
        self
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
        let site = self.site.clone();
        let (head, body) = request.into_parts();
        let ends_at = stream_end(&head);
        let connection = head.extensions.get::<PeerAccount>().cloned();
        // One block with little in it: it is allocated for each request, and nested `async fn`s would keep
        // what they are given twice.
        Box::pin(async move {
            let taken_in = match site.arrive(&head) {
                // Its place is taken before its body is read: whoever sends bodies that never end has no more of them.
                Ok(Arrival::Post(accepts)) => match site.charge(&head) {
                    Ok(mut charge) => match body::read(head.version, pin!(body), &mut charge).await
                    {
                        Ok(body) if head.version == Version::HTTP_2 => {
                            site.take_in(head, accepts, &body::detached(body), charge)
                        }
                        Ok(body) => site.take_in(head, accepts, &body, charge),
                        Err(refused) => Err(refused),
                    },
                    Err(refused) => Err(refused),
                },
                Ok(Arrival::LegacyVerb) => legacy::answer_verb(&site, &head).map(Taken::Now),
                Err(refused) => Err(refused),
            };
            // By reference: awaited by itself it would be kept twice.
            let mut answering = taken_in.unwrap_or_else(|refused| Taken::Now(refusal(refused)));
            let answered = (&mut answering).await.unwrap_or_else(refusal);
            if ends_at.is_none() && connection.is_none() {
                return Ok(answered);
            }
            Ok(answered.map(|body| body.ending_at(ends_at, connection)))
        })
    }
}

/// The response to a request that is refused.
fn refusal(rejection: Rejection) -> Response<HttpBody> {
    let rejected = shortened(&rejection);
    tracing::debug!(rejection = %rejected, "an HTTP request was refused");
    body::rejection(rejection)
}

/// When a stream ends that a request asks to listen on: with the credential that it was opened with. A call goes on;
/// it was allowed when it was made, and ends by itself.
fn stream_end(head: &Parts) -> Option<Instant> {
    let ends_at = head.extensions.get::<Principal>()?.expires_at()?;
    let method = head.headers.get("mcp-method");
    let listens = method.is_some_and(|method| method == "subscriptions/listen");
    (listens || head.method == Method::GET).then(|| ends_at.into())
}

/// A request that came in.
pub(crate) enum Taken {
    Now(Response<HttpBody>),
    /// Its handler lives inside the response.
    Inside(Responding),
    /// Its handler runs elsewhere, and the response waits for it.
    Elsewhere(BoxFuture<'static, Result<Response<HttpBody>, Rejection>>),
}

impl Future for Taken {
    type Output = Result<Response<HttpBody>, Rejection>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Now(response) => {
                let taken = Response::new(HttpBody::from(Bytes::new()));
                Poll::Ready(Ok(std::mem::replace(response, taken)))
            }
            Self::Inside(responding) => Pin::new(responding).poll(cx).map(Ok),
            Self::Elsewhere(answer) => answer.as_mut().poll(cx),
        }
    }
}

impl Site {
    fn arrive(&self, head: &Parts) -> Result<Arrival, Rejection> {
        let paths = self.paths.as_ref().unwrap_or(&ANY_PATH);
        admit_head(head, &self.source, paths, &self.served)
    }

    /// Begins to answer what was posted.
    fn take_in(
        self: &Arc<Self>,
        head: Parts,
        accepts: Accepts,
        body: &Bytes,
        charge: Charge,
    ) -> Result<Taken, Rejection> {
        // Before the era is judged: what goes to the second endpoint of HTTP+SSE is legacy, a modern probe included.
        if let Some(endpoint) = legacy::second_endpoint(self, &head) {
            return legacy::answer_second_endpoint(self, &endpoint, head, accepts, body, charge);
        }
        let (headers, catalog) = (&head.headers, &*self.catalog);
        match admit(headers, body, &self.served, &self.callers, catalog)? {
            Admitted::Modern { id, request, seal } => {
                let handling = Handling::new(self, id, request, seal, Arc::new(head), charge);
                Ok(Taken::Inside(handling.respond(accepts)))
            }
            // Nothing that a modern client can say over HTTP concerns another request.
            Admitted::Notification(_) => Ok(Taken::Now(body::empty(StatusCode::ACCEPTED))),
            Admitted::Legacy(post) => legacy::answer(self, head, accepts, body, post, charge),
        }
    }

    /// Charges a request by its head; its body comes on top as it is read.
    pub(crate) fn charge(&self, head: &Parts) -> Result<Charge, Rejection> {
        if self.shutdown.is_asked() {
            return Err(unavailable("shutting down"));
        }
        let account = self.account_of(head);
        account.request(size_of_head(head)).map_err(overloaded)
    }

    /// Charges a stream that a client listens to. It is no request: nothing is asked.
    #[cfg_attr(
        bowline_no_legacy,
        allow(dead_code, reason = "a legacy client has one")
    )]
    pub(crate) fn charge_stream(&self, head: &Parts) -> Result<Charge, Rejection> {
        if self.shutdown.is_asked() {
            return Err(unavailable("shutting down"));
        }
        let account = self.account_of(head);
        let charged = account.hold(Held::Request, size_of_head(head));
        charged.map_err(overloaded)
    }

    fn account_of(&self, head: &Parts) -> Arc<Account> {
        match head.extensions.get::<Principal>().and_then(Principal::name) {
            Some(name) => self.account.principal(Some(name)),
            None => match head.extensions.get::<PeerAccount>() {
                Some(PeerAccount(connection)) => connection.clone(),
                None => self.account.clone(),
            },
        }
    }
}

/// The account of the connection that a request came over, among the extensions of its head. Only connections that
/// carry many requests at once have one.
#[derive(Clone)]
pub(crate) struct PeerAccount(pub(crate) Arc<Account>);

/// How many bytes a request takes up besides its body, roughly.
fn size_of_head(head: &Parts) -> usize {
    let headers = head.headers.iter();
    let headers = headers.map(|(name, value)| name.as_str().len() + value.len() + PER_HEADER);
    PER_REQUEST + head.uri.path().len() + headers.sum::<usize>()
}

/// A refusal because a limit is reached.
pub(crate) fn overloaded(reached: LimitReached) -> Rejection {
    Rejection::overloaded(reached.into())
}

/// A refusal that says nothing about the request.
pub(crate) fn unavailable(why: &str) -> Rejection {
    Rejection::http(StatusCode::SERVICE_UNAVAILABLE, why)
}

impl std::fmt::Debug for HttpService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpService")
            .field("served", &self.site.served)
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}

static ANY_PATH: Paths = Paths::any();
const COMMIT_AFTER: Duration = Duration::from_millis(250);
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// What the state of a request takes up: its futures, its context, its places in tables.
const PER_REQUEST: usize = 2048;
/// What a header takes up besides its text.
const PER_HEADER: usize = 64;
